//! `GET /health`: the state of the store, for an alarm or a load balancer.

use crate::{App, error::ApiError};
use axum::{extract::State, http::StatusCode};

/// Returns the known risks, one per line, or status 503 with the current problem.
pub(crate) async fn show(State(app): State<App>) -> Result<String, ApiError> {
    let risks = app.store.check().await;
    risks.map_err(|problem| ApiError::new(StatusCode::SERVICE_UNAVAILABLE, problem))
}
