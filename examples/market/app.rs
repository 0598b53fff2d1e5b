//! The routes. Those under `/market` share an account's limit.

use crate::{
    account, events, export, health, holders,
    holders::Holders,
    market::Market,
    page::{self, About, Watchers},
    problem::Problem,
    socket::{self, Sockets},
    trade,
};
use axum::{
    Router,
    http::{HeaderValue, StatusCode},
    middleware::{from_fn, from_fn_with_state, map_response},
    response::Response,
    routing::{any, delete, get, post},
};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tower_semaphore::{ConcurrencyLimitLayer, KeyExtractor, MemorySemaphore, key};

/// The number of pages that may be open in this process.
const MOST_PAGES: u32 = 256;

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) market: Arc<dyn Market>,
    pub(crate) holders: Holders,
    /// The settings that the page shows.
    pub(crate) about: Arc<About>,
    pub(crate) watchers: Watchers,
    /// Cancelled at the signal to stop.
    pub(crate) stop: CancellationToken,
    pub(crate) sockets: Sockets,
}

/// All routes. Each request to `/market` takes one of the account's permits until the last byte of its response has
/// been sent. So a stream holds its permit while it runs, and a socket holds one until it is closed.
pub(crate) fn routes<K>(limit: ConcurrencyLimitLayer<K>, watchers: Watchers) -> Router<App>
where
    K: KeyExtractor + Clone + Send + Sync + 'static,
{
    let limited = Router::new()
        .route("/market", get(trade::listings))
        .route("/market/items", post(trade::list))
        .route("/market/items/{id}/purchase", post(trade::purchase))
        .route(
            "/market/events",
            get(events::events).layer(map_response(unbuffered)),
        )
        .route(
            "/market/export",
            get(export::export).layer(map_response(unbuffered)),
        )
        .route("/market/socket", any(socket::open))
        .layer(limit)
        .layer(from_fn_with_state(watchers, page::notify_watchers));
    let feed = get(page::feed).layer((pages(), map_response(unbuffered)));
    Router::new()
        .route("/", get(page::page))
        .route("/health", get(health::show))
        .route("/accounts/{id}/events", feed)
        .route("/accounts/{id}", get(account::show))
        .route("/accounts/{id}/permits", get(holders::show))
        .route("/fleet/permits", get(holders::show_fleet))
        .route("/accounts/{id}/permits/{permit}", delete(holders::revoke))
        .merge(limited)
        .layer(from_fn(page::allow_own_origins))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such route"))
}

/// Stops nginx from buffering a stream: nginx would read ahead of the client, and the permit would end too early.
async fn unbuffered(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Each watched account has a task that polls the store, so the number of open pages is limited too.
fn pages() -> ConcurrencyLimitLayer<impl KeyExtractor + Clone + use<>> {
    let limit = ConcurrencyLimitLayer::new(MOST_PAGES, key::fixed("pages"), MemorySemaphore::new());
    limit.with_policy("pages")
}
