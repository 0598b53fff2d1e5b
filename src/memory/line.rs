//! Who waits for a key.

use crate::semaphore::Units;
use std::collections::VecDeque;
use tokio::sync::oneshot;

/// First come, first served.
#[derive(Default)]
pub(super) struct Line {
    waiters: VecDeque<Waiter>,
    last: u64,
}

struct Waiter {
    number: u64,
    units: Units,
    told: oneshot::Sender<Taken>,
}

/// What was taken: the permit's token, and how much of its key is held now.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) token: u64,
    pub(super) held: u32,
}

/// A place in a line.
pub(super) struct Place {
    pub(super) number: u64,
    pub(super) told: oneshot::Receiver<Taken>,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    pub(super) fn join(&mut self, units: Units) -> Place {
        self.last += 1;
        let number = self.last;
        let (told, receiver) = oneshot::channel();
        self.waiters.push_back(Waiter {
            number,
            units,
            told,
        });
        Place {
            number,
            told: receiver,
        }
    }

    /// What the next in line asks for.
    pub(super) fn head(&self) -> Option<Units> {
        self.waiters.front().map(|waiter| waiter.units)
    }

    /// Tells the head what it got.
    pub(super) fn admit(&mut self, taken: Taken) {
        if let Some(head) = self.waiters.pop_front() {
            // Who does not listen any more is about to leave, and gives it back then.
            let _ = head.told.send(taken);
        }
    }

    /// Whether the place was still in the line.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let found = self
            .waiters
            .iter()
            .position(|waiter| waiter.number == number);
        found.and_then(|index| self.waiters.remove(index)).is_some()
    }
}
