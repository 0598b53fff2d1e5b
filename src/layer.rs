//! The layer: settings to a service.

use crate::{
    key::KeyExtractor,
    semaphore::Semaphore,
    service::{Cloned, ConcurrencyLimit},
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
/// request, keeps its units in use. A handler that answers with a tunnel must keep the permit, because the body of such
/// a response ends before the connection does. Tunnels are WebSockets and other upgrades over HTTP/1.1, and CONNECT,
/// which over HTTP/2 opens WebSockets too. `hyper::upgrade::on(request)` takes the whole request, and with it the
/// permit; the [guide](crate) shows how a handler keeps it. With the feature `tracing` the layer logs one warning if
/// such a body ends and no other clone of the permit lives. Under several limits that one permit stands for all of
/// them. With the feature `axum` the permit is an extractor; without it, extract `Extension<Permit>`:
///
/// ```
/// # #[cfg(feature = "axum")] {
/// use axum::{
///     extract::ws::{WebSocket, WebSocketUpgrade},
///     response::Response,
/// };
/// use tower_semaphore::Permit;
///
/// async fn socket(permit: Permit, upgrade: WebSocketUpgrade) -> Response {
///     upgrade.on_upgrade(|socket| async move {
///         tokio::select! {
///             () = talk(socket) => {}
///             () = permit.lost() => {} // by default a lost permit ends nothing
///         }
///     })
/// }
/// # async fn talk(_: WebSocket) {}
/// # drop(axum::Router::<()>::new().route("/", axum::routing::any(socket)));
/// # }
/// ```
///
/// The end of that block releases the permit: when the client closes the socket or is killed, and when
/// the handler panics. A client whose machine vanishes closes nothing, so send pings, and end the
/// socket when they stay unanswered. When the process stops, close its sockets before
/// `RedisSemaphore::shutdown`: a server does not wait for an upgraded connection. The example
/// `market` does all of that.
///
/// # gRPC
///
/// A server of tonic takes the layer as it is, `Server::builder().layer(limit)`, and metadata are headers, so
/// [`key::header`](crate::key::header) finds an account there. A call holds its permit to its trailers, which for a
/// stream may be hours. [`Rejection`](crate::Rejection) describes the response to a refused client.
///
/// The layer does not read a call's deadline (`grpc-timeout`), but a wait ends with it anyway: tonic drops a call whose
/// deadline is over, and a client resets the call. Both remove the claim from the queue. To refuse such a call instead,
/// let its wait end before its deadline: see [`Claim::with_wait_until`](crate::Claim::with_wait_until) and
/// [`grpc_timeout`](crate::key::grpc_timeout).
///
/// Around a channel of tonic either layer works too. With
/// [`GlobalConcurrencyLimitLayer`](crate::GlobalConcurrencyLimitLayer) a generated client waits until the limit has
/// room before it sends a call. The example `grpc` has a server and a client.
///
/// # Responses
///
/// An admitted response has the RateLimit fields of draft-ietf-httpapi-ratelimit-headers, which show
/// the client its limit and the remaining units. [`Rejection`](crate::Rejection) describes the
/// response to a request that is not admitted. Both have the body type
/// [`ResponseBody`](crate::ResponseBody).
///
/// # Nested limits
///
/// Limits of different policies, keys or stores count separately, each with its own permit. The permit in the
/// request's extensions keeps the permits of the outer limits.
///
/// Two nested limits of one store (server and prefix, whatever the handle or wrapper), policy and key are a mistake of
/// the service: a request would count twice, or wait for its own permit. The first such request gets status 500, or
/// `grpc-status` 13, and with the feature `tracing` an error in the log names both limits. Use a separate policy for
/// each of the two, with [`with_policy`](Self::with_policy). Two handles that were connected to one Redis separately
/// count as one store if their users may run `INFO` and the server was not restarted in between.
///
/// The inner limit finds the mistake in its store's answer, and holds nothing then. Its claims contain the ids of the
/// outer limits' semaphores, so the stores of this crate refuse such a request at once instead of letting it wait in
/// vain. If one of the two limits is [in shadow](Self::with_shadow), the mistake is only logged. In a custom store the
/// layer finds the mistake if the store [has ids](crate::semaphore::Grant::semaphore), and before a wait if the store
/// [compares them](crate::Claim::is_within).
///
/// A middleware outside of the limit may send a request again, with the extensions of the first attempt: a client such
/// as hyper-util's gives back a request that it has not sent. The permit of that attempt does not count as an outer
/// limit, because a request is under a limit only until the end of its response, or of the call if it fails. The layer
/// removes such a permit from the extensions before it acquires the next one. A handler that still needs the
/// permit keeps a clone.
///
/// # Limits that change
///
/// An operator [sets a limit](crate::Operate::set_limit) in the store: it is in force in every process, for requests
/// that wait too, whatever limits claims have.
///
/// A claim may also carry its own limit, so an extractor can follow a value that its process changes: a
/// `tokio::sync::watch`, an atomic number or an `ArcSwap` of a whole configuration.
///
/// ```
/// use tokio::sync::watch;
/// use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let (operator, limit) = watch::channel(5);
/// let live = key::from_fn(move |parts| {
///     let account = parts.headers.get("x-account-id")?;
///     Some(Claim::new(account).with_limit(*limit.borrow()))
/// });
/// let layer = ConcurrencyLimitLayer::new(5, live, MemorySemaphore::new());
/// operator.send(20).unwrap();
/// # drop(layer);
/// ```
///
/// Then each request is admitted under the limit that its claim had when it arrived, whatever the limits of earlier
/// claims:
///
/// - A *lowered* limit ends no permit: nothing is granted until enough of them are released. A request
///   that waits already may still be admitted under the higher limit, as long as its wait lasts.
/// - A *raised* limit counts at once for a key without a queue. Requests that wait already keep their lower limit and
///   their position, so later ones pass them only when they have been admitted or their wait is over. Keep
///   waits short where limits change often.
///
/// # Around other services
///
/// - The inner service must be `Clone`, and its response's body must consist of `Bytes`, as the
///   bodies of axum and hyper do. The request's body must be `Send + 'static`: a refused upload is
///   [read to its end](Self::with_max_drain).
/// - A client that hangs up leaves the queue, because the server drops its request. Not every
///   server notices a hang-up while the request's body is unread or another request is pipelined,
///   so keep [`with_wait`](Self::with_wait) short.
/// - A request that is queued *inside* the limit, in a `buffer` or a connection pool, keeps its
///   permit until the request is dropped there, even if the client has hung up.
/// - An axum `Router` that is called as a service without a final `with_state(())` builds its layers again for each
///   request; `axum::serve` and `into_make_service` call `with_state` themselves. Building this layer's service costs
///   two reference counts, and all services of the layer share their queues and permits.
///
/// # Clients
///
/// The layer limits any service of `http` requests, so a client too. reqwest has request and response types that differ
/// from the types of `http`: the [guide](crate) has two recipes for it. [`with_cooldown`](Self::with_cooldown) applies
/// the `Retry-After` of an upstream in all processes.
///
/// # How this differs from `tower::limit::ConcurrencyLimitLayer`
///
/// Tower's layer counts all requests of one service together and releases a permit when the response's *head* is out; a
/// request without a permit waits. This layer counts for each key, and holds the permit until the *body* has ended. A
/// request that finds no room gets status 429 unless it may wait. The layer counts across processes if the semaphore
/// does.
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
        "By default it does not wait: a request that finds no room is refused at once."
    );

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl<S: Cloned, K> Layer<S> for ConcurrencyLimitLayer<K> {
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
