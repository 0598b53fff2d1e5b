//! What a user asks of the limit.

use crate::{
    key::KeyExtractor,
    reject::Rejection,
    semaphore::{Policy, Semaphore},
    service::ConcurrencyLimit,
    settings::{OnLost, ReleaseAt, Settings},
};
use bytes::Bytes;
use http::Response;
use std::{fmt, sync::Arc, time::Duration};
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
/// A clone of the [`Permit`](crate::Permit) lies in the request's extensions, and the last clone
/// dropped gives the place back. So a handler that keeps it, or keeps the request, keeps the
/// place: what answers with an upgrade, a WebSocket say, must do so, because the body of such a
/// response has ended before the connection has.
///
/// # How this differs from `tower::limit::ConcurrencyLimitLayer`
///
/// Tower's layer counts all requests of one service together and gives a place back when the
/// response's *head* is out; a request without a place waits. This one counts for each key, holds
/// the place until the *body* has ended, refuses at once with a response, and counts across
/// processes when the semaphore does.
#[derive(Clone)]
pub struct ConcurrencyLimitLayer<K> {
    extractor: K,
    settings: Settings,
}

impl<K> ConcurrencyLimitLayer<K> {
    /// At most `limit` requests in flight for each key that `extractor` names, counted by
    /// `semaphore`.
    ///
    /// A limit of 0 refuses every request without asking the semaphore.
    pub fn new(limit: u32, extractor: K, semaphore: impl Semaphore) -> Self
    where
        K: KeyExtractor,
    {
        Self {
            extractor,
            settings: Settings::new(limit, semaphore),
        }
    }

    /// The policy's name, `concurrency` unless set. Layers of one name share the permits of a
    /// key, two names do not; clients read it in the RateLimit fields.
    pub fn with_name(mut self, name: impl Into<Policy>) -> Self {
        self.settings.name(name.into());
        self
    }

    /// How long a request may wait for its permit, first come first served for each key across
    /// all processes of the store. Without it a request that finds no room is refused at once.
    ///
    /// A client that hangs up leaves the line. Not every server notices that while the request
    /// body is unread or another request is pipelined, so keep the wait short.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.settings.wait = wait;
        self
    }

    /// How many requests of one key may wait: [`DEFAULT_LINE`](crate::semaphore::DEFAULT_LINE) unless set. Further ones are
    /// refused at once.
    pub fn with_max_waiting(mut self, max_waiting: usize) -> Self {
        self.settings.max_waiting = max_waiting;
        self
    }

    /// Ends a permit after this time, whatever its request does then: for a client that has
    /// stopped reading, say, so that its body is never polled again. What becomes of the response
    /// is for [`with_on_lost`](Self::with_on_lost) to say. No bound unless set.
    pub fn with_max_hold(mut self, max_hold: Duration) -> Self {
        self.settings.max_hold = Some(max_hold);
        self
    }

    /// What becomes of a response whose permit was lost. It finishes unless set.
    pub fn with_on_lost(mut self, on_lost: OnLost) -> Self {
        self.settings.on_lost = on_lost;
        self
    }

    /// When a permit is given back. At the end of the body unless set.
    pub fn with_release(mut self, release_at: ReleaseAt) -> Self {
        self.settings.release_at = release_at;
        self
    }

    /// Makes the response to a request that is not admitted.
    /// [`Rejection::into_response`] unless set.
    pub fn with_rejection<F>(mut self, reject: F) -> Self
    where
        F: Fn(Rejection) -> Response<Bytes> + Send + Sync + 'static,
    {
        self.settings.reject = Arc::new(reject);
        self
    }
}

impl<S, K: Clone> Layer<S> for ConcurrencyLimitLayer<K> {
    type Service = ConcurrencyLimit<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        ConcurrencyLimit::new(inner, self.extractor.clone(), self.settings.clone())
    }
}

impl<K> fmt::Debug for ConcurrencyLimitLayer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrencyLimitLayer")
            .field("limit", &self.settings.limit)
            .field("name", &self.settings.policy)
            .finish_non_exhaustive()
    }
}
