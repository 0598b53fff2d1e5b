//! The instruments: their names, units and labels, and the buckets of their histograms.

#[cfg(feature = "redis")]
use super::outcome::Answered;
use super::{
    outcome::{LostBy, Outcome, Store},
    recorder::{Counter, Gauge, Histogram, Kind, describe},
};

/// Requests by their outcome. Counter; labels `policy`, `outcome`.
pub const REQUESTS: &str = "tower_semaphore.requests";
/// Requests that a policy in shadow has admitted and would have refused, by the outcome that they
/// would have had. Counter; labels `policy`, `outcome`.
pub const SHADOW_REFUSALS: &str = "tower_semaphore.shadow_refusals";
/// Claims by their outcome. Counter; labels `store`, `policy`, `outcome`.
pub const CLAIMS: &str = "tower_semaphore.claims";
/// Permits that this process holds now. Gauge; labels `store`, `policy`.
pub const ACTIVE_PERMITS: &str = "tower_semaphore.active_permits";
/// Claims of this process that wait in a queue now. Gauge; labels `store`, `policy`.
pub const QUEUED_CLAIMS: &str = "tower_semaphore.queued_claims";
/// How long claims waited in a queue. Histogram in seconds; labels `store`, `policy`, `outcome`.
pub const TIME_IN_QUEUE: &str = "tower_semaphore.claim.time_in_queue";
/// How long permits were held. Histogram in seconds; labels `store`, `policy`.
pub const PERMIT_DURATION: &str = "tower_semaphore.permit.duration";
/// Permits that were lost. Counter; labels `store`, `policy`, `by`.
pub const LOST_PERMITS: &str = "tower_semaphore.lost_permits";
/// Permits that became degraded. Counter; labels `store`, `policy`.
pub const DEGRADED_PERMITS: &str = "tower_semaphore.degraded_permits";
/// How long calls to a store's server took. Histogram in seconds; labels `store`, `verb`, `outcome`.
pub const CALL_DURATION: &str = "tower_semaphore.store_call.duration";
/// Claims or permits per call to a store's server. Histogram; labels `store`, `verb`.
pub const CALL_SIZE: &str = "tower_semaphore.store_call.size";

/// Buckets for the histograms in seconds: from 0.1 ms to an hour, three to a decade up to a minute.
pub const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
];

/// Buckets for [`CALL_SIZE`]: powers of two, up to what a call to Redis holds.
pub const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The number of outcomes.
const OUTCOMES: usize = Outcome::Cancelled as usize + 1;

const OF_REQUESTS: [Outcome; OUTCOMES] = [
    Outcome::Admitted,
    Outcome::Degraded,
    Outcome::Exempt,
    Outcome::Full,
    Outcome::TimedOut,
    Outcome::QueueFull,
    Outcome::Overloaded,
    Outcome::Unavailable,
    Outcome::Closed,
    Outcome::Revoked,
    Outcome::Lost,
    Outcome::Invalid,
    Outcome::Cancelled,
];

/// The outcomes that end the time in a queue.
const OF_WAITS: [Outcome; 5] = [
    Outcome::Admitted,
    Outcome::TimedOut,
    Outcome::Unavailable,
    Outcome::Revoked,
    Outcome::Cancelled,
];

/// The instruments of a verb to a store's server.
#[cfg(feature = "redis")]
pub(super) struct Calls {
    pub(super) duration: [Histogram; 3],
    pub(super) size: Histogram,
}

/// The instruments of a policy's requests.
pub(super) struct Requests {
    pub(super) by_outcome: [Counter; OUTCOMES],
}

/// The instruments of a policy in a store.
pub(super) struct Claims {
    pub(super) store: Store,
    pub(super) policy: Box<str>,
    pub(super) by_outcome: [Counter; OUTCOMES],
    pub(super) active: Gauge,
    pub(super) queued: Gauge,
    pub(super) in_queue: [Histogram; OUTCOMES],
    pub(super) held: Histogram,
    pub(super) lost: [Counter; 3],
    #[cfg(feature = "redis")]
    pub(super) degraded: Counter,
}

