//! The leases that wait to be sent over a connection.

use super::{id::LeaseRef, time::Time};
use std::{
    collections::{BTreeSet, VecDeque},
    mem,
};

/// The queue in which a lease waits for its next call. Refreshes and polls wait at the thread's connection only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendQueue {
    /// In the order of the ends of the leases.
    Refreshes,
    Polls,
    /// Acquires of leases that wait in no queue of a server: of new claims, and of lost leases.
    Claims,
}

/// The queues of one connection. An entry may be out of date: its lease may have been sent, may wait elsewhere, or may
/// be over. So the reader of an entry checks that the lease still waits in that queue.
#[derive(Debug, Default)]
pub(super) struct SendQueues {
    refreshes: BTreeSet<(Time, LeaseRef)>,
    polls: VecDeque<LeaseRef>,
    claims: VecDeque<LeaseRef>,
    /// The number of claims that the last cleanup has left.
    left_by_cleanup: usize,
}

/// Fewer claims than this are never cleaned up.
const FEW: usize = 128;

impl SendQueues {
    /// Adds a lease that ends at `end`.
    pub(super) fn push(&mut self, queue: SendQueue, at: LeaseRef, end: Time) {
        match queue {
            SendQueue::Refreshes => drop(self.refreshes.insert((end, at))),
            SendQueue::Polls => self.polls.push_back(at),
            SendQueue::Claims => self.claims.push_back(at),
        }
    }

    pub(super) fn first(&self, queue: SendQueue) -> Option<LeaseRef> {
        match queue {
            SendQueue::Refreshes => self.refreshes.first().map(|(_, at)| *at),
            SendQueue::Polls => self.polls.front().copied(),
            SendQueue::Claims => self.claims.front().copied(),
        }
    }

    pub(super) fn pop(&mut self, queue: SendQueue) {
        match queue {
            SendQueue::Refreshes => drop(self.refreshes.pop_first()),
            SendQueue::Polls => drop(self.polls.pop_front()),
            SendQueue::Claims => drop(self.claims.pop_front()),
        }
    }

    pub(super) fn len(&self, queue: SendQueue) -> usize {
        match queue {
            SendQueue::Refreshes => self.refreshes.len(),
            SendQueue::Polls => self.polls.len(),
            SendQueue::Claims => self.claims.len(),
        }
    }

    pub(super) fn is_empty(&self, queue: SendQueue) -> bool {
        self.len(queue) == 0
    }

    /// True if this lease is the only waiting claim.
    pub(super) fn has_only_claim(&self, at: LeaseRef) -> bool {
        self.claims == [at]
    }

    /// Takes the waiting claims, to move them to another connection.
    pub(super) fn take_claims(&mut self) -> VecDeque<LeaseRef> {
        mem::take(&mut self.claims)
    }

    pub(super) fn add_claims(&mut self, claims: VecDeque<LeaseRef>) {
        self.claims.extend(claims);
    }

    /// Takes the claims if many have gathered since the last cleanup. The caller drops those that are over, and passes
    /// the others to [`end_cleanup`](Self::end_cleanup). So a connection that sends nothing for long has at most 128
    /// entries, or twice the number that the last cleanup has left.
    pub(super) fn begin_cleanup(&mut self) -> Option<VecDeque<LeaseRef>> {
        let most = FEW.max(2 * self.left_by_cleanup);
        (self.claims.len() > most).then(|| self.take_claims())
    }

    pub(super) fn end_cleanup(&mut self, claims: VecDeque<LeaseRef>) {
        self.left_by_cleanup = claims.len();
        self.claims = claims;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::id::PermitId;

    /// Adds claims until a cleanup is due. Returns their number.
    fn fill(queues: &mut SendQueues) -> usize {
        loop {
            let at = LeaseRef(PermitId::default(), 0);
            queues.push(SendQueue::Claims, at, Time::ZERO);
            if let Some(claims) = queues.begin_cleanup() {
                let count = claims.len();
                queues.claims = claims;
                return count;
            }
        }
    }

    #[test]
    fn claims_are_cleaned_up_once_they_are_twice_as_many_as_the_last_cleanup_has_left() {
        let mut queues = SendQueues::default();
        assert_eq!(fill(&mut queues), FEW + 1);
        let left: VecDeque<_> = queues.take_claims().into_iter().take(100).collect();
        queues.end_cleanup(left);
        // One more than twice the 100 that were left.
        assert_eq!(fill(&mut queues), 201);
        queues.end_cleanup(VecDeque::new());
        assert_eq!(fill(&mut queues), FEW + 1);
    }
}
