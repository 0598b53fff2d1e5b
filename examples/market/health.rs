//! `GET /health`: whether the market can serve, for an alarm or a load balancer.

use crate::{app::App, problem::Problem};
use axum::{extract::State, http::StatusCode};
use std::{error::Error, iter::successors};

/// Returns the known risks, one per line, or status 503 with the current problem.
pub(crate) async fn show(State(app): State<App>) -> Result<String, Problem> {
    let risks = app.holders.permits.check().await;
    risks.map_err(|error| Problem::new(StatusCode::SERVICE_UNAVAILABLE, with_causes(&*error)))
}

/// Joins the levels of an error, because each displays only its own part.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let levels = successors(Some(error), |error| (*error).source());
    let levels: Vec<_> = levels.map(ToString::to_string).collect();
    levels.join(": ")
}
