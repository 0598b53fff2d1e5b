//! The layer: settings to a service.

use super::{
    service::{GlobalConcurrencyLimit, settings},
    watch::Watch,
};
use crate::{
    semaphore::{Key, Semaphore},
    settings::{Settings, settings_methods},
};
use std::{fmt, sync::Arc};
use tower_layer::Layer;

/// Limits how many requests of a service are in flight. See the [module docs](super).
#[derive(Clone)]
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct GlobalConcurrencyLimitLayer {
    key: Key,
    settings: Arc<Settings>,
    watch: Arc<Watch>,
}

impl GlobalConcurrencyLimitLayer {
    /// At most `limit` requests in flight among all services of this key, counted by `semaphore`.
    ///
    /// A limit of 0 makes a service that is always ready, and that refuses each call with status
    /// 429. Tower's own limit would never be ready; but a caller that waits for ever learns
    /// nothing, and a limit of 0 is how an operator closes a service.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};
    ///
    /// let layer = GlobalConcurrencyLimitLayer::new(3, "example.org", MemorySemaphore::new());
    /// ```
    pub fn new(limit: u32, key: impl Into<Key>, semaphore: impl Semaphore) -> Self {
        Self {
            key: key.into(),
            settings: Arc::new(settings(limit, semaphore)),
            watch: Arc::default(),
        }
    }

    settings_methods!(
        "GlobalConcurrencyLimitLayer::new(3, \"example.org\", MemorySemaphore::new())",
        "For ever unless set: the service is not ready meanwhile. After this time it is ready to \
         refuse, and the next call is answered with status 429."
    );

    fn settings_mut(&mut self) -> &mut Settings {
        Arc::make_mut(&mut self.settings)
    }
}

impl<S> Layer<S> for GlobalConcurrencyLimitLayer {
    type Service = GlobalConcurrencyLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (settings, watch) = (Arc::clone(&self.settings), Arc::clone(&self.watch));
        GlobalConcurrencyLimit::with(inner, self.key.clone(), settings, watch)
    }
}

impl fmt::Debug for GlobalConcurrencyLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GlobalConcurrencyLimitLayer")
            .field("limit", &self.settings.limit)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}
