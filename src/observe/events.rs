//! Events and spans, with the feature `tracing`. Without it `mute.rs` has the same names.

use super::{
    outcome::{LostBy, Outcome, Store},
    subscriber::{Wait, is_debug, tell},
};
use std::{error::Error, fmt};

/// The key of a claim, kept only while a subscriber records keys.
pub(crate) struct Asked(Option<(Store, Box<str>, Box<[u8]>)>);

impl Asked {
    #[inline]
    pub(crate) fn of(store: Store, policy: &str, key: &[u8]) -> Self {
        Self(is_debug().then(|| (store, policy.into(), key.into())))
    }

    /// The claim is refused, by that policy if the refusal names one.
    pub(crate) fn refused(&self, by: Option<&str>, outcome: Outcome, error: &dyn Error) {
        if let Some((store, policy, key)) = &self.0 {
            let (store, policy) = (store.as_str(), by.unwrap_or(policy));
            let (key, outcome) = (key.escape_ascii().to_string(), outcome.as_str());
            let error = Causes(error);
            tell!(DEBUG, store, policy, outcome, key, %error, "a claim is refused");
        }
    }
}

/// A store and a policy, from a meter. By default none.
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

/// A claim in a queue. By default in none.
#[derive(Default)]
pub(crate) struct WaitSpan(Option<(Wait, Store, Box<str>)>);

impl WaitSpan {
    pub(crate) fn begin(store: Store, policy: &str, key: impl FnOnce() -> String) -> Self {
        let span = Wait::begin(store.as_str(), policy);
        if is_debug() {
            span.waits(&key());
        }
        Self(Some((span, store, policy.into())))
    }

    /// Whether the claim is in this policy's queue. A claim waits under each policy only once.
    #[cfg(not(feature = "metrics"))]
    pub(crate) fn is_of(&self, store: Store, policy: &str) -> bool {
        let is_it = |(_, of, known): &(Wait, Store, Box<str>)| *of == store && **known == *policy;
        self.0.as_ref().is_some_and(is_it)
    }

    pub(crate) fn end(&mut self, outcome: Outcome) {
        if let Some((span, ..)) = self.0.take() {
            span.end(outcome);
        }
    }
}

/// A policy in shadow would have refused a request that is admitted.
pub(crate) fn shadowed(policy: &str, outcome: Outcome) {
    let outcome = outcome.as_str();
    tell!(
        DEBUG,
        policy,
        outcome,
        "a request in shadow would be refused"
    );
}

/// A request has no key, because the client sent none or a malformed one.
pub(crate) fn without_key(policy: &str, error: &dyn Error) {
    tell!(DEBUG, policy, %error, "a request is refused without a key");
}

/// A request has no key, because the service provides none.
pub(crate) fn forgotten(policy: &str, extension: &str) {
    tell!(
        ERROR,
        policy,
        extension,
        "requests have no key because the service does not provide it: apply the layer that inserts \
         this extension outside of the limit (in axum: after it), and serve an axum router with \
         into_make_service_with_connect_info for the peer's address"
    );
}

/// Two limits count the same request in the same semaphore.
pub(crate) fn nested(policy: &str, outer: u32, inner: u32) {
    tell!(
        ERROR,
        policy,
        outer,
        inner,
        "two nested limits have one store, policy and key, so they count each request once, under the lower \
         limit: give one of them a policy of its own with with_policy"
    );
}

/// A service of a global limit is still not ready.
pub(crate) fn waits_long(seconds: u64) {
    tell!(
        WARN,
        seconds,
        "a service waits long for the permit of its global limit: if a limit outside of it, behind a buffer, has \
         the same store, policy and key, it waits for its own request, so give one of them a policy of its own \
         with with_policy"
    );
}

/// The first of several extractors found nothing, as if the client had sent no key.
pub(crate) fn no_extension(extension: &str) {
    tell!(
        DEBUG,
        extension,
        "a request has no such extension, so the next extractor counts"
    );
}

#[cfg(feature = "axum")]
pub(crate) fn no_route() {
    tell!(
        WARN,
        "a request has no route for key::matched_path: unless it was for an unknown path or a nested \
         service, apply the limit to axum's Router instead of around it"
    );
}

pub(crate) fn lost(of: Option<(Store, &str)>, by: LostBy, token: Option<u64>) {
    if let Some((store, policy)) = of {
        let (store, by) = (store.as_str(), by.as_str());
        tell!(WARN, store, policy, by, token, "a permit is lost");
    }
}

/// A claim is admitted, or a permit is kept, while the store is unavailable.
#[cfg(feature = "redis")]
pub(crate) fn degraded(of: Option<(Store, &str)>, how: &'static str, name: &str) {
    if let Some((store, policy)) = of {
        let store = store.as_str();
        tell!(
            DEBUG,
            store,
            policy,
            how,
            key = name,
            "a permit is degraded"
        );
    }
}

/// A period in which claims fail begins.
#[cfg(feature = "redis")]
pub(crate) fn fails(error: &dyn Error) {
    let error = Causes(error);
    tell!(WARN, %error, "the store fails");
}

/// The period in which claims fail is over.
#[cfg(feature = "redis")]
pub(crate) fn works() {
    tell!(WARN, "the store works again");
}

/// Events and samples of calls were dropped before a subscriber or a recorder took them.
pub(crate) fn dropped(count: u64) {
    tell!(
        WARN,
        count,
        "events were dropped, because they came faster than they were taken"
    );
}

/// A bug of this crate has ended the keeper's thread.
pub(crate) fn keeper_died() {
    tell!(
        ERROR,
        "the keeper's thread has panicked, and is started again"
    );
}

/// A bug of this crate has ended a store.
pub(crate) fn core_died() {
    tell!(
        ERROR,
        "the store has panicked: it refuses claims, and its permits end with their leases"
    );
}

/// An attempt to connect has succeeded, the first one of a runtime or a later one.
#[cfg(feature = "redis")]
pub(crate) fn connected(address: &dyn fmt::Display, again: bool) {
    match again {
        true => tell!(INFO, %address, "connected again"),
        false => tell!(DEBUG, %address, "connected"),
    }
}

#[cfg(feature = "redis")]
pub(crate) fn not_connected(error: &dyn Error) {
    let error = Causes(error);
    tell!(DEBUG, %error, "not connected");
}

#[cfg(feature = "redis")]
pub(crate) fn risk(risk: &dyn fmt::Display) {
    tell!(WARN, "{risk}");
}

/// An error and its causes, without repeating a cause that an error already shows.
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
