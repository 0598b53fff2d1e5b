//! Sends claims, many together.

use super::{
    claim::{Answer, Claim, Level},
    load::RoundTrip,
};
use crate::redis::{
    clock::{ServerClock, Times},
    error::Error,
    group::by_semaphore,
    protocol::{Acquire, Protocol},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Sends claims in calls, and applies the answers.
pub(in crate::redis) struct Attempts {
    pub(in crate::redis) protocol: Protocol,
    pub(super) times: Times,
    clock: Arc<ServerClock>,
}

impl Attempts {
    pub(super) fn new(protocol: Protocol, times: Times, clock: Arc<ServerClock>) -> Self {
        Self {
            protocol,
            times,
            clock,
        }
    }

    /// The number of the server of a claim, as far as is known.
    pub(super) fn server_of(&self, claim: &Claim) -> Option<usize> {
        match self.protocol.is_one_server() {
            true => Some(0),
            false => self.protocol.server_of(&claim.name()),
        }
    }

    /// Whether this runtime has a connection to the server of a claim.
    pub(super) fn is_connected(&self, claim: &Claim) -> bool {
        match self.protocol.is_one_server() {
            true => self.protocol.is_connected(""),
            false => self.protocol.is_connected(&claim.name()),
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
    /// in the order of the claims. `round_trip` is that of their
    /// server, if that is known.
    pub(super) async fn attempt_twice(
        &self,
        claims: &[&Claim],
        round_trip: Option<&RoundTrip>,
    ) -> Vec<Answer> {
        let mut answers = self.attempt_timed(claims, None, round_trip).await;
        let usual = round_trip.map_or(Duration::ZERO, |round_trip| self.usual(round_trip));
        let again: Vec<usize> = (0..claims.len())
            .filter(|&at| is_worth_another(claims[at], &answers[at], usual))
            .collect();
        if !again.is_empty() {
            let claims: Vec<_> = again.iter().map(|&at| claims[at]).collect();
            // The time in the answer is a better estimate than the clock's: nodes may differ.
            let server_times = answers.iter().filter_map(|answer| match answer {
                Err(Error::Late(now)) => Some(*now),
                _ => None,
            });
            let now = server_times.max();
            let second = self.attempt_timed(&claims, now, round_trip).await;
            for (at, answer) in again.into_iter().zip(second) {
                answers[at] = answer;
            }
        }
        answers
    }

    /// The usual round trip, but at most half of a call's timeout, so that two round trips leave time
    /// in a claim's budget.
    pub(super) fn usual(&self, round_trip: &RoundTrip) -> Duration {
        round_trip.usual().min(self.times.timeout / 2)
    }

    /// Acquires for claims of one server in as few calls as possible.
    pub(in crate::redis) async fn attempt(&self, claims: &[&Claim]) -> Vec<Answer> {
        self.attempt_timed(claims, None, None).await
    }

    /// The same; the round trip is observed. `now` is the server's time in ms, if an answer has just
    /// carried it.
    async fn attempt_timed(
        &self,
        claims: &[&Claim],
        now: Option<u64>,
        round_trip: Option<&RoundTrip>,
    ) -> Vec<Answer> {
        // The latest deadline counts: a claim with an earlier one stops waiting by itself.
        let latest = claims.iter().map(|claim| claim.deadline).max();
        let latest = latest.unwrap_or_else(Instant::now);
        if let Err(error) = self.ready(claims, latest).await {
            return claims.iter().map(|_| Err(error.clone())).collect();
        }
        let sent = Instant::now();
        let deadline = latest.min(sent + self.times.timeout);
        let runs_until = match now {
            Some(now) => now + (deadline - sent).as_millis() as u64,
            None => self.clock.at(deadline),
        };

        let mut answers: Vec<Answer> = claims.iter().map(|_| Err(Error::Congested)).collect();
        // What was released meanwhile is not sent.
        let wanted = (0..claims.len()).filter(|&at| claims[at].sent(runs_until));
        let wanted: Vec<usize> = wanted.collect();
        let replies = self.acquire(claims, wanted, runs_until, latest).await;
        let is_answered = replies.iter().any(|(_, reply)| reply.is_ok());
        if let Some(round_trip) = round_trip.filter(|_| is_answered) {
            round_trip.observe(sent.elapsed());
        }
        let held_until = self.times.held_until(sent);
        for (at, reply) in replies {
            claims[at].answered(&reply, held_until);
            answers[at] = reply;
        }
        answers
    }

    /// Waits until there is a connection to the server of the claims.
    async fn ready(&self, claims: &[&Claim], deadline: Instant) -> Result<(), Error> {
        match claims.first() {
            Some(claim) if !self.protocol.is_one_server() => {
                self.protocol.ready(&claim.name(), deadline).await
            }
            _ => self.protocol.ready("", deadline).await,
        }
    }

    /// Acquires for these of the claims, one after the other: so none is passed. Those of one semaphore
    /// travel together where a call may name no other. The index of each claim, and its answer.
    async fn acquire(
        &self,
        claims: &[&Claim],
        wanted: Vec<usize>,
        runs_until: u64,
        deadline: Instant,
    ) -> Vec<(usize, Answer)> {
        let wanted = match self.protocol.takes_several() {
            true => wanted,
            false => {
                let groups = by_semaphore(wanted, |&at| claims[at].name());
                groups.into_iter().flat_map(|(_, group)| group).collect()
            }
        };
        let levels = |at: usize| {
            let levels = claims[at].levels.iter();
            levels.map(Level::wanted)
        };
        let shares = wanted.iter().map(|&at| Acquire {
            levels: levels(at).collect(),
        });
        let shares: Vec<_> = shares.collect();
        let replies = self.protocol.acquire(&shares, runs_until, deadline).await;
        wanted.into_iter().zip(replies).collect()
    }
}

/// Whether a second attempt may succeed, and in time.
fn is_worth_another(claim: &Claim, answer: &Answer, round_trip: Duration) -> bool {
    let may_do_better = |error: &Error| error.is_disconnect() || matches!(error, Error::Late(_));
    answer.as_ref().is_err_and(may_do_better)
        && !claim.is_released()
        && Instant::now() + round_trip < claim.deadline
}
