//! The routes, and which of them share an account's limit.

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

/// How many pages this process may have open.
const MOST_PAGES: u32 = 256;

/// The state that the handlers share.
#[derive(Clone)]
pub(crate) struct App {
    pub(crate) market: Arc<dyn Market>,
    pub(crate) holders: Holders,
    /// What the page says of the settings.
    pub(crate) about: Arc<About>,
    pub(crate) watchers: Watchers,
    /// Cancelled at the signal to stop.
    pub(crate) stop: CancellationToken,
    pub(crate) sockets: Sockets,
}

/// All routes. Each request to `/market` takes one of the account's permits until the last byte of
/// its response is out: a stream holds its permit for as long as it runs, and a socket until it is
/// closed.
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
        .layer(from_fn_with_state(watchers, page::told));
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
        .layer(from_fn(page::from_this_machine))
        .fallback(async || Problem::new(StatusCode::NOT_FOUND, "there is no such route"))
}

/// Lets nginx pass a stream on as it comes, and read it no faster than the client does, who then holds the permit.
async fn unbuffered(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// An open page has a task that looks for it, so their number is limited too.
fn pages() -> ConcurrencyLimitLayer<impl KeyExtractor + Clone + use<>> {
    let limit = ConcurrencyLimitLayer::new(MOST_PAGES, key::fixed("pages"), MemorySemaphore::new());
    limit.with_policy("pages")
}
