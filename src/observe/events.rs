//! Events and spans, for the subscriber of the crate `tracing`. No other file names that crate, so no call to the
//! subscriber bypasses `boundary`, which contains its panics. Without the feature `tracing` they compile to nothing.

#![cfg_attr(not(feature = "tracing"), allow(dead_code, unused_variables))]

#[cfg(feature = "tracing")]
use super::boundary::{Foreign, contain};
use super::outcome::{LostBy, Outcome, Store};
use std::error::Error;
#[cfg(feature = "redis")]
use std::fmt::Display;
#[cfg(feature = "tracing")]
use tracing::{Level, Span, debug, enabled, event, field::Empty, info_span};

/// The target of all events and spans of this crate.
#[cfg(feature = "tracing")]
const TARGET: &str = "tower_semaphore";

/// Defines one function per event: the event's level, the function's arguments, and the arguments of `tracing::event!`.
macro_rules! events {
    ($($(#[$doc:meta])* $level:ident $name:ident($($arg:ident: $type:ty),*) { $($event:tt)+ })+) => {$(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($arg: $type),*) {
            #[cfg(feature = "tracing")]
            contain(|| event!(target: TARGET, Level::$level, $($event)+));
        }
    )+};
}

events! {
    /// A policy in shadow would have refused a request that is admitted.
    DEBUG shadowed(policy: &str, outcome: Outcome) {
        policy, outcome = outcome.as_str(), "a request in shadow would be refused"
    }

    /// A request has no key, because the client sent none or a malformed one.
    DEBUG without_key(policy: &str, error: &dyn Error) { policy, %error, "a request is refused without a key" }

    /// A request has no key, because the service provides none.
    ERROR missing_extension(policy: &str, extension: &str) {
        policy, extension,
        "requests have no key because the service does not provide it: apply the layer that inserts \
         this extension outside of the limit (in axum: after it); for the peer's address serve an axum router with \
         into_make_service_with_connect_info, and enable the feature tonic for a server of tonic"
    }

    /// Two limits count the same request in the same semaphore.
    ERROR nested(policy: &str, limit: u32, outer_policy: &str, outer_limit: u32) {
        policy, limit, outer_policy, outer_limit,
        "requests are refused because a limit outside counts them in the same semaphore (store, policy and key): give \
         one of the two limits a policy of its own with with_policy"
    }

    /// A response that opens a tunnel has ended its body, and no handler holds the permit.
    WARN unheld_tunnel(policy: &str) {
        policy,
        "a WebSocket, another upgrade or a CONNECT tunnel is not limited, because its permit has ended with the \
         response's empty body: move the Permit from the request's extensions into the task of the connection, \
         before hyper::upgrade::on takes the request"
    }

    /// A response asks for a pause, and its request holds no permit of the policy that should be paused.
    ERROR cooldown_without_permit(policy: &str) {
        policy,
        "a response with Retry-After pauses nothing, because its request holds no permit under the policy of \
         with_cooldown: give with_cooldown the policy of the limit, or of one of the request's claims"
    }

    /// A store has failed to pause a key.
    WARN not_paused(policy: &str, error: &dyn Error) {
        policy, error = causes(error), "the Retry-After of a response may pause nothing, because the store has failed"
    }

    /// A response is returned before the store has answered its pause.
    WARN pause_is_late(policy: &str) {
        policy, "a response with Retry-After is returned before the store has answered its pause, which goes on"
    }

    /// A service of a global limit is still not ready.
    WARN waits_long(seconds: u64) {
        seconds,
        "a service waits long for the permit of its global limit: if a limit outside of it has the same store, \
         policy and key, it waits for its own request, so give one of the two limits a policy of its own with \
         with_policy"
    }

    /// An extractor of `key::first_of` found no extension. Like a key that the client did not send, this lets the next
    /// extractor look.
    DEBUG no_extension(extension: &str) { extension, "a request has no such extension, so the next extractor counts" }

    /// A request has no matched path, although its extractor is `key::matched_path`.
    #[cfg(feature = "axum")]
    WARN no_route() {
        "a request has no route for key::matched_path: unless it was for an unknown path or a nested \
         service, apply the limit to axum's Router instead of around it"
    }

    /// A permit has ended while it was held.
    WARN lost(store: Store, policy: &str, by: LostBy, token: Option<u64>) {
        store = store.as_str(), policy, by = by.as_str(), token, "a permit is lost"
    }

    /// A store has refused a claim, whose key is known.
    DEBUG refused(store: Store, policy: &str, outcome: Outcome, key: &str, error: &dyn Error) {
        store = store.as_str(), policy, outcome = outcome.as_str(), key, error = causes(error), "a claim is refused"
    }
}

