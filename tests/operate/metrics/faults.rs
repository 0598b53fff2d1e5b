//! A recorder that panics where a store tells of what it does.

use http::{Request, Response};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};
use testing::redis::RedisServer;
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, MemorySemaphore, Operate, Permit, RedisSemaphore, Semaphore, key,
    observe::{CALL_DURATION, CALL_SIZE, LOST_PERMITS, PERMIT_DURATION},
};

const BOUND: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_millis(900);

/// Panics wherever it counts one of these, which is a fault of the user's.
struct Panicking(&'static [&'static str], Arc<Panics>);

/// How often it has.
#[derive(Default)]
struct Panics(AtomicUsize);

impl Panicking {
    fn of(names: &'static [&'static str]) -> Self {
        Self(names, Arc::default())
    }

    fn has(&self, key: &Key) -> bool {
        self.0.contains(&key.name())
    }

    fn panics(&self) -> usize {
        self.1.0.load(Relaxed)
    }
}

impl Panics {
    fn panic(&self) {
        self.0.fetch_add(1, Relaxed);
        panic!("a recorder's own");
    }
}

impl CounterFn for Panics {
    fn increment(&self, _: u64) {
        self.panic();
    }

    fn absolute(&self, _: u64) {}
}

impl HistogramFn for Panics {
    fn record(&self, _: f64) {
        self.panic();
    }
}

impl Recorder for Panicking {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.has(key) {
            true => Counter::from_arc(Arc::clone(&self.1)),
            false => Counter::noop(),
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        match self.has(key) {
            true => Histogram::from_arc(Arc::clone(&self.1)),
            false => Histogram::noop(),
        }
    }
}

async fn acquire(store: &impl Semaphore, key: &'static str) -> Permit {
    let claim = Claim::new(key).with_limit(1);
    store.acquire(claim).await.expect("there is room")
}

/// Revokes the only permit of a key.
async fn revoke(store: &impl Operate, key: &'static str) {
    let (policy, key) = ("concurrency".into(), key.into());
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("it answers"), "it is held");
}

async fn is_told(permit: &Permit) {
    let lost = timeout(BOUND, permit.lost()).await;
    lost.expect("it is told of its loss");
}

async fn store(server: &RedisServer) -> RedisSemaphore {
    let store = RedisSemaphore::builder().lease(LEASE);
    store.connect(server.url()).await.expect("it connects")
}

/// Permits of others would not be refreshed any more, and none of them would be told.
#[tokio::test]
async fn a_process_whose_recorder_panics_at_a_revocation_keeps_its_other_permits() {
    let server = RedisServer::start();
    let recorder = Panicking::of(&[LOST_PERMITS]);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = store(&server).await;
    let (revoked, kept) = (acquire(&store, "a").await, acquire(&store, "b").await);
    revoke(&store, "a").await;
    is_told(&revoked).await;
    tokio::time::sleep(LEASE * 2).await;
    assert!(!kept.is_lost());
    assert!(kept.release().await, "it was not refreshed");

    // Nor is one that is granted afterwards kept in the belief that it is held.
    let later = acquire(&store, "c").await;
    revoke(&store, "c").await;
    is_told(&later).await;
}

#[tokio::test]
async fn a_process_whose_recorder_panics_at_each_call_acquires_and_releases() {
    let server = RedisServer::start();
    let recorder = Panicking::of(&[CALL_DURATION, CALL_SIZE]);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = store(&server).await;
    let permit = timeout(BOUND, acquire(&store, "a")).await;
    assert!(recorder.panics() > 0);
    permit.expect("it is answered").release().await;
    let permit = acquire(&store, "a").await;
    assert!(!permit.is_lost());
}

#[tokio::test]
async fn a_permit_whose_recorder_panics_at_its_revocation_is_lost_and_free() {
    let recorders = [&[LOST_PERMITS], &[PERMIT_DURATION]].map(|names| Panicking::of(names));
    for recorder in &recorders {
        let _guard = metrics::set_default_local_recorder(recorder);
        let store = MemorySemaphore::builder().holders(true).build();
        let permit = acquire(&store, "a").await;
        revoke(&store, "a").await;
        assert_eq!((recorder.panics(), permit.is_lost()), (1, true));
        assert_eq!(store.busy_keys(), 0);
    }
}

#[tokio::test]
async fn a_permit_whose_recorder_panics_at_its_longest_hold_is_lost_as_those_after_it_are() {
    let recorder = Panicking::of(&[LOST_PERMITS]);
    let _guard = metrics::set_default_local_recorder(&recorder);
    let store = MemorySemaphore::new();
    let service = service_fn(async |request: Request<()>| {
        let permit = request.extensions().get::<Permit>();
        permit.expect("the layer puts it there").lost().await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let limit = ConcurrencyLimitLayer::new(1, key::fixed("a"), store.clone());
    let service = limit.with_max_hold(LEASE).layer(service);
    for panics in 1..=2 {
        let answer = service.clone().oneshot(Request::new(()));
        let answer = timeout(BOUND, answer).await;
        let Ok(_) = answer.expect("its permit is lost");
        assert_eq!((recorder.panics(), store.busy_keys()), (panics, 0));
    }
}
