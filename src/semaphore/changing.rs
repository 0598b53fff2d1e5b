//! A permit changes its weight once at a time.

use super::Permit;
use std::sync::{Arc, atomic::Ordering::SeqCst};
use tokio::sync::Notify;

/// Notified after each change of any permit. One for all, because a process may hold very many
/// permits, and clones of a permit rarely change its weight at the same time.
static CHANGED: Notify = Notify::const_new();

/// Permits that are changed by nobody else while this exists.
pub(super) struct Changing<'a>(Vec<&'a Permit>);

impl<'a> Changing<'a> {
    /// Waits for the changes that others have begun. Everybody begins in one order, so no two wait for
    /// each other.
    pub(super) async fn begin(permits: &[&'a Permit]) -> Self {
        let address = |permit: &&Permit| Arc::as_ptr(&permit.0).cast::<()>().addr();
        let mut order = permits.to_vec();
        order.sort_unstable_by_key(address);
        order.dedup_by_key(|permit| address(permit));
        let mut begun = Self(Vec::with_capacity(order.len()));
        for permit in order {
            permit.begin_change().await;
            begun.0.push(permit);
        }
        begun
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        for permit in &self.0 {
            permit.0.is_changing.swap(false, SeqCst);
        }
        CHANGED.notify_waiters();
    }
}

impl Permit {
    async fn begin_change(&self) {
        loop {
            // `notified` counts from its creation, so a change that ends after the check is not missed.
            let changed = CHANGED.notified();
            if !self.0.is_changing.swap(true, SeqCst) {
                return;
            }
            changed.await;
        }
    }
}
