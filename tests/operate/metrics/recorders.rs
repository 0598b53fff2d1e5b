//! Which recorder counts.

use super::exposition::{Series, builder, series};
use futures_util::FutureExt;
use http::{Request, Response};
use metrics::{
    Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};
use metrics_exporter_prometheus::PrometheusRecorder;
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::wait::eventually;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, MemorySemaphore, Semaphore,
    observe::{ACTIVE_PERMITS, QUEUED_CLAIMS},
};

fn granted(text: &str) -> f64 {
    let series = series(text).into_iter();
    let is_it = |it: &Series| it.name == "tower_semaphore_claims_total";
    series.filter(is_it).map(|it| it.value).sum()
}

async fn acquire(store: &MemorySemaphore) -> tower_semaphore::Permit {
    let claim = Claim::new("a").with_limit(9).with_policy("recorders");
    store.acquire(claim).await.expect("there is room")
}

#[tokio::test]
async fn a_recorder_that_is_installed_later_counts_from_then_on() {
    let store = MemorySemaphore::new();
    drop(acquire(&store).await);
    let recorder: PrometheusRecorder = builder().build_recorder();
    let text = recorder.handle();
    let guard = metrics::set_default_local_recorder(&recorder);
    let permit = acquire(&store).await;
    drop(guard);
    assert_eq!(granted(&text.render()), 1.0);
    assert!(text.render().contains("recorders\"} 1"));
    // The end of a permit counts where its beginning did.
    drop(permit);
    let active = series(&text.render()).into_iter();
    let mut active = active.filter(|it| it.name == "tower_semaphore_active_permits");
    assert_eq!(active.next().expect("it is there").value, 0.0);
}

/// A recorder that forgets what is idle gets a new instrument when there is something to count again.
#[tokio::test]
async fn what_a_recorder_forgets_while_it_is_idle_counts_again() {
    let idle = Duration::from_millis(10);
    let all = metrics_util::MetricKindMask::ALL;
    let recorder = builder().idle_timeout(all, Some(idle)).build_recorder();
    let text = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    drop(acquire(&store).await);
    assert_eq!(granted(&text.render()), 1.0);
    eventually("it is forgotten", Duration::from_secs(20), async || {
        granted(&text.render()) == 0.0
    })
    .await;
    eventually("it counts again", Duration::from_secs(20), async || {
        drop(acquire(&store).await);
        granted(&text.render()) > 0.0
    })
    .await;
}

/// Nothing but requests counts there, because none of them makes a claim.
#[tokio::test]
async fn exempt_requests_count_again_after_a_recorder_has_forgotten_them() {
    let bound = Duration::from_secs(20);
    let idle = Some(Duration::from_millis(10));
    let all = metrics_util::MetricKindMask::ALL;
    let recorder = builder().idle_timeout(all, idle).build_recorder();
    let text = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let exempt = |_: &http::request::Parts| None::<Claim>;
    let service = ConcurrencyLimitLayer::new(1, exempt, MemorySemaphore::new()).layer(service_fn(
        async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())),
    ));
    let counted = || series(&text.render()).iter().any(|it| it.value > 0.0);
    let Ok(_) = service.clone().oneshot(Request::new(())).await;
    assert!(counted());
    eventually("it is forgotten", bound, async || !counted()).await;
    eventually("it counts again", bound, async || {
        let Ok(_) = service.clone().oneshot(Request::new(())).await;
        counted()
    })
    .await;
}

/// Counts what is looked up.
#[derive(Default)]
struct Lookups(AtomicUsize);

impl Recorder for Lookups {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.0.fetch_add(1, Relaxed);
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A gateway may have one for each route. What is looked up counts for a second at most.
#[tokio::test]
async fn the_instruments_of_two_hundred_policies_are_not_looked_up_for_each_claim() {
    let recorder = Lookups::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let round = async || {
        let before = recorder.0.load(Relaxed);
        for policy in 0..200 {
            let claim = Claim::new("a")
                .with_limit(1)
                .with_policy(policy.to_string());
            drop(store.acquire(claim).await.expect("there is room"));
        }
        recorder.0.load(Relaxed) - before
    };
    assert!(round().await > 0);
    eventually("all are known", Duration::from_secs(20), async || {
        round().await == 0
    })
    .await;
}

/// What a gauge shows that panics the first time that it is incremented, which is a fault of the user's.
#[derive(Default)]
struct Shown {
    value: AtomicIsize,
    has_panicked: AtomicBool,
}

impl GaugeFn for Shown {
    fn increment(&self, _: f64) {
        assert!(self.has_panicked.swap(true, Relaxed), "a recorder's own");
        self.value.fetch_add(1, Relaxed);
    }

    fn decrement(&self, _: f64) {
        self.value.fetch_sub(1, Relaxed);
    }

    fn set(&self, _: f64) {}
}

/// Panics at the first increment of the gauge of this name.
struct Panicking(&'static str, Arc<Shown>);

impl Panicking {
    fn at(name: &'static str) -> Self {
        Self(name, Arc::default())
    }

    fn shows(&self) -> isize {
        assert!(self.1.has_panicked.load(Relaxed));
        self.1.value.load(Relaxed)
    }
}

impl Recorder for Panicking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match key.name() == self.0 {
            true => Gauge::from_arc(Arc::clone(&self.1)),
            false => Gauge::noop(),
        }
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn a_claim_whose_recorder_panics_keeps_its_place_in_the_queue() {
    let recorder = Panicking::at(QUEUED_CLAIMS);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let claim = || Claim::new("a").with_limit(1);
    let waiting = || store.acquire(claim().with_wait(Duration::from_secs(20)));
    let held = store.acquire(claim()).await.expect("there is room");
    let (first, mut second) = (waiting(), waiting());
    assert_eq!(
        recorder.shows(),
        1,
        "what it has panicked at is not counted"
    );
    assert!((&mut second).now_or_never().is_none());
    drop(held);
    let first = first.now_or_never().expect("it is the head of the queue");
    drop(first.expect("there is room"));
    drop(second.await.expect("it is the next"));
    assert_eq!((store.busy_keys(), recorder.shows()), (0, 0));
}

/// The permits of several limits are made one after the other.
#[tokio::test]
async fn claims_whose_recorder_panics_at_one_limit_hold_both() {
    let recorder = Panicking::at(ACTIVE_PERMITS);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let claim = |policy| Claim::new("a").with_limit(1).with_policy(policy);
    let both = store.acquire_all([claim("narrow"), claim("wide")].into());
    let both = both.await.expect("there is room at both");
    assert_eq!((store.busy_keys(), recorder.shows()), (2, 1));
    drop(both);
    assert_eq!((store.busy_keys(), recorder.shows()), (0, 0));
}
