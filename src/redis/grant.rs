//! What a permit from Redis holds.

use super::{Store, keeper::Order, lease::Lease};
use crate::semaphore::{BoxFuture, Grant, Loss};
use std::{future::ready, sync::Arc};
use tokio::sync::oneshot;

/// A lease that is given back when this is dropped, or taken back if its acquire was only asked.
pub(super) struct RedisGrant {
    pub(super) lease: Arc<Lease>,
    pub(super) store: Arc<Store>,
}

impl Grant for RedisGrant {
    fn token(&self) -> u64 {
        self.lease.token()
    }

    fn loss(&self) -> &Loss {
        &self.lease.loss
    }

    /// Also by this process's own clock, when nobody could be asked since the lease has ended.
    fn is_lost(&self) -> bool {
        self.lease.loss.is_set() || self.lease.is_past(self.store.core.times.now())
    }

    fn release(&self) -> BoxFuture<bool> {
        if !self.lease.end() {
            return Box::pin(ready(false));
        }
        let (answer, held) = oneshot::channel();
        let lease = Arc::clone(&self.lease);
        self.store.order(Order::Release(lease, Some(answer)));
        Box::pin(async move { held.await.unwrap_or(false) })
    }
}

impl Drop for RedisGrant {
    fn drop(&mut self) {
        if self.lease.end() {
            let lease = Arc::clone(&self.lease);
            self.store.order(Order::Release(lease, None));
        }
    }
}
