//! Notifies those who watch an account of its refusals.

use super::Watchers;
use crate::account;
use axum::{
    extract::{Request, State},
    http::{HeaderValue, header::RETRY_AFTER, request::Parts},
    middleware::Next,
    response::Response,
};
use serde::Serialize;
use tower_semaphore::AcquireError;

/// A refused request.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Refusal {
    request: String,
    /// The name that the client gives its stream in the query. A page shows its own streams itself.
    stream: Option<String>,
    status: u16,
    reason: String,
    /// In seconds.
    retry_after: Option<u64>,
}

/// Notifies the watchers of an account of each refusal in this process.
pub(crate) async fn notify_watchers(
    State(watchers): State<Watchers>,
    request: Request,
    next: Next,
) -> Response {
    if watchers.is_empty() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let account = account::from_parts(&parts);
    let (asked, stream) = (
        format!("{} {}", parts.method, parts.uri.path()),
        stream(&parts),
    );
    let response = next.run(Request::from_parts(parts, body)).await;
    if let (Ok(account), Some(refusal)) = (account, refusal(asked, stream, &response)) {
        watchers.notify(&account, refusal);
    }
    response
}

/// The refusal in a response, if it is one. The layer puts the reason into the response's extensions.
fn refusal(request: String, stream: Option<String>, response: &Response) -> Option<Refusal> {
    let reason = response.extensions().get::<AcquireError>()?;
    let retry_after = response.headers().get(RETRY_AFTER);
    Some(Refusal {
        request,
        stream,
        status: response.status().as_u16(),
        reason: reason.to_string(),
        retry_after: retry_after.and_then(seconds),
    })
}

/// The name of the stream in the query.
fn stream(parts: &Parts) -> Option<String> {
    let mut fields = parts.uri.query()?.split('&');
    let name = fields.find_map(|field| field.strip_prefix("stream="));
    name.map(ToOwned::to_owned)
}

fn seconds(value: &HeaderValue) -> Option<u64> {
    value.to_str().ok()?.parse().ok()
}
