//! Users' recorders: which recorder counts, and the effect of a panic in a recorder.
//!
//! Promises: P25.

use super::exposition::{BOUND, Series, all, builder, install, series, sum};
use futures_util::FutureExt;
use http::{Request, Response};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::{child::child, wait::eventually};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, MemorySemaphore, Permit, Semaphore,
    observe::{ACTIVE_PERMITS, MAX_POLICIES, OTHER_POLICIES, QUEUED_CLAIMS},
};

/// A call to a recorder or to one of its instruments.
#[derive(Clone, Copy)]
pub(crate) enum RecorderCall {
    Describe,
    LookUp,
    Count(f64),
    Drop,
}

type Hook = dyn Fn(&str, RecorderCall) + Send + Sync;

/// A recorder or one of its instruments. It passes each call that it receives, with its name, to a function.
pub(crate) struct Hooked {
    name: String,
    hook: Arc<Hook>,
}

impl Hooked {
    pub(crate) fn new(hook: impl Fn(&str, RecorderCall) + Send + Sync + 'static) -> Self {
        let hook = Arc::new(hook);
        let name = String::new();
        Self { name, hook }
    }

    fn report(&self, call: RecorderCall) {
        (self.hook)(&self.name, call);
    }

    fn instrument(&self, key: &Key) -> Arc<Self> {
        (self.hook)(key.name(), RecorderCall::LookUp);
        let (name, hook) = (key.name().to_owned(), Arc::clone(&self.hook));
        Arc::new(Self { name, hook })
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        self.report(RecorderCall::Drop);
    }
}

impl CounterFn for Hooked {
    fn increment(&self, by: u64) {
        self.report(RecorderCall::Count(by as f64));
    }

    fn absolute(&self, value: u64) {
        self.report(RecorderCall::Count(value as f64));
    }
}

impl GaugeFn for Hooked {
    fn increment(&self, by: f64) {
        self.report(RecorderCall::Count(by));
    }

    fn decrement(&self, by: f64) {
        self.report(RecorderCall::Count(-by));
    }

    fn set(&self, value: f64) {
        self.report(RecorderCall::Count(value));
    }
}

impl HistogramFn for Hooked {
    fn record(&self, value: f64) {
        self.report(RecorderCall::Count(value));
    }
}

impl Recorder for Hooked {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.report(RecorderCall::Describe);
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.report(RecorderCall::Describe);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        self.report(RecorderCall::Describe);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.instrument(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.instrument(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.instrument(key))
    }
}

fn value(text: &str, name: &str) -> f64 {
    let series = series(text).into_iter();
    let is_it = |it: &Series| it.name == name;
    series.filter(is_it).map(|it| it.value).sum()
}

fn granted(text: &str) -> f64 {
    value(text, "tower_semaphore_claims_total")
}

async fn acquire(store: &impl Semaphore, policy: &str) -> Permit {
    let claim = Claim::new("a").with_limit(9).with_policy(policy.to_owned());
    store.acquire(claim).await.expect("there is room")
}

#[tokio::test]
async fn a_recorder_that_is_installed_later_counts_from_then_on() {
    let store = MemorySemaphore::new();
    drop(acquire(&store, "recorders").await);
    let recorder = builder().build_recorder();
    let text = recorder.handle();
    let guard = metrics::set_default_local_recorder(&recorder);
    let permit = acquire(&store, "recorders").await;
    drop(guard);
    assert_eq!(granted(&text.render()), 1.0);
    assert!(text.render().contains("recorders\"} 1"));
    // The end of a permit counts in the recorder that counted its start.
    drop(permit);
    let active = value(&text.render(), "tower_semaphore_active_permits");
    assert_eq!(active, 0.0);
}

/// A recorder that removes idle metrics gets a new instrument when the metric counts again. Also tests exempt requests:
/// without a claim, only the layer looks up instruments.
#[tokio::test]
async fn a_metric_that_a_recorder_removed_while_idle_counts_again() {
    let idle = Some(Duration::from_millis(10));
    let all = metrics_util::MetricKindMask::ALL;
    let store = MemorySemaphore::new();
    let exempt = |_: &http::request::Parts| None::<Claim>;
    let service = ConcurrencyLimitLayer::new(1, exempt, store.clone()).layer(service_fn(
        async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())),
    ));
    for is_exempt in [false, true] {
        let recorder = builder().idle_timeout(all, idle).build_recorder();
        let text = recorder.handle();
        let _guard = metrics::set_default_local_recorder(&recorder);
        let count_one = async || {
            if is_exempt {
                drop(service.clone().oneshot(Request::new(String::new())).await);
            } else {
                drop(acquire(&store, "idle").await);
            }
        };
        let is_counted = || series(&text.render()).iter().any(|it| it.value > 0.0);
        count_one().await;
        assert!(is_counted(), "{is_exempt}");
        eventually("it is forgotten", BOUND, async || !is_counted()).await;
        eventually("it counts again", BOUND, async || {
            count_one().await;
            is_counted()
        })
        .await;
    }
}

