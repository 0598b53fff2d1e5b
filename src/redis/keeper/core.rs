//! What the keeper's callers and its tasks share.

use super::registry::{Registry, ReleaseCounts};
use crate::redis::{clock::Times, dispatch::Attempts, notify::Notifications, outage::Outage};
use std::sync::Arc;

/// The way to the server, the lengths of time, and the state that callers and tasks share.
pub(super) struct Core {
    pub(super) attempts: Arc<Attempts>,
    pub(super) times: Times,
    pub(super) registry: Registry,
    pub(super) released: ReleaseCounts,
    pub(super) outage: Arc<Outage>,
    pub(super) notifications: Arc<Notifications>,
}

impl Core {
    pub(super) fn new(
        attempts: Arc<Attempts>,
        times: Times,
        outage: Arc<Outage>,
        notifications: Arc<Notifications>,
    ) -> Self {
        Self {
            attempts,
            times,
            registry: Registry::default(),
            released: ReleaseCounts::default(),
            outage,
            notifications,
        }
    }
}
