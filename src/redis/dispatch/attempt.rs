//! Sends claims, and applies the answers to their leases.

use super::load::RoundTrip;
use crate::redis::{
    clock::{ServerClock, Times},
    error::Error,
    group::by_semaphore,
    lease::Lease,
    protocol::{AcquireOf, Acquired, Position, Protocol, Wanted},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// A claim that is sent to the server.
pub(in crate::redis) struct Claim {
    pub(in crate::redis) lease: Arc<Lease>,
    /// How the claim waits; `None` if it does not wait.
    pub(in crate::redis) position: Option<Position>,
    /// Until when an answer is of use.
    pub(in crate::redis) deadline: Instant,
}

type Answer = Result<Acquired, Error>;

/// Sends claims in calls, and applies the answers.
pub(in crate::redis) struct Attempts {
    pub(in crate::redis) protocol: Protocol,
    pub(super) times: Times,
    clock: Arc<ServerClock>,
    pub(super) round_trip: RoundTrip,
}

impl Attempts {
    pub(super) fn new(protocol: Protocol, times: Times, clock: Arc<ServerClock>) -> Self {
        Self {
            protocol,
            times,
            clock,
            round_trip: RoundTrip::default(),
        }
    }

    /// Reads the server's clock unless it is known: an acquire carries a deadline by that clock.
    ///
    /// Of several nodes one is read. If it fails, the others may still grant: without a clock an
    /// acquire counts as late, and the answer has the node's time for a second one. The keeper goes
    /// on reading the highest time that any process has seen.
    pub(in crate::redis) async fn learn_clock(&self, deadline: Instant) -> Result<(), Error> {
        if self.clock.is_known() {
            return Ok(());
        }
        let deadline = deadline.min(Instant::now() + self.times.timeout);
        let learned = self.protocol.clock(deadline).await;
        match self.protocol.is_one_server() {
            true => learned,
            false => Ok(()),
        }
    }

    /// Acquires for all claims, and once more for those whose connection broke or whose deadline was
    /// wrong because the server's clock differs from the estimate. Returns an answer for each claim,
    /// in the order of the claims.
    pub(super) async fn attempt_twice(&self, claims: &[&Claim]) -> Vec<Answer> {
        let mut answers = self.attempt(claims, None).await;
        let again: Vec<usize> = (0..claims.len())
            .filter(|&at| self.is_worth_another(claims[at], &answers[at]))
            .collect();
        if !again.is_empty() {
            let claims: Vec<_> = again.iter().map(|&at| claims[at]).collect();
            // The time in the answer is a better estimate than the clock's: nodes may differ.
            let server_times = answers.iter().filter_map(|answer| match answer {
                Err(Error::Late(now)) => Some(*now),
                _ => None,
            });
            let now = server_times.max();
            for (at, answer) in again.into_iter().zip(self.attempt(&claims, now).await) {
                answers[at] = answer;
            }
        }
        answers
    }

    fn is_worth_another(&self, claim: &Claim, answer: &Answer) -> bool {
        let may_do_better =
            |error: &Error| error.is_disconnect() || matches!(error, Error::Late(_));
        answer.as_ref().is_err_and(may_do_better)
            && !claim.lease.is_released()
            && Instant::now() + self.usual_round_trip() < claim.deadline
    }

    /// The usual round trip, but at most half of a call's timeout, so that two round trips leave time
    /// in a claim's budget.
    pub(super) fn usual_round_trip(&self) -> Duration {
        self.round_trip.usual().min(self.times.timeout / 2)
    }

    /// Acquires for all claims in as few calls as possible. `now` is the server's time in ms, if an
    /// answer has just carried it.
    pub(in crate::redis) async fn attempt(
        &self,
        claims: &[&Claim],
        now: Option<u64>,
    ) -> Vec<Answer> {
        // The latest deadline counts: a claim with an earlier one stops waiting by itself.
        let latest = claims.iter().map(|claim| claim.deadline).max();
        let latest = latest.unwrap_or_else(Instant::now);
        if let Err(error) = self.protocol.ready(latest).await {
            return vec![Err(error); claims.len()];
        }
        let sent = Instant::now();
        let deadline = latest.min(sent + self.times.timeout);
        let runs_until = match now {
            Some(now) => now + (deadline - sent).as_millis() as u64,
            None => self.clock.at(deadline),
        };

        let mut answers: Vec<Answer> = claims.iter().map(|_| Err(Error::Congested)).collect();
        // A lease that was released meanwhile is not sent.
        let wanted = (0..claims.len()).filter(|&at| claims[at].lease.sent(runs_until));
        let groups = by_semaphore(wanted, |&at| claims[at].lease.name());
        let shares: Vec<_> = groups
            .iter()
            .map(|(name, indexes)| AcquireOf {
                name: Arc::clone(name),
                wanted: indexes.iter().map(|&at| claims[at].wanted()).collect(),
            })
            .collect();
        let replies = self.protocol.acquire(&shares, runs_until, latest).await;
        // The round trips to several nodes say nothing of each other.
        if self.protocol.is_one_server() && replies.iter().any(Result::is_ok) {
            self.round_trip.observe(sent.elapsed());
        }

        let held_until = self.times.held_until(sent);
        let indexes = groups.into_iter().flat_map(|(_, indexes)| indexes);
        for (at, reply) in indexes.zip(replies) {
            claims[at].lease.answered(&reply, held_until);
            answers[at] = reply;
        }
        answers
    }
}

impl Claim {
    /// How many units the server may have to grant for the claim in this call. A waiter counts as one
    /// unit, because the script bounds the units that a call grants to waiters.
    pub(super) fn weight(&self) -> u32 {
        match self.position {
            Some(_) => 1,
            None => self.lease.permit.weight,
        }
    }

    fn wanted(&self) -> Wanted {
        (self.lease.permit, self.position)
    }
}

impl Lease {
    /// Applies the answer to an acquire. Without an answer it is unknown whether the acquire has
    /// run.
    fn answered(&self, answer: &Answer, held_until: u64) {
        match answer {
            Ok(Acquired::Granted { token, .. }) => self.granted(*token, held_until),
            Ok(Acquired::Queued { .. }) => self.queued(),
            Ok(Acquired::Full { .. } | Acquired::QueueFull) => self.refused(),
            Err(error) if error.had_no_effect() => self.not_sent(),
            Err(_) => {}
        }
    }
}
