//! What drops have to say.

use crate::{
    redis::core::{CallId, PermitId, RuntimeId},
    sync::Mutex,
};
use std::collections::VecDeque;

/// What was dropped.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dropped {
    /// A permit, or a claim.
    Permit(PermitId),
    /// The carrier of a call that has no answer.
    Carrier(CallId),
    /// A runtime's connection to a server.
    Connection(RuntimeId, usize),
    /// The last handle and permit.
    Handles,
    /// The keeper's thread: another one may have to be started.
    Keeper,
}

/// Its own mutex is held for a push, or to take some.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<VecDeque<Dropped>>);

/// So many are taken under one hold of the core's lock.
pub(super) const MOST: usize = 512;

impl Inbox {
    pub(super) fn push(&self, dropped: Dropped) {
        self.0.lock().push_back(dropped);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// The first of what was dropped.
    pub(super) fn take(&self) -> Vec<Dropped> {
        let mut all = self.0.lock();
        let first = all.len().min(MOST);
        all.drain(..first).collect()
    }
}
