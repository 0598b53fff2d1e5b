//! Events and spans, with the feature `tracing`. Without it `mute.rs` has the same names.

use super::{
    fault::contain,
    outcome::{LostBy, Outcome, Store},
};
use std::{error::Error, fmt};
#[cfg(feature = "redis")]
use tracing::info;
use tracing::{Level, Span, debug, enabled, info_span, warn};

/// What the events belong to, wherever in this crate they are.
const TARGET: &str = "tower_semaphore";

/// What a claim is for: remembered only while somebody wants to know the keys.
pub(crate) struct Asked(Option<(Store, Box<str>, Box<[u8]>)>);

impl Asked {
    #[inline]
    pub(crate) fn of(store: Store, policy: &str, key: &[u8]) -> Self {
        let is_wanted = enabled!(target: TARGET, Level::DEBUG);
        Self(is_wanted.then(|| (store, policy.into(), key.into())))
    }

    /// The claim is refused, by that policy if the refusal names one.
    pub(crate) fn refused(&self, by: Option<&str>, outcome: Outcome, error: &dyn Error) {
        if let Some((store, policy, key)) = &self.0 {
            let (store, policy) = (store.as_str(), by.unwrap_or(policy));
            let (key, outcome) = (key.escape_ascii().to_string(), outcome.as_str());
            let error = Causes(error);
            debug!(target: TARGET, store, policy, outcome, key, %error, "a claim is refused");
        }
    }
}

/// The store and the policy of something, which a meter knows too. By default there are none.
#[derive(Clone, Default)]
#[cfg(not(feature = "metrics"))]
pub(crate) struct Origin(Option<(Store, std::sync::Arc<str>)>);

#[cfg(not(feature = "metrics"))]
impl Origin {
    pub(crate) fn of(store: Store, policy: &str) -> Self {
        Self(Some((store, policy.into())))
    }

    pub(crate) fn get(&self) -> Option<(Store, &str)> {
        self.0.as_ref().map(|(store, policy)| (*store, &**policy))
    }
}

/// A claim in a queue. By default it is in none.
#[derive(Default)]
pub(crate) struct WaitSpan(Option<(Span, Store, Box<str>)>);

impl WaitSpan {
    pub(crate) fn begin(of: Store, policy: &str, key: impl FnOnce() -> String) -> Self {
        let (store, none) = (of.as_str(), tracing::field::Empty);
        let span = info_span!(target: TARGET, "wait", store, policy, outcome = none);
        if enabled!(target: TARGET, Level::DEBUG) {
            let key = key();
            debug!(target: TARGET, parent: &span, key, "a claim waits");
        }
        Self(Some((span, of, policy.into())))
    }

    /// Whether the claim is in the queue of that policy. One claim waits under each only once.
    #[cfg(not(feature = "metrics"))]
    pub(crate) fn is_of(&self, store: Store, policy: &str) -> bool {
        let is_it = |(_, of, known): &(Span, Store, Box<str>)| *of == store && **known == *policy;
        self.0.as_ref().is_some_and(is_it)
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        if let Some((span, ..)) = self.0.take() {
            span.record("outcome", outcome.as_str());
        }
    }
}

/// A policy in shadow would have refused a request that is admitted.
pub(crate) fn shadowed(policy: &str, outcome: Outcome) {
    let outcome = outcome.as_str();
    debug!(target: TARGET, policy, outcome, "a request in shadow would be refused");
}

pub(crate) fn lost(of: Option<(Store, &str)>, by: LostBy, token: u64) {
    contain(|| {
        if let Some((store, policy)) = of {
            let (store, by) = (store.as_str(), by.as_str());
            warn!(target: TARGET, store, policy, by, token, "a permit is lost");
        }
    });
}

/// A claim is admitted, or a permit is kept, while the store is unavailable.
#[cfg(feature = "redis")]
pub(crate) fn degraded(of: Option<(Store, &str)>, how: &'static str, name: &str) {
    contain(|| {
        if let Some((store, policy)) = of {
            let store = store.as_str();
            debug!(target: TARGET, store, policy, how, key = name, "a permit is degraded");
        }
    });
}

/// A breaker opens.
#[cfg(feature = "redis")]
pub(crate) fn unavailable(error: &dyn Error) {
    contain(|| {
        let error = Causes(error);
        warn!(target: TARGET, %error, "the store is unavailable");
    });
}

/// A breaker that was open is not any more.
#[cfg(feature = "redis")]
pub(crate) fn available() {
    contain(|| {
        info!(target: TARGET, "the store is available again");
    });
}

/// An attempt to connect has succeeded, the first one of a runtime or a later one.
#[cfg(feature = "redis")]
pub(crate) fn connected(address: &dyn fmt::Display, again: bool) {
    contain(|| match again {
        true => info!(target: TARGET, %address, "connected again"),
        false => debug!(target: TARGET, %address, "connected"),
    });
}

#[cfg(feature = "redis")]
pub(crate) fn not_connected(error: &dyn Error) {
    contain(|| {
        let error = Causes(error);
        debug!(target: TARGET, %error, "not connected");
    });
}

#[cfg(feature = "redis")]
pub(crate) fn risk(risk: &dyn fmt::Display) {
    warn!(target: TARGET, "{risk}");
}

/// An error and its causes. One that repeats its cause itself is not doubled.
struct Causes<'a>(&'a dyn Error);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, cause) = (self.0.to_string(), self.0.source());
        let cause = cause.map(|cause| Causes(cause).to_string());
        match cause.filter(|cause| !text.contains(cause)) {
            Some(cause) => write!(f, "{text}: {cause}"),
            None => f.write_str(&text),
        }
    }
}