/// Asserts that an ignored test passes in a separate process, because policies count for the life of their process.
fn assert_passes_alone(test: &str) {
    let status = child(module_path!(), test).status();
    assert!(status.expect("it starts").success());
}

#[test]
fn the_instruments_of_two_hundred_policies_are_not_looked_up_for_each_claim() {
    assert_passes_alone("a_process_of_two_hundred_policies");
}

#[test]
fn policies_beyond_the_bound_share_a_label_and_are_counted() {
    assert_passes_alone("a_process_of_more_policies_than_labels");
}

#[tokio::test]
#[ignore = "another test starts it as a process of its own"]
async fn a_process_of_more_policies_than_labels() {
    const MORE: usize = 50;
    install();
    let store = MemorySemaphore::new();
    let mut held = Vec::new();
    for policy in 0..MAX_POLICIES + MORE {
        held.push(acquire(&store, &policy.to_string()).await);
    }
    let all = all();
    let name = "tower_semaphore_active_permits";
    let labels = all.iter().filter(|series| series.name == name);
    let labels = labels.filter_map(|series| series.labels.get("policy"));
    assert_eq!(labels.collect::<BTreeSet<_>>().len(), MAX_POLICIES + 1);
    let active = |policy: &str| sum(&all, name, &[("policy", policy)]);
    assert_eq!((active("0"), active(OTHER_POLICIES)), (1.0, MORE as f64));
}

/// A gateway may have one policy for each route. A looked-up instrument is used for a second at most, so a round may
/// look up some again.
#[tokio::test]
#[ignore = "another test starts it as a process of its own"]
async fn a_process_of_two_hundred_policies() {
    let looked_up = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looked_up);
    let recorder = Hooked::new(move |_, call| {
        counted.fetch_add(usize::from(matches!(call, RecorderCall::LookUp)), Relaxed);
    });
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let round = async || {
        let before = looked_up.load(Relaxed);
        for policy in 0..200 {
            drop(acquire(&store, &policy.to_string()).await);
        }
        looked_up.load(Relaxed) - before
    };
    assert!(round().await > 0);
    eventually("all are known", BOUND, async || round().await == 0).await;
}

/// A recorder whose gauge of this name panics the first time that it is incremented, and the gauge's value.
fn panicking_gauge(name: &'static str) -> (Arc<AtomicIsize>, Hooked) {
    let (shown, has_panicked) = (Arc::new(AtomicIsize::new(0)), AtomicBool::new(false));
    let value = Arc::clone(&shown);
    let recorder = Hooked::new(move |gauge, call| match call {
        RecorderCall::Count(by) if gauge == name => {
            let is_counted = by < 0.0 || has_panicked.swap(true, Relaxed);
            assert!(is_counted, "planted: the recorder panics");
            value.fetch_add(by as isize, Relaxed);
        }
        _ => {}
    });
    (shown, recorder)
}

#[tokio::test]
async fn a_claim_whose_recorder_panics_keeps_its_place_in_the_queue() {
    let (shown, recorder) = panicking_gauge(QUEUED_CLAIMS);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let claim = || Claim::new("a").with_limit(1);
    let waiting = || store.acquire(claim().with_wait(BOUND));
    let held = store.acquire(claim()).await.expect("there is room");
    let (first, mut second) = (waiting(), waiting());
    let shows = shown.load(Relaxed);
    assert_eq!(shows, 1, "the call that panicked is not counted");
    assert!((&mut second).now_or_never().is_none());
    drop(held);
    let first = first.now_or_never().expect("it is the head of the queue");
    drop(first.expect("there is room"));
    drop(second.await.expect("it is the next"));
    assert_eq!((store.busy_keys(), shown.load(Relaxed)), (0, 0));
}

/// The permit's levels are counted one after the other.
#[tokio::test]
async fn claims_whose_recorder_panics_at_one_limit_hold_both() {
    let (shown, recorder) = panicking_gauge(ACTIVE_PERMITS);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let claim = |policy| Claim::new("a").with_limit(1).with_policy(policy);
    let both = store.acquire_all([claim("narrow"), claim("wide")].into());
    let both = both.await.expect("there is room at both");
    assert_eq!((store.busy_keys(), shown.load(Relaxed)), (2, 1));
    drop(both);
    assert_eq!((store.busy_keys(), shown.load(Relaxed)), (0, 0));
}
