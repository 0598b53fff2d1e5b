//! The layer: settings to a service.

use super::service::{GlobalConcurrencyLimit, Shared};
use crate::{
    semaphore::{Key, Semaphore},
    settings::{Settings, settings_methods},
};
use std::{fmt, sync::Arc};
use tower_layer::Layer;

/// Limits how many requests of a service are in flight, with backpressure: a service without a
/// permit is not ready. See the [module docs](crate::global).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
///
/// let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new())
///     .with_wait(Duration::from_secs(5));
/// ```
#[derive(Clone)]
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct GlobalConcurrencyLimitLayer(Shared);

impl GlobalConcurrencyLimitLayer {
    /// A layer that admits at most `limit` requests in flight among all services of this key,
    /// counted by `semaphore`. Services of other layers and other processes count too, if they have
    /// the same store, key and policy.
    ///
    /// A limit of 0 makes a service that is always ready and refuses each call with status 429, so
    /// that an operator can close a service and its callers learn of it. Tower's own limit would
    /// never be ready. An empty key makes a service that refuses each call with status 400.
    ///
    /// # Panics
    ///
    /// A service of this layer that has to wait, or whose store is in Redis, panics if it is polled
    /// outside of a Tokio runtime with time enabled.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
    ///
    /// let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new());
    /// ```
    pub fn new(limit: u32, key: impl Into<Key>, semaphore: impl Semaphore) -> Self {
        Self(Shared::new(limit, key.into(), semaphore))
    }

    settings_methods!(
        "GlobalConcurrencyLimitLayer::new(3, \"example.org\", MemorySemaphore::new())",
        "Without bound unless set. A service that waits is not ready. When this time is over, it \
         is ready, and answers the next call with status 429; with a time of zero, as soon as it \
         finds no room."
    );

    /// Sets a function that returns the limit, instead of a fixed one. It is called for each
    /// acquire and should return at once. When the limit changes, a waiting service acquires anew
    /// at its next poll, which a probe causes within a second or so, and keeps its position in the
    /// queue. A lowered limit ends no permit.
    ///
    /// # Examples
    ///
    /// ```
    /// use tokio::sync::watch;
    /// use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
    ///
    /// let (operator, limit) = watch::channel(3);
    /// let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new())
    ///     .with_live_limit(move || *limit.borrow());
    /// operator.send(5).unwrap();
    /// # drop(layer);
    /// ```
    pub fn with_live_limit(mut self, limit: impl Fn() -> u32 + Send + Sync + 'static) -> Self {
        self.settings_mut().live_limit = Some(Arc::new(limit));
        self
    }

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.0.settings)
    }
}

impl<S> Layer<S> for GlobalConcurrencyLimitLayer {
    type Service = GlobalConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        GlobalConcurrencyLimit::of(inner, self.0.clone())
    }
}

impl fmt::Debug for GlobalConcurrencyLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimitLayer")
            .field("limit", &self.0.settings.limit)
            .field("key", &self.0.key)
            .finish_non_exhaustive()
    }
}
