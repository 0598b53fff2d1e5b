//! A breaker for each part of the keys, so that a server that is away decides for its own keys only.

use super::{
    alert::Alert, breaker::Breaker, phase::Phase, policy::WhenUnavailable, summary::Summary,
};
use crate::redis::{
    clock::Times,
    error::Error,
    transport::{Part, SAMPLES, Transport},
};
use parking_lot::RwLock;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc, time::Instant};
use tokio::sync::watch;

/// The breakers by the numbers of the parts. Where all keys live on one server there is only one.
pub(in crate::redis) struct Breakers {
    transport: Arc<dyn Transport>,
    times: Times,
    policy: WhenUnavailable,
    pub(super) summary: Arc<Summary>,
    /// Of all parts that may be of one server.
    alert: Arc<Alert>,
    breakers: RwLock<Vec<Arc<Breaker>>>,
}

impl Breakers {
    pub(in crate::redis) fn new(
        transport: Arc<dyn Transport>,
        times: Times,
        policy: WhenUnavailable,
    ) -> Arc<Self> {
        let summary = Arc::<Summary>::default();
        let is_one_server = transport.is_one_server();
        let alert = Arc::new(Alert::new(&summary));
        let first = Breaker::new(times, policy, is_one_server, &alert);
        Arc::new(Self {
            transport,
            times,
            policy,
            summary,
            alert,
            breakers: RwLock::new(vec![Arc::new(first)]),
        })
    }

    /// The breaker of the server that has a semaphore, or another key.
    pub(super) fn of(&self, name: &str) -> Arc<Breaker> {
        self.get(self.transport.part_of(name))
    }

    pub(super) fn all(&self) -> Vec<Arc<Breaker>> {
        self.breakers.read().clone()
    }

    /// Changes whenever a breaker has opened.
    pub(in crate::redis) fn opens(&self) -> watch::Receiver<u64> {
        self.summary.opens.subscribe()
    }

    /// Why the breaker of a semaphore's server is open; `None` if it is not.
    pub(in crate::redis) fn open_because(&self, name: &str) -> Option<Error> {
        if self.summary.is_well() {
            return None;
        }
        let breaker = self.of(name);
        (breaker.phase() == Phase::Open).then(|| breaker.last_error())
    }

    /// A call of one part has failed, or its breaker has opened. Where parts need not be servers all may have
    /// the same fate: so all others are probed, instead of each by claims that wait in vain, and claims
    /// need a reservation in the share until all is well again.
    pub(super) fn doubt_others(&self) {
        for number in 0..SAMPLES {
            let key = format!("{number}");
            let breaker = self.of(&key);
            if !breaker.is_of_one_server() {
                breaker.doubt(&key);
            }
        }
    }

    fn get(&self, part: Part) -> Arc<Breaker> {
        if let Some(breaker) = self.breakers.read().get(part.number) {
            return Arc::clone(breaker);
        }
        let mut breakers = self.breakers.write();
        while breakers.len() <= part.number {
            let is_one_server = part.is_of_one_server;
            let alert = match is_one_server {
                true => Arc::new(Alert::new(&self.summary)),
                false => Arc::clone(&self.alert),
            };
            let breaker = Breaker::new(self.times, self.policy, is_one_server, &alert);
            breakers.push(Arc::new(breaker));
        }
        Arc::clone(&breakers[part.number])
    }

    /// Takes the outcomes of calls that were sent together then, given where each was.
    #[inline]
    pub(in crate::redis) fn observe<'a, T>(
        &self,
        outcomes: &'a [Result<T, Error>],
        sent: Instant,
        key: impl Fn(usize) -> Cow<'a, str>,
    ) {
        let all_answered = outcomes.iter().all(Result::is_ok);
        if all_answered && self.transport.is_one_server() {
            self.summary.worked(self.times.micros(sent));
        }
        if all_answered && self.summary.is_well() {
            return;
        }
        let outcomes = outcomes.iter().enumerate();
        self.judge(outcomes.map(|(at, outcome)| (key(at), outcome.as_ref().err())));
    }

    /// Takes the failure of calls that were sent together.
    #[cold]
    pub(in crate::redis) fn failed<'a>(
        &self,
        keys: impl Iterator<Item = Cow<'a, str>>,
        error: &'a Error,
    ) {
        self.judge(keys.map(|key| (key, Some(error))));
    }

    #[cold]
    fn judge<'a>(&self, outcomes: impl Iterator<Item = (Cow<'a, str>, Option<&'a Error>)>) {
        let mut by_part: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, outcome) in outcomes {
            let of_part = by_part.entry(self.transport.part_of(&key)).or_default();
            of_part.push((key, outcome));
        }
        for (part, outcomes) in &by_part {
            let outcomes = outcomes.iter();
            let outcomes = outcomes.map(|(key, outcome)| (&**key, *outcome));
            let is_first = self.get(*part).observe(outcomes);
            // Other processes may have admitted their shares by the time when a breaker opens.
            if is_first && self.policy.shares() && !part.is_of_one_server {
                self.doubt_others();
            }
        }
    }
}
