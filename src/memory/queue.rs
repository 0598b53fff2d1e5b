//! The queue of one key.

use crate::semaphore::Units;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// The waiters of a key, first come, first served.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Waiting>,
    last_number: u64,
}

struct Waiting {
    number: u64,
    units: Units,
    granted: oneshot::Sender<Acquired>,
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
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, units: Units) -> Position {
        self.last_number += 1;
        let number = self.last_number;
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(Waiting {
            number,
            units,
            granted: sender,
        });
        Position {
            number,
            granted: receiver,
        }
    }

    /// The units of the head's claim.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiting.front().map(|waiting| waiting.units)
    }

    /// Removes the head and reports its grant.
    pub(super) fn grant_head(&mut self, acquired: Acquired) {
        if let Some(head) = self.waiting.pop_front() {
            // A dropped receiver is ignored: the drop of its waiter releases the units.
            let _ = head.granted.send(acquired);
        }
    }

    /// Whether the waiter was still in the queue.
    pub(super) fn remove(&mut self, number: u64) -> bool {
        let found = self
            .waiting
            .iter()
            .position(|waiting| waiting.number == number);
        found.and_then(|index| self.waiting.remove(index)).is_some()
    }
}
