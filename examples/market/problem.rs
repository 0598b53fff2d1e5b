//! Errors as clients see them: problem details (RFC 9457).

use crate::{
    market::{Refusal, StoreError},
    with_causes,
};
use axum::{
    Json,
    extract::{
        rejection::{JsonRejection, PathRejection, QueryRejection},
        ws::rejection::WebSocketUpgradeRejection,
    },
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tower_semaphore::KeyError;

/// A status, and a detail text for the client.
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let problem = json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let kind = [(CONTENT_TYPE, "application/problem+json")];
        (self.status, kind, Json(problem)).into_response()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let (status, detail) = match refusal {
            Refusal::Unknown => (StatusCode::NOT_FOUND, "there never was such a listing"),
            Refusal::NotOwned => (StatusCode::CONFLICT, "the account has no such item"),
            Refusal::Sold => (StatusCode::CONFLICT, "the item is sold"),
            Refusal::OwnListing => (StatusCode::CONFLICT, "the listing is the account's own"),
            Refusal::TooPoor => (StatusCode::CONFLICT, "the account has too few coins"),
        };
        Self::new(status, detail)
    }
}

impl From<StoreError> for Problem {
    /// The client learns only that the market is closed. The reason is logged for the operator.
    fn from(error: StoreError) -> Self {
        eprintln!("the market's store failed: {}", with_causes(&*error));
        let detail = "the market is closed for the moment";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

impl From<JsonRejection> for Problem {
    /// The status is 400 for invalid JSON, and 422 for JSON of another shape than the route expects.
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Problem {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Problem {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<WebSocketUpgradeRejection> for Problem {
    fn from(rejection: WebSocketUpgradeRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}
