//! The routes, and which of them share an account's limit.

use crate::{account, events, export, market::Market, problem::Problem, trade};
use axum::{
    Router,
    http::StatusCode,
    routing::{get, post},
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower_semaphore::{ConcurrencyLimitLayer, KeyExtractor};

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) market: Arc<dyn Market>,
    /// Cancelled at the signal to stop.
    pub(crate) stop: CancellationToken,
}

/// All routes. Each request to `/market` takes one of the account's permits until the last byte of
/// its response is out: a stream holds its permit for as long as it runs.
pub(crate) fn router<K>(app: App, limit: ConcurrencyLimitLayer<K>) -> Router
where
    K: KeyExtractor + Clone + Send + Sync + 'static,
{
    let limited = Router::new()
        .route("/market", get(trade::listings))
        .route("/market/items", post(trade::list))
        .route("/market/items/{id}/purchase", post(trade::purchase))
        .route("/market/events", get(events::events))
        .route("/market/export", get(export::export))
        .layer(limit);
    Router::new()
        .route("/accounts/{id}", get(account::show))
        .merge(limited)
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such route"))
        .with_state(app)
}
