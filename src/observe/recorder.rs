//! The instruments of the crate `metrics` and its recorder. No other file names that crate, so no call bypasses the
//! boundary.
//!
//! A lookup hashes the labels and searches the recorder's table, which takes half a microsecond; acquiring a permit in
//! memory takes a tenth of that. So a thread caches the instruments of recent policies, until the recorder changes and
//! for a second at most: a recorder may forget idle instruments, and counts of a forgotten instrument are lost.

use super::{
    boundary::{Foreign, contain},
    outcome::{Answered, BudgetUse, LostBy, MetricKind, Outcome, Store},
};
use metrics::{
    Label, Recorder, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram, with_recorder,
};
use parking_lot::Mutex;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Defines the names, and how they are described to a recorder.
macro_rules! names {
    ($($describe:ident $name:ident = $value:literal: $text:literal, $labels:literal $(, $unit:expr)?;)+) => {
        $(
            #[doc = concat!($text, ". ", $labels, ".")]
            pub const $name: &str = $value;
        )+

        fn describe() {
            $(contain(|| $describe!($name, $($unit,)? $text));)+
        }
    };
}

names! {
    describe_counter REQUESTS = "tower_semaphore.requests":
        "Requests by their outcome", "Counter; labels `policy`, `outcome`";
    describe_counter SHADOW_REFUSALS = "tower_semaphore.shadow_refusals":
        "Requests that a policy in shadow would have refused, by their outcome then", "Counter; labels `policy`, `outcome`";
    describe_counter CLAIMS = "tower_semaphore.claims":
        "Claims by their outcome", "Counter; labels `store`, `policy`, `outcome`";
    describe_gauge ACTIVE_PERMITS = "tower_semaphore.active_permits":
        "Permits that this process holds now", "Gauge; labels `store`, `policy`";
    describe_gauge QUEUED_CLAIMS = "tower_semaphore.queued_claims":
        "Claims of this process that wait in a queue now", "Gauge; labels `store`, `policy`";
    describe_histogram TIME_IN_QUEUE = "tower_semaphore.claim.time_in_queue":
        "How long claims waited in a queue", "Histogram in seconds; labels `store`, `policy`, `outcome`", Unit::Seconds;
    describe_histogram PERMIT_DURATION = "tower_semaphore.permit.duration":
        "How long permits were held", "Histogram in seconds; labels `store`, `policy`", Unit::Seconds;
    describe_counter LOST_PERMITS = "tower_semaphore.lost_permits":
        "Permits that were lost", "Counter; labels `store`, `policy`, `by`";
    describe_counter DEGRADED_PERMITS = "tower_semaphore.degraded_permits":
        "Permits that became degraded", "Counter; labels `store`, `policy`";
    describe_counter PAUSES = "tower_semaphore.pauses":
        "Pauses that permits requested", "Counter; labels `store`, `policy`";
    describe_counter BUDGET_UNITS = "tower_semaphore.budget_units":
        "Units of budgets by what has become of them", "Counter; labels `store`, `policy`, `use`";
    describe_histogram CALL_DURATION = "tower_semaphore.store_call.duration":
        "How long calls to the store took", "Histogram in seconds; labels `store`, `verb`, `outcome`", Unit::Seconds;
    describe_histogram CALL_SIZE = "tower_semaphore.store_call.size":
        "Claims or permits of a call to the store", "Histogram; labels `store`, `verb`";
}

/// Buckets for the histograms in seconds: from 0.1 ms to an hour, three to a decade up to a minute.
pub const SECONDS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0,
];

/// Buckets for [`CALL_SIZE`]: powers of two, up to what a call to Redis holds.
pub const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];

/// The most policies of a process that are values of the label `policy`. All later ones share [`OTHER_POLICIES`], so
/// that policies made from requests cannot fill a recorder.
pub const MAX_POLICIES: usize = 256;

/// The value of the label `policy` for each policy beyond the first [`MAX_POLICIES`].
pub const OTHER_POLICIES: &str = "_other";

/// The policies that are labels.
static POLICIES: Mutex<BTreeSet<Box<str>>> = Mutex::new(BTreeSet::new());

fn label_of(policy: &str) -> &str {
    let mut known = POLICIES.lock();
    let has_room = known.len() < MAX_POLICIES;
    let is_label = known.contains(policy) || has_room && known.insert(policy.into());
    if is_label { policy } else { OTHER_POLICIES }
}

pub(super) type Counter = Foreign<metrics::Counter>;
pub(super) type Gauge = Foreign<metrics::Gauge>;
pub(super) type Histogram = Foreign<metrics::Histogram>;

