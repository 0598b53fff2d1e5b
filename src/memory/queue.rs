//! The queue of one key.

use crate::{
    semaphore::{Units, Wait},
    sync::oneshot,
};
use std::{collections::VecDeque, sync::LazyLock, time::Instant};

/// Arrivals count from here.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The waiters of a key in the order of their arrivals less their head starts.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    last_number: u64,
}

/// A waiter. Dropping it wakes its task, so that is done without the queue's lock.
#[must_use]
pub(super) struct Waiting {
    number: u64,
    /// Nanoseconds from the start to the arrival, less the head start.
    rank: i64,
    units: Units,
    granted: oneshot::Sender<Acquired>,
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
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Joins the queue behind all waiters that arrived before, or that had that much of a head start.
    /// `None`: as many of them wait as `wait` allows.
    pub(super) fn push(&mut self, units: Units, wait: Wait) -> Option<Position> {
        let rank = START.elapsed().as_nanos() as i64 - wait.head_start.as_nanos() as i64;
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
            granted: sender,
        };
        self.waiting.insert(index, waiting);
        Some(Position {
            number,
            granted: receiver,
        })
    }

    /// The units of the head's claim.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiting.front().map(|waiting| waiting.units)
    }

    /// Removes the head, which is granted.
    pub(super) fn grant_head(&mut self, acquired: Acquired) -> Option<Granted> {
        let head = self.waiting.pop_front()?;
        Some(Granted {
            waiter: head.granted,
            acquired,
        })
    }

    /// Removes a waiter, if it is still in the queue.
    pub(super) fn remove(&mut self, number: u64) -> Option<Waiting> {
        let found = self
            .waiting
            .iter()
            .position(|waiting| waiting.number == number);
        found.and_then(|index| self.waiting.remove(index))
    }
}