impl Requests {
    pub(super) fn register(policy: &str) -> Self {
        let of = |outcome: Outcome| [("policy", policy), ("outcome", outcome.as_str())];
        let by_outcome = OF_REQUESTS.map(|outcome| Counter::of(REQUESTS, &of(outcome)));
        Self { by_outcome }
    }
}

impl Claims {
    pub(super) fn register(store: Store, policy: &str) -> Self {
        let labels = [("store", store.as_str()), ("policy", policy)];
        let with = |name, value| [labels[0], labels[1], (name, value)];
        let is_of_claims = |outcome| !matches!(outcome, Outcome::Exempt | Outcome::Lost);
        Self {
            store,
            policy: policy.into(),
            by_outcome: OF_REQUESTS.map(|outcome| match is_of_claims(outcome) {
                true => Counter::of(CLAIMS, &with("outcome", outcome.as_str())),
                false => Counter::noop(),
            }),
            active: Gauge::of(ACTIVE_PERMITS, &labels),
            queued: Gauge::of(QUEUED_CLAIMS, &labels),
            in_queue: OF_REQUESTS.map(|outcome| match OF_WAITS.contains(&outcome) {
                true => Histogram::of(TIME_IN_QUEUE, &with("outcome", outcome.as_str())),
                false => Histogram::noop(),
            }),
            held: Histogram::of(PERMIT_DURATION, &labels),
            lost: [LostBy::Lease, LostBy::Bound, LostBy::Revoked]
                .map(|by| Counter::of(LOST_PERMITS, &with("by", by.as_str()))),
            #[cfg(feature = "redis")]
            degraded: Counter::of(DEGRADED_PERMITS, &labels),
        }
    }
}

#[cfg(feature = "redis")]
impl Calls {
    pub(super) fn register(store: Store, verb: &'static str) -> Self {
        let (store, verb) = (("store", store.as_str()), ("verb", verb));
        let answered = [Answered::Ok, Answered::Timeout, Answered::Error];
        let of = |outcome: Answered| [store, verb, ("outcome", outcome.as_str())];
        Self {
            duration: answered.map(|outcome| Histogram::of(CALL_DURATION, &of(outcome))),
            size: Histogram::of(CALL_SIZE, &[store, verb]),
        }
    }
}

/// Requests that a policy in shadow would have refused with this outcome.
pub(super) fn shadow(policy: &str, outcome: Outcome) -> Counter {
    let labels = [("policy", policy), ("outcome", outcome.as_str())];
    Counter::of(SHADOW_REFUSALS, &labels)
}

const DESCRIPTIONS: [(Kind, &str, &str); 11] = [
    (Kind::Counter, REQUESTS, "Requests by their outcome"),
    (
        Kind::Counter,
        SHADOW_REFUSALS,
        "Requests that a policy in shadow would have refused, by their outcome then",
    ),
    (Kind::Counter, CLAIMS, "Claims by their outcome"),
    (
        Kind::Gauge,
        ACTIVE_PERMITS,
        "Permits that this process holds now",
    ),
    (
        Kind::Gauge,
        QUEUED_CLAIMS,
        "Claims of this process that wait in a queue now",
    ),
    (
        Kind::Seconds,
        TIME_IN_QUEUE,
        "How long claims waited in a queue",
    ),
    (Kind::Seconds, PERMIT_DURATION, "How long permits were held"),
    (Kind::Counter, LOST_PERMITS, "Permits that were lost"),
    (
        Kind::Counter,
        DEGRADED_PERMITS,
        "Permits that became degraded",
    ),
    (
        Kind::Seconds,
        CALL_DURATION,
        "How long calls to the store took",
    ),
    (
        Kind::Sizes,
        CALL_SIZE,
        "Claims or permits of a call to the store",
    ),
];

/// Describes the instruments to the recorder.
pub(super) fn describe_all() {
    DESCRIPTIONS.iter().for_each(describe);
}