#[cfg(feature = "redis")]
events! {
    /// A claim is admitted, or a permit is kept, while the store is unavailable.
    DEBUG degraded(store: Store, policy: &str, how: &str, name: &str) {
        store = store.as_str(), policy, how, key = name, "a permit is degraded"
    }

    /// A period in which claims fail begins.
    WARN fails(error: &dyn Error) { error = causes(error), "the store fails" }

    /// The server has lost the limits of operators that this process knew.
    WARN limits_lost() {
        "limits that operators had set are lost, because the server has lost data: what it has now is in force"
    }

    /// A server does not report the limits of operators to this process, for example because its user has no right to
    /// read them.
    WARN limits_untold() {
        "the server does not tell the limits that operators set, as without a right to them: those known stay in force"
    }

    /// The period in which claims fail is over.
    WARN works() { "the store works again" }

    /// Events and samples of calls were dropped before a subscriber or a recorder took them.
    WARN dropped(count: u64) { count, "events were dropped, because they came faster than they were taken" }

    /// A bug of this crate has ended the keeper's thread.
    ERROR keeper_died() { "the keeper's thread has panicked, and is started again" }

    /// A bug of this crate has ended a store.
    ERROR core_died() { "the store has panicked: it refuses claims, and its permits end with their leases" }

    /// The first attempt of a runtime to connect has succeeded.
    DEBUG connected(address: &dyn Display) { %address, "connected" }

    /// A later attempt to connect has succeeded.
    INFO connected_again(address: &dyn Display) { %address, "connected again" }

    /// An attempt to connect has failed.
    DEBUG not_connected(error: &dyn Error) { error = causes(error), "not connected" }

    /// The server has a setting under which permits may be lost.
    WARN risk(risk: &dyn Display) { "{risk}" }
}

/// An error and its causes, without repeating a cause that an error already shows.
#[cfg(feature = "tracing")]
fn causes(error: &dyn Error) -> tracing::field::DisplayValue<String> {
    fn text(error: &dyn Error) -> String {
        let (own, cause) = (error.to_string(), error.source().map(text));
        match cause.filter(|cause| !own.contains(cause)) {
            Some(cause) => format!("{own}: {cause}"),
            None => own,
        }
    }
    tracing::field::display(text(error))
}

/// True if a subscriber records keys.
#[cfg(feature = "tracing")]
fn is_debug() -> bool {
    contain(|| enabled!(target: TARGET, Level::DEBUG)).unwrap_or_default()
}

/// The store, the policy and the key of a claim, kept only while a subscriber records keys.
pub(crate) struct RecordedKey(#[cfg(feature = "tracing")] Option<(Store, Box<str>, Box<[u8]>)>);

impl RecordedKey {
    #[inline]
    pub(crate) fn new(store: Store, policy: &str, key: &[u8]) -> Self {
        #[cfg(feature = "tracing")]
        return Self(is_debug().then(|| (store, policy.into(), key.into())));
        #[cfg(not(feature = "tracing"))]
        Self()
    }

    /// Emits the refusal of the claim, by the policy `by` if the refusal names one.
    pub(crate) fn refused(&self, by: Option<&str>, outcome: Outcome, error: &dyn Error) {
        #[cfg(feature = "tracing")]
        if let Some((store, policy, key)) = &self.0 {
            let key = key.escape_ascii().to_string();
            refused(*store, by.unwrap_or(policy), outcome, &key, error);
        }
    }
}

/// The span of a claim in a queue.
pub(super) struct WaitSpan(#[cfg(feature = "tracing")] Foreign<Span>);

impl WaitSpan {
    pub(super) fn begin(store: Store, policy: &str, key: impl FnOnce() -> String) -> Self {
        #[cfg(feature = "tracing")]
        return Self::new(store.as_str(), policy, key);
        #[cfg(not(feature = "tracing"))]
        Self()
    }

    #[cfg(feature = "tracing")]
    fn new(store: &str, policy: &str, key: impl FnOnce() -> String) -> Self {
        let span = || info_span!(target: TARGET, "wait", store, policy, outcome = Empty);
        let span = Foreign::new(span);
        if is_debug() {
            let key = key();
            span.with(|span| debug!(target: TARGET, parent: span, key, "a claim waits"));
        }
        Self(span)
    }

    pub(super) fn end(&self, outcome: Outcome) {
        #[cfg(feature = "tracing")]
        self.0.with(|span| {
            span.record("outcome", outcome.as_str());
        });
    }
}

#[cfg(feature = "tracing")]
#[cfg(test)]
mod tests {
    use super::causes;
    use std::{error::Error, fmt};

    /// Contains its cause in its own text, like the errors of many libraries.
    #[derive(Debug)]
    struct NoWay(fmt::Error);

    impl fmt::Display for NoWay {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "no way: {}", self.0)
        }
    }

    impl Error for NoWay {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn a_cause_that_an_error_contains_is_shown_once() {
        let error = NoWay(fmt::Error);
        assert_eq!(causes(&error).to_string(), error.to_string());
    }
}
