//! A breaker for each server, so that a server that is away decides for its own keys only.

use super::{breaker::Breaker, policy::WhenUnavailable, summary::Summary};
use crate::redis::{clock::Times, error::Error, transport::Transport};
use parking_lot::RwLock;
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

/// The breakers by the number of the server, after the one for keys whose server is not known. Where
/// all keys live on one server there is only that one.
pub(in crate::redis) struct Breakers {
    transport: Arc<dyn Transport>,
    times: Times,
    policy: WhenUnavailable,
    pub(super) summary: Arc<Summary>,
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
        let first = Breaker::new(times, policy, is_one_server, &summary);
        Arc::new(Self {
            transport,
            times,
            policy,
            summary,
            breakers: RwLock::new(vec![Arc::new(first)]),
        })
    }

    /// The breaker of the server that has a semaphore, or another key.
    pub(super) fn of(&self, name: &str) -> Arc<Breaker> {
        self.get(self.number(name))
    }

    pub(super) fn all(&self) -> Vec<Arc<Breaker>> {
        self.breakers.read().clone()
    }

    fn number(&self, name: &str) -> usize {
        match self.transport.is_one_server() {
            true => 0,
            false => self
                .transport
                .server_of(name)
                .map_or(0, |server| server + 1),
        }
    }

    fn get(&self, number: usize) -> Arc<Breaker> {
        if let Some(breaker) = self.breakers.read().get(number) {
            return Arc::clone(breaker);
        }
        let mut breakers = self.breakers.write();
        while breakers.len() <= number {
            let breaker = Breaker::new(self.times, self.policy, true, &self.summary);
            breakers.push(Arc::new(breaker));
        }
        Arc::clone(&breakers[number])
    }

    /// Takes the outcomes of calls that were sent together, given where each was.
    #[inline]
    pub(in crate::redis) fn observe<'a, T>(
        &self,
        outcomes: &'a [Result<T, Error>],
        key: impl Fn(usize) -> Cow<'a, str>,
    ) {
        if self.summary.is_well() && outcomes.iter().all(Result::is_ok) {
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
        let mut by_server: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (key, outcome) in outcomes {
            let of_server = by_server.entry(self.number(&key)).or_default();
            of_server.push((key, outcome));
        }
        for (number, outcomes) in &by_server {
            let outcomes = outcomes.iter();
            let outcomes = outcomes.map(|(key, outcome)| (&**key, *outcome));
            self.get(*number).observe(outcomes);
        }
    }
}
