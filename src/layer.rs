//! The layer: settings to a service.

use crate::{
    key::KeyExtractor,
    semaphore::Semaphore,
    service::ConcurrencyLimit,
    settings::{Settings, settings_methods},
};
use std::{fmt, sync::Arc};
use tower_layer::Layer;

/// Limits how many requests of one key are in flight at a time, until their bodies have ended.
///
/// ```no_run
/// use axum::{Router, routing::get};
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let limit = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
/// let app: Router = Router::new().route("/market", get(|| async { "items" })).layer(limit);
/// ```
///
/// # The permit of a request
///
/// The layer puts a clone of the [`Permit`](crate::Permit) into the request's extensions, and
/// dropping the last clone releases the permit. So a handler that keeps the permit, or the
/// request, keeps its units in use. A handler that answers with an upgrade, a WebSocket for
/// instance, must keep the permit, because the body of such a response ends before the connection
/// does. Under several limits that one permit stands for all of them. With the feature `axum` the
/// permit is an extractor:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::response::Response;
/// use tower_semaphore::Permit;
///
/// async fn socket(permit: Permit) -> Response {
///     tokio::spawn(async move {
///         // … talk, then:
///         drop(permit);
///     });
///     # Response::default()
/// }
/// # drop(socket);
/// # }
/// ```
///
/// # Responses
///
/// An admitted response has the RateLimit fields of draft-ietf-httpapi-ratelimit-headers, which show
/// the client its limit and the remaining units. [`Rejection`](crate::Rejection) describes the
/// response to a request that is not admitted. Both have the body type
/// [`ResponseBody`](crate::ResponseBody).
///
/// # Around other services
///
/// - The inner service must be `Clone`, and its response's body must consist of `Bytes`, as the
///   bodies of axum and hyper do.
/// - A client that hangs up leaves the queue, because the server drops its request. Not every
///   server notices a hang-up while the request's body is unread or another request is pipelined,
///   so keep [`with_wait`](Self::with_wait) short.
/// - A request that is queued *inside* the limit, in a `buffer` or a connection pool, keeps its
///   permit until the request is dropped there, even if the client has hung up.
/// - An axum `Router` that is called as a service without a final `with_state(())` builds its
///   layers anew for each request; `axum::serve` and `into_make_service` call `with_state`
///   themselves. Building this layer's service costs two reference counts, and all services of the
///   layer share their queues and permits.
///
/// # Clients
///
/// The layer limits any service of `http` requests. reqwest has request and response types of its
/// own, so convert them on both sides of the layer, with `map_request` and `map_response`:
///
/// ```ignore
/// use tower::ServiceBuilder;
///
/// let client = ServiceBuilder::new()
///     .map_request(|request: reqwest::Request| http::Request::try_from(request).unwrap())
///     .map_response(|response: http::Response<_>| {
///         reqwest::Response::from(response.map(reqwest::Body::wrap))
///     })
///     .layer(limit)
///     .map_request(|request: http::Request<_>| reqwest::Request::try_from(request).unwrap())
///     .map_response(|response: reqwest::Response| http::Response::from(response))
///     .service(reqwest::Client::new());
/// ```
///
/// # How this differs from `tower::limit::ConcurrencyLimitLayer`
///
/// Tower's layer counts all requests of one service together and releases a permit when the
/// response's *head* is out; a request without a permit waits. This layer counts for each key,
/// holds the permit until the *body* has ended, answers a request that finds no room with status
/// 429 unless it may wait, and counts across processes when the semaphore does.
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct ConcurrencyLimitLayer<K> {
    extractor: Arc<K>,
    settings: Arc<Settings>,
}

impl<K> ConcurrencyLimitLayer<K> {
    /// A layer that admits at most `limit` requests in flight for each key that `extractor`
    /// returns, counted by `semaphore`. A claim of weight *w* counts as *w* requests.
    ///
    /// A limit of 0 refuses every request that has a key with status 429, and does not call the
    /// store.
    ///
    /// # Panics
    ///
    /// A service of this layer panics outside of a Tokio runtime with time enabled if its store is
    /// in Redis, or if a request has to wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
    ///
    /// let layer = ConcurrencyLimitLayer::new(5, key::peer_ip(), MemorySemaphore::new());
    /// ```
    pub fn new(limit: u32, extractor: K, semaphore: impl Semaphore) -> Self
    where
        K: KeyExtractor,
    {
        Self {
            extractor: Arc::new(extractor),
            settings: Arc::new(Settings::new(limit, semaphore)),
        }
    }

    settings_methods!(
        "ConcurrencyLimitLayer::new(5, key::header(\"x-account-id\"), MemorySemaphore::new())",
        "Not at all unless set: a request that finds no room is refused at once."
    );

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl<S, K> Layer<S> for ConcurrencyLimitLayer<K> {
    type Service = ConcurrencyLimit<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        let (extractor, settings) = (Arc::clone(&self.extractor), Arc::clone(&self.settings));
        ConcurrencyLimit::with(inner, extractor, settings)
    }
}

impl<K> Clone for ConcurrencyLimitLayer<K> {
    fn clone(&self) -> Self {
        Self {
            extractor: Arc::clone(&self.extractor),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<K> fmt::Debug for ConcurrencyLimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimitLayer")
            .field("limit", &self.settings.limit)
            .field("policy", &self.settings.policy)
            .finish_non_exhaustive()
    }
}
