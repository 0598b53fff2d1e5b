//! The queue of one key.

use super::holders::Details;
use crate::{
    semaphore::{Units, Wait, clock},
    sync::oneshot,
};
use std::{collections::VecDeque, sync::Arc};

/// The waiters of a key, ordered by arrival time minus head start.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Granted claims whose tasks have not made their permits yet. Kept only in a store that lists
    /// permits, so that units are listed even if their task does not run.
    granted: Vec<Claimed>,
    last_number: u64,
}

/// A waiter. Its drop wakes its task, so drop it outside the queue's lock.
#[must_use]
pub(super) struct Waiting {
    number: u64,
    /// Arrival time in [nanoseconds](clock::nanos), minus the head start.
    rank: i64,
    units: Units,
    details: Arc<Details>,
    granted: oneshot::Sender<Acquired>,
}

/// Units of a claim that has no permit yet.
struct Claimed {
    number: u64,
    weight: u32,
    details: Arc<Details>,
    /// Whether its permit is being made.
    is_taken: bool,
}

/// The claim that an operator has revoked.
#[must_use]
pub(super) enum Revoked {
    /// A waiting claim, without units.
    Waiting(Waiting),
    /// A granted claim: so many units are to be released.
    Granted(u32),
    /// A claim whose task is making its permit. The task ends the permit.
    Taken,
    /// Like `Taken`, but revoked before.
    Again,
}

/// A granted waiter that is not notified yet.
#[must_use]
pub(super) struct Granted {
    waiter: oneshot::Sender<Acquired>,
    acquired: Acquired,
}

impl Granted {
    /// Wakes the waiter's task. Call it outside the queue's lock, because a waker may run the task
    /// at once.
    pub(super) fn notify(self) {
        // A dropped receiver is ignored: the drop of its waiter releases the units.
        let _ = self.waiter.send(self.acquired);
    }
}

/// A granted claim: its token, and the units of the key now held.
#[derive(Debug)]
pub(super) struct Acquired {
    pub(super) token: u64,
    pub(super) held: u32,
}

/// A waiter's handle to its position in a queue.
pub(super) struct Position {
    /// Unique within the queue.
    pub(super) number: u64,
    pub(super) granted: oneshot::Receiver<Acquired>,
    pub(super) details: Arc<Details>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Joins the queue by arrival time minus head start. `None`: as many waiters are ahead as
    /// `wait` allows.
    pub(super) fn push(
        &mut self,
        units: Units,
        wait: Wait,
        details: Arc<Details>,
    ) -> Option<Position> {
        let rank = clock::nanos() - wait.head_start.as_nanos() as i64;
        let index = self.waiting.partition_point(|other| other.rank <= rank);
        if index >= wait.max_waiting as usize {
            return None;
        }
        self.last_number += 1;
        let number = self.last_number;
        let (sender, receiver) = oneshot::channel();
        let waiting = Waiting {
            number,
            rank,
            units,
            details: Arc::clone(&details),
            granted: sender,
        };
        self.waiting.insert(index, waiting);
        Some(Position {
            number,
            granted: receiver,
            details,
        })
    }

    /// The units of the head's claim.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiting.front().map(|waiting| waiting.units)
    }

    /// Removes the head to grant it.
    pub(super) fn grant_head(&mut self, acquired: Acquired) -> Option<Granted> {
        let head = self.waiting.pop_front()?;
        if head.details.is_listed() {
            self.granted.push(Claimed {
                number: head.number,
                weight: head.units.weight,
                details: head.details,
                is_taken: false,
            });
        }
        Some(Granted {
            waiter: head.granted,
            acquired,
        })
    }

    /// Removes a waiter, if it is still in the queue, and unlists it.
    pub(super) fn remove(&mut self, number: u64) -> Option<Waiting> {
        self.granted.retain(|claimed| claimed.number != number);
        self.remove_where(|waiting| waiting.number == number)
    }

    /// Marks the permit of a granted claim as being made. `false`: the claim was revoked.
    pub(super) fn begin_permit(&mut self, number: u64) -> bool {
        let mut granted = self.granted.iter_mut();
        let found = granted.find(|claimed| claimed.number == number);
        found.map(|claimed| claimed.is_taken = true).is_some()
    }

    /// Called once the permit is listed. Returns whether it was revoked since `begin_permit`.
    pub(super) fn end_permit(&mut self, position: &Position) -> bool {
        self.granted
            .retain(|claimed| claimed.number != position.number);
        position.details.is_revoked()
    }

    /// Revokes a claim without a permit for an operator. `None`: there is no such claim.
    pub(super) fn revoke(&mut self, serial: u64) -> Option<Revoked> {
        if let Some(waiting) = self.remove_where(|waiting| waiting.details.serial() == serial) {
            waiting.details.revoke();
            return Some(Revoked::Waiting(waiting));
        }
        let mut granted = self.granted.iter();
        let at = granted.position(|claimed| claimed.details.serial() == serial)?;
        let claimed = &self.granted[at];
        if claimed.details.is_revoked() {
            return Some(Revoked::Again);
        }
        claimed.details.revoke();
        if claimed.is_taken {
            return Some(Revoked::Taken);
        }
        Some(Revoked::Granted(self.granted.swap_remove(at).weight))
    }

    /// The granted claims without a permit, and the waiters in their order.
    pub(super) fn details(&self) -> (Vec<Arc<Details>>, Vec<Arc<Details>>) {
        let granted = self.granted.iter();
        let granted = granted.map(|claimed| Arc::clone(&claimed.details));
        let waiting = self.waiting.iter();
        let waiting = waiting.map(|waiting| Arc::clone(&waiting.details));
        (granted.collect(), waiting.collect())
    }

    fn remove_where(&mut self, is_it: impl Fn(&Waiting) -> bool) -> Option<Waiting> {
        let found = self.waiting.iter().position(is_it);
        found.and_then(|index| self.waiting.remove(index))
    }
}
