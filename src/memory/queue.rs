//! The queue of one key.

use super::holders::Details;
use crate::{
    semaphore::{Units, Wait, clock},
    sync::oneshot,
};
use std::{collections::VecDeque, sync::Arc};

/// The waiters of a key in the order of their arrivals less their head starts.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    /// Those that are granted, and whose tasks have not made their permits yet; only of a store that lists
    /// permits, so that what a task holds that does not run is listed too.
    granted: Vec<Claimed>,
    last_number: u64,
}

/// A waiter. Dropping it wakes its task, so that is done without the queue's lock.
#[must_use]
pub(super) struct Waiting {
    number: u64,
    /// When it arrived, in [nanoseconds](clock::nanos), less its head start.
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

/// What an operator has revoked.
#[must_use]
pub(super) enum Revoked {
    /// A claim that has nothing.
    Waiting(Waiting),
    /// A claim that was granted so many units, which are to be released.
    Granted(u32),
    /// A claim whose task is making a permit of it, and ends that.
    Taken,
    /// The same, but it was revoked before.
    Again,
}

/// A waiter that is granted, but not notified yet.
#[must_use]
pub(super) struct Granted {
    waiter: oneshot::Sender<Acquired>,
    acquired: Acquired,
}

impl Granted {
    /// Wakes the waiter's task: without the queue's lock, because a waker may run that task at once.
    pub(super) fn notify(self) {
        // A dropped receiver is ignored: the drop of its waiter releases the units.
        let _ = self.waiter.send(self.acquired);
    }
}

/// A granted claim: its token, and how many units of the key are held now.
#[derive(Debug)]
pub(super) struct Acquired {
    pub(super) token: u64,
    pub(super) held: u32,
}

/// A position in a queue, as its waiter keeps it.
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

    /// Joins the queue behind all waiters that arrived before, or that had that much of a head start.
    /// `None`: as many of them wait as `wait` allows.
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

    /// Removes the head, which is granted.
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

    /// Removes a waiter, if it is still in the queue. It is not listed any more.
    pub(super) fn remove(&mut self, number: u64) -> Option<Waiting> {
        self.granted.retain(|claimed| claimed.number != number);
        self.remove_where(|waiting| waiting.number == number)
    }

    /// A permit is being made of a granted claim. `false`: it was revoked.
    pub(super) fn begin_permit(&mut self, number: u64) -> bool {
        let mut granted = self.granted.iter_mut();
        let found = granted.find(|claimed| claimed.number == number);
        found.map(|claimed| claimed.is_taken = true).is_some()
    }

    /// The permit is listed. Returns whether it was revoked meanwhile.
    pub(super) fn end_permit(&mut self, position: &Position) -> bool {
        self.granted
            .retain(|claimed| claimed.number != position.number);
        position.details.is_revoked()
    }

    /// Removes a claim without a permit that an operator revokes. `None`: there is none.
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
