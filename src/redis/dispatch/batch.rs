//! Batches of claims that arrived while enough others were in flight.
//!
//! Claims are sent in the order of their arrival. A claim whose time is nearly over is refused
//! without being sent, because its answer would probably come too late and the call would only delay
//! others. So goodput stays at capacity, however many claims arrive.

use super::claim::{Answer, Claim};
use crate::redis::error::Error;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};
use tokio::sync::oneshot;

/// Batches in flight when the round trip is short: more than one, so that the server has work while
/// this process reads answers. With 4 the pairs/s of 256 tasks are highest, with 1 they are a third
/// lower (`benches/redis`).
pub(super) const MIN_IN_FLIGHT: usize = 4;

/// The same to each of several servers: the others have work meanwhile, and larger batches cost each
/// of them less (`benches/cluster`).
pub(super) const MIN_IN_FLIGHT_TO_EACH: usize = 2;

/// Batches in flight when the round trip is long: 16 of 64 claims carry 10,000 claims/s over a round
/// trip of 100 ms (`benches/goodput`).
pub(super) const MAX_IN_FLIGHT: usize = 16;

/// The pause between two batches once [`MIN_IN_FLIGHT`] are in flight. Without it, many small batches
/// would be sent at once, and later claims would wait for a whole round trip. For each such pause in
/// the round trip one more batch may be in flight.
pub(super) const PACE: Duration = Duration::from_millis(6);

/// Batches in flight whatever the round trip, if they have few claims, as batches of heavy claims do:
/// the shortest round trip says little of a link that has become slow, and 8 such batches carry 80
/// claims of the greatest weight/s over 100 ms. The server answers others between two of them, if
/// they come at the pace.
const MAX_SMALL_IN_FLIGHT: usize = 8;

/// Claims of a batch: in a larger batch a claim hardly costs less (`benches/redis`).
const MAX_CLAIMS: usize = 64;

/// Units of a batch, as many as the heaviest claim has: such a batch blocks the server for about a
/// millisecond. The units in flight have no bound of their own, because what blocks the server is a
/// call, and a heavy claim that waited for earlier ones would hold up all light claims behind it.
const MAX_UNITS: usize = 1_000;

/// A claim on its way to a batch.
pub(super) struct Queued {
    pub(super) claim: Claim,
    pub(super) answer: oneshot::Sender<Answer>,
}

impl Queued {
    pub(super) fn new(claim: Claim, answer: oneshot::Sender<Answer>) -> Self {
        Self { claim, answer }
    }

    fn refuse(self, error: Error) {
        // A dropped receiver is ignored.
        let _ = self.answer.send(Err(error));
    }

    /// Whether a caller waits for the answer, and will probably get it in time. Two round trips must be
    /// left, because round trips vary under load. One is enough if the server has answered the claim
    /// before, because a refusal would waste the server's work.
    fn is_worth_sending(&self, round_trip: Duration) -> bool {
        let trips = if self.claim.was_answered() { 1 } else { 2 };
        !self.answer.is_closed() && Instant::now() + round_trip * trips <= self.claim.deadline
    }

    fn weight(&self) -> usize {
        self.claim.weight() as usize
    }
}

/// The claims that wait for a batch, and the batches in flight.
pub(super) struct Batches {
    /// How many may be in flight when the round trip is short.
    least: usize,
    pub(super) queued: VecDeque<Queued>,
    in_flight: usize,
    /// Claims of the batches in flight.
    claims: usize,
    /// When the last batch was sent.
    sent: Instant,
}

impl Batches {
    pub(super) fn new(least: usize) -> Self {
        Self {
            least,
            queued: VecDeque::new(),
            in_flight: 0,
            claims: 0,
            sent: Instant::now(),
        }
    }

    /// When the next batch may be sent, if `most` batches may be in flight. `None`: not before another
    /// batch is completed.
    pub(super) fn due(&self, most: usize) -> Option<Instant> {
        let is_small = self.claims < MIN_IN_FLIGHT * MAX_CLAIMS;
        let most_small = if is_small { MAX_SMALL_IN_FLIGHT } else { 0 };
        let is_at_once =
            self.in_flight < self.least || self.in_flight < most && self.is_full_batch_queued();
        let pace = if is_at_once { Duration::ZERO } else { PACE };
        let may_be_sent = self.in_flight < most.max(most_small) && !self.queued.is_empty();
        may_be_sent.then(|| self.sent + pace)
    }

    /// Whether the next batch has no room for claims that are yet to arrive. Heavy claims keep the
    /// pace all the same, so that the server can answer others between two batches of them.
    fn is_full_batch_queued(&self) -> bool {
        let first = self.queued.iter().take(MAX_CLAIMS);
        let units = || first.map(Queued::weight).sum::<usize>();
        self.queued.len() >= MAX_CLAIMS && units() <= MAX_UNITS
    }

    /// Takes the next batch out, which is empty if none may be sent now. A claim that cannot be
    /// answered in time is refused.
    pub(super) fn take(&mut self, most: usize, round_trip: Duration) -> Vec<Queued> {
        let mut batch = Vec::new();
        let mut units = 0;
        let now = Instant::now();
        if self.due(most).is_none_or(|due| now < due) {
            return batch;
        }
        while let Some(next) = self.queued.front()
            && batch.len() < MAX_CLAIMS
            && (batch.is_empty() || units + next.weight() <= MAX_UNITS)
            && let Some(next) = self.queued.pop_front()
        {
            match next.is_worth_sending(round_trip) {
                true => {
                    units += next.weight();
                    batch.push(next);
                }
                false => next.refuse(Error::Congested),
            }
        }
        if !batch.is_empty() {
            self.in_flight += 1;
            self.claims += batch.len();
            self.sent = now;
        }
        batch
    }

    /// Refuses the claims at the front that cannot be answered in time: those at the front have waited
    /// longest.
    pub(super) fn refuse_late(&mut self, round_trip: Duration) {
        while let Some(first) = self.queued.front()
            && !first.is_worth_sending(round_trip)
            && let Some(first) = self.queued.pop_front()
        {
            first.refuse(Error::Congested);
        }
    }

    pub(super) fn refuse_all(&mut self, error: &Error) {
        let all = self.queued.drain(..);
        all.for_each(|queued| queued.refuse(error.clone()));
    }

    pub(super) fn completed(&mut self, claims: usize) {
        self.in_flight -= 1;
        self.claims -= claims;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0 && self.queued.is_empty()
    }
}

#[cfg(test)]
mod tests;
