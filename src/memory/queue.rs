//! The waiters of one key, and its permits as operators see them.

use super::holders::{Details, Holding, Listed};
use crate::{
    semaphore::{Permit, Units, Wait, clock},
    sync::oneshot,
};
use std::{collections::VecDeque, sync::Arc};

/// The waiters of a key, ordered by arrival time minus head start.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Empty if the store does not list its permits.
    holders: Vec<Holding>,
}

/// A waiter. Its drop wakes its task, so drop it outside the queue's lock.
#[must_use]
pub(super) struct Waiting {
    /// When it arrived, in [nanoseconds](clock::nanos), less its head start.
    rank: i64,
    units: Units,
    details: Arc<Details>,
    make_permit: MakePermit,
    sender: oneshot::Sender<Permit>,
}

/// Makes the permit of a waiter that is granted. The queue is locked then, so it runs no code of users.
type MakePermit = Box<dyn FnOnce(&Acquired) -> Permit + Send>;

/// The permit of a waiter that has left the queue, and where it is sent: without the queue's lock, because a
/// waker may run the waiter's task at once, and because the permit of a waiter that is gone is dropped.
pub(super) type Granted = (oneshot::Sender<Permit>, Permit);

/// A granted claim: its token, and the units of the key now held.
#[derive(Debug)]
pub(super) struct Acquired {
    pub(super) token: u64,
    pub(super) held: u32,
}

impl Waiting {
    pub(super) fn new(
        units: Units,
        wait: Wait,
        details: Arc<Details>,
        make_permit: impl FnOnce(&Acquired) -> Permit + Send + 'static,
    ) -> (Self, oneshot::Receiver<Permit>) {
        let (sender, receiver) = oneshot::channel();
        let waiting = Self {
            rank: clock::nanos() - wait.head_start.as_nanos() as i64,
            units,
            details,
            make_permit: Box::new(make_permit),
            sender,
        };
        (waiting, receiver)
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

    /// Makes the permit of the head, which leaves the queue.
    pub(super) fn grant_head(&mut self, acquired: &Acquired) -> Option<Granted> {
        let head = self.waiting.pop_front()?;
        let permit = (head.make_permit)(acquired);
        if head.details.is_listed {
            self.list(head.details, &permit);
        }
        Some((head.sender, permit))
    }

    /// Removes a waiter, if it is still in the queue.
    pub(super) fn remove(&mut self, serial: u64) -> Option<Waiting> {
        let is_it = |waiting: &Waiting| waiting.details.serial == serial;
        let found = self.waiting.iter().position(is_it);
        found.and_then(|index| self.waiting.remove(index))
    }

    pub(super) fn list(&mut self, details: Arc<Details>, permit: &Permit) {
        let (token, permit) = (permit.token(), permit.downgrade());
        self.holders.push(Holding {
            details,
            token,
            permit,
        });
    }

    /// Lists a permit no more.
    pub(super) fn unlist(&mut self, is_it: impl Fn(&Holding) -> bool) -> Option<Holding> {
        let at = self.holders.iter().position(is_it)?;
        Some(self.holders.swap_remove(at))
    }

    /// The permits, and the waiters in their order. Each permit may be the last clone by now, and its drop
    /// locks the queue.
    pub(super) fn details(&self) -> (Vec<Listed>, Vec<Arc<Details>>) {
        let held = self.holders.iter().filter_map(Holding::listed);
        let details = |waiting: &Waiting| Arc::clone(&waiting.details);
        (held.collect(), self.waiting.iter().map(details).collect())
    }
}
