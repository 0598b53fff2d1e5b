//! The route of a request in axum.

use super::{KeyError, KeyExtractor};
use crate::{
    observe::events,
    semaphore::{Claim, Claims},
};
use http::request::Parts;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// The key is the route that axum has matched, such as `/items/{id}`, so all items share it. It does not include the
/// method.
///
/// Apply the layer to the `Router`, with `layer` or `route_layer`: outside of the router no request has a route.
/// Requests without a route, which axum answers with its fallback, share the key `no route`. If the very first request
/// has no route, a warning is logged.
///
/// # Examples
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let limit = ConcurrencyLimitLayer::new(100, key::matched_path(), MemorySemaphore::new());
/// let app: Router = Router::new().route("/items/{id}", get(|| async { "item" })).layer(limit);
/// # drop(app);
/// ```
pub fn matched_path() -> MatchedPath {
    MatchedPath {
        has_begun: Arc::default(),
    }
}

/// The extractor that [`matched_path`] returns.
#[derive(Debug, Clone)]
#[must_use]
pub struct MatchedPath {
    /// True once the extractor has seen a request.
    has_begun: Arc<AtomicBool>,
}

impl KeyExtractor for MatchedPath {
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let route = parts.extensions.get::<axum::extract::MatchedPath>();
        // The load is cheaper than the swap, which only the first requests reach.
        if !self.has_begun.load(Relaxed) && !self.has_begun.swap(true, Relaxed) && route.is_none() {
            events::no_route();
        }
        let route = route.map_or("no route", |route| route.as_str());
        Ok(Some(Claim::new(route).into()))
    }
}