/// Registers an instrument with these labels.
macro_rules! register {
    ($kind:ident, $name:expr, $labels:expr) => {
        Foreign::new(|| {
            let label = |(name, value): (&'static str, &str)| Label::new(name, value.to_owned());
            $kind!($name, Vec::from($labels.map(label)))
        })
    };
}

impl Counter {
    #[inline]
    pub(super) fn increment(&self) {
        self.add(1);
    }

    #[inline]
    pub(super) fn add(&self, count: u32) {
        self.with(|counter| counter.increment(count.into()));
    }
}

impl Gauge {
    /// Returns true if the recorder counted it, so that the gauge has to be decremented later.
    #[inline]
    pub(super) fn increment(&self) -> bool {
        self.with(|gauge| gauge.increment(1.0))
    }

    #[inline]
    pub(super) fn decrement(&self) {
        self.with(|gauge| gauge.decrement(1.0));
    }
}

impl Histogram {
    /// Records a number, or a time in seconds.
    #[inline]
    pub(super) fn record(&self, value: f64) {
        self.with(|histogram| histogram.record(value));
    }
}

/// The instruments of one name. Instruments that belong to another kind of name do nothing.
#[derive(Default)]
#[cfg_attr(not(feature = "redis"), allow(dead_code))]
pub(super) struct Instruments {
    pub(super) outcomes: [Counter; Outcome::ALL.len()],
    pub(super) active: Gauge,
    pub(super) held: Histogram,
    pub(super) queued: Gauge,
    pub(super) in_queue: [Histogram; Outcome::ALL.len()],
    pub(super) lost: [Counter; LostBy::ALL.len()],
    pub(super) degraded: Counter,
    pub(super) pauses: Counter,
    pub(super) budget: [Counter; BudgetUse::ALL.len()],
    pub(super) calls: [Histogram; Answered::ALL.len()],
    pub(super) size: Histogram,
}

impl Instruments {
    fn register(kind: MetricKind, name: &str) -> Self {
        match kind {
            MetricKind::Requests => Self::of_requests(REQUESTS, label_of(name)),
            MetricKind::Shadow => Self::of_requests(SHADOW_REFUSALS, label_of(name)),
            MetricKind::Claims(store) => Self::of_claims(store, label_of(name)),
            MetricKind::Budget(store) => Self::of_budget(store, label_of(name)),
            MetricKind::Calls(store) => Self::of_calls(store, name),
        }
    }

    fn of_requests(name: &'static str, policy: &str) -> Self {
        let labels = |outcome: Outcome| [("policy", policy), ("outcome", outcome.as_str())];
        Self {
            outcomes: Outcome::ALL.map(|outcome| register!(counter, name, labels(outcome))),
            ..Self::default()
        }
    }

    fn of_claims(store: Store, policy: &str) -> Self {
        use Outcome::{
            Admitted, Cancelled, Exempt, Full, KeyClosed, Lost, Paused, Revoked, TimedOut,
            Unavailable,
        };
        let labels = [("store", store.as_str()), ("policy", policy)];
        let with = |name, value| [labels[0], labels[1], (name, value)];
        Self {
            outcomes: Outcome::ALL.map(|outcome| match outcome {
                Exempt | Lost => Counter::default(),
                _ => register!(counter, CLAIMS, with("outcome", outcome.as_str())),
            }),
            active: register!(gauge, ACTIVE_PERMITS, labels),
            held: register!(histogram, PERMIT_DURATION, labels),
            queued: register!(gauge, QUEUED_CLAIMS, labels),
            in_queue: Outcome::ALL.map(|outcome| match outcome {
                Admitted | Full | KeyClosed | Paused | TimedOut | Unavailable | Revoked
                | Cancelled => {
                    register!(histogram, TIME_IN_QUEUE, with("outcome", outcome.as_str()))
                }
                _ => Histogram::default(),
            }),
            lost: LostBy::ALL.map(|by| register!(counter, LOST_PERMITS, with("by", by.as_str()))),
            degraded: register!(counter, DEGRADED_PERMITS, labels),
            pauses: register!(counter, PAUSES, labels),
            ..Self::default()
        }
    }

    fn of_budget(store: Store, policy: &str) -> Self {
        let labels = |used: BudgetUse| {
            let used = ("use", used.as_str());
            [("store", store.as_str()), ("policy", policy), used]
        };
        Self {
            budget: BudgetUse::ALL.map(|used| register!(counter, BUDGET_UNITS, labels(used))),
            ..Self::default()
        }
    }

    fn of_calls(store: Store, verb: &str) -> Self {
        let labels = [("store", store.as_str()), ("verb", verb)];
        let with = |outcome: Answered| [labels[0], labels[1], ("outcome", outcome.as_str())];
        Self {
            calls: Answered::ALL.map(|outcome| register!(histogram, CALL_DURATION, with(outcome))),
            size: register!(histogram, CALL_SIZE, labels),
            ..Self::default()
        }
    }
}

/// True if a recorder is installed. Calls none of the recorder's code.
#[cfg(feature = "redis")]
pub(crate) fn has_recorder() -> bool {
    contain(|| with_recorder(is_installed)).unwrap_or_default()
}

/// False for the default recorder of the crate `metrics`, which is a zero-sized static. An installed recorder can be
/// zero-sized too, but it is boxed, and the address of a zero-sized box equals its alignment.
#[cfg(feature = "redis")]
fn is_installed(recorder: &dyn Recorder) -> bool {
    let is_boxed = ptr::from_ref(recorder).addr() == align_of_val(recorder);
    size_of_val(recorder) > 0 || is_boxed
}

/// How long instruments are cached.
const CACHE_TIME: Duration = Duration::from_secs(1);

/// The most names that are cached; one more clears the cache. Most policies have two: for requests and for claims.
/// Searching this many is much cheaper than a lookup.
const MAX_CACHED: usize = 2 * MAX_POLICIES;

thread_local! {
    static CACHE: RefCell<Cache> = RefCell::default();
}

/// The address of the recorder that last got the descriptions of the instruments.
static DESCRIBED: AtomicUsize = AtomicUsize::new(0);

/// The instruments of one recorder that a thread has cached.
#[derive(Default)]
struct Cache {
    /// The recorder's address.
    recorder: usize,
    fresh_until: Option<Instant>,
    found: Vec<(MetricKind, Box<str>, Arc<Instruments>)>,
}

/// The instruments of a policy or a verb. A thread that is ending has no cache, and neither has a call that comes from
/// inside of a recorder.
#[inline]
pub(super) fn instruments(kind: MetricKind, name: &str, now: Instant) -> Arc<Instruments> {
    let cached = CACHE.try_with(|cache| {
        let cache = &mut *cache.try_borrow_mut().ok()?;
        cache.refresh(now);
        Some(cache.find(kind, name))
    });
    let cached = cached.ok().flatten();
    cached.unwrap_or_else(|| Arc::new(Instruments::register(kind, name)))
}

impl Cache {
    /// Empties the cache if it is old, or another recorder's.
    fn refresh(&mut self, now: Instant) {
        let address = |recorder: &dyn Recorder| ptr::from_ref(recorder).addr();
        let recorder = contain(|| with_recorder(address)).unwrap_or_default();
        let is_fresh = self.fresh_until.is_some_and(|until| now < until);
        if !is_fresh || self.recorder != recorder {
            (self.recorder, self.fresh_until) = (recorder, Some(now + CACHE_TIME));
            self.found.clear();
            if DESCRIBED.swap(recorder, Relaxed) != recorder {
                describe();
            }
        }
    }

    fn find(&mut self, kind: MetricKind, name: &str) -> Arc<Instruments> {
        let is_it =
            |(other, known, _): &&(MetricKind, Box<str>, _)| *other == kind && **known == *name;
        if let Some((.., found)) = self.found.iter().find(is_it) {
            return Arc::clone(found);
        }
        if self.found.len() >= MAX_CACHED {
            self.found.clear();
        }
        let made = Arc::new(Instruments::register(kind, name));
        self.found.push((kind, name.into(), Arc::clone(&made)));
        made
    }
}

#[cfg(all(test, feature = "redis"))]
#[test]
fn an_installed_recorder_is_noticed_even_if_it_has_no_size() {
    use metrics::{KeyName, Metadata, NoopRecorder, SharedString};

    /// A recorder without a size.
    struct Silent;

    impl Recorder for Silent {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

        fn register_counter(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Counter {
            metrics::Counter::noop()
        }

        fn register_gauge(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Gauge {
            metrics::Gauge::noop()
        }

        fn register_histogram(&self, _: &metrics::Key, _: &Metadata<'_>) -> metrics::Histogram {
            metrics::Histogram::noop()
        }
    }

    assert!(!has_recorder(), "the tests of the library install none");
    // In a leaked box, as `set_global_recorder` keeps a recorder.
    assert!(is_installed(Box::leak(Box::new(Silent))));
    assert!(is_installed(Box::leak(Box::new(Box::new(NoopRecorder)))));
}
