//! `GET /health`: whether the market can serve, for an alarm or a load balancer.

use crate::{app::App, problem::Problem};
use axum::{extract::State, http::StatusCode};
use std::{error::Error, iter::successors};

/// What may fail later, a line each. With status 503 what is wrong now.
pub(crate) async fn show(State(app): State<App>) -> Result<String, Problem> {
    let risks = app.holders.permits.check().await;
    risks.map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, with_causes(&*error)))
}

/// Each level of an error says only its own part.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let levels = successors(Some(error), |error| (*error).source());
    let levels: Vec<_> = levels.map(ToString::to_string).collect();
    levels.join(": ")
}
