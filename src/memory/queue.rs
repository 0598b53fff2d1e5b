//! The waiters of one key, and its permits as operators see them.

use super::holders::{Details, Listed};
use crate::semaphore::{Units, Wait, timer};
use std::{collections::VecDeque, sync::Arc};

/// The waiters of a key, ordered by arrival time minus head start.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Empty if the store does not list its permits.
    holders: Vec<Arc<Details>>,
}

/// A waiter. Its drop wakes its task, so drop it outside the queue's lock.
#[must_use]
pub(super) struct Waiting {
    /// When it arrived, in [nanoseconds](timer::nanos), less its head start.
    rank: i64,
    units: Units,
    details: Arc<Details>,
    deliver: Deliver,
}

/// Takes what a waiter is granted to its task: without the queue's lock, because a waker may run the task at once,
/// and because what a waiter that is gone is granted is released.
type Deliver = Box<dyn FnOnce(Acquired) + Send>;

/// A granted claim: its token, and the units of the key now held.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acquired {
    pub(super) token: u64,
    pub(super) held: u32,
}

/// What a waiter that has left the queue is granted.
pub(super) struct Granted(Acquired, Deliver);

impl Granted {
    pub(super) fn deliver(self) {
        (self.1)(self.0);
    }
}

impl Waiting {
    pub(super) fn new(
        units: Units,
        wait: Wait,
        details: Arc<Details>,
        deliver: impl FnOnce(Acquired) + Send + 'static,
    ) -> Self {
        Self {
            rank: timer::nanos() - wait.head_start.as_nanos() as i64,
            units,
            details,
            deliver: Box::new(deliver),
        }
    }
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Joins the queue behind all waiters that arrived before, or that had that much of a head start.
    /// Gives the waiter back if `max_waiting` or more are ahead of it.
    pub(super) fn push(&mut self, waiting: Waiting, max_waiting: u32) -> Result<(), Waiting> {
        let is_ahead = |other: &Waiting| other.rank <= waiting.rank;
        let index = self.waiting.partition_point(is_ahead);
        if index >= max_waiting as usize {
            return Err(waiting);
        }
        self.waiting.insert(index, waiting);
        Ok(())
    }

    /// The units of the head's claim.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiting.front().map(|waiting| waiting.units)
    }

    /// Grants to the head, which leaves the queue.
    pub(super) fn grant_head(&mut self, acquired: Acquired) -> Option<Granted> {
        let head = self.waiting.pop_front()?;
        if head.details.is_listed {
            self.list(head.details);
        }
        Some(Granted(acquired, head.deliver))
    }

    /// Removes a waiter, if it is still in the queue.
    pub(super) fn remove(&mut self, serial: u64) -> Option<Waiting> {
        let is_it = |waiting: &Waiting| waiting.details.serial == serial;
        let found = self.waiting.iter().position(is_it);
        found.and_then(|index| self.waiting.remove(index))
    }

    /// Lists a permit, which has the weight of its claim.
    pub(super) fn list(&mut self, details: Arc<Details>) {
        details.hold();
        self.holders.push(details);
    }

    /// Lists a permit no more.
    pub(super) fn unlist(&mut self, serial: u64) -> Option<Arc<Details>> {
        let is_it = |details: &Arc<Details>| details.serial == serial;
        let at = self.holders.iter().position(is_it)?;
        Some(self.holders.swap_remove(at))
    }

    /// The permits with their weights, and the waiters in their order.
    pub(super) fn details(&self) -> (Vec<Listed>, Vec<Arc<Details>>) {
        let held = self.holders.iter();
        let held = held.map(|details| (Arc::clone(details), details.weight()));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|waiting| Arc::clone(&waiting.details));
        (held.collect(), waiting.collect())
    }
}
