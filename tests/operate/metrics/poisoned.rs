//! A user's recorder and subscriber whose lock is poisoned, so that each call into them panics, even in drops and while
//! a thread unwinds. A panic while unwinding aborts the process if the library lets it through, so the test runs in a
//! separate process.
//!
//! Promises: P11, P25.

use super::recorders::Hooked;
use bytes::Bytes;
use futures_util::{
    FutureExt,
    stream::{Iter, iter},
};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use std::{
    array,
    convert::Infallible,
    env, panic,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};
use testing::{child::child, redis::RedisServer};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore,
    Permit, RedisSemaphore, ResponseBody, Semaphore, key,
};
#[cfg(feature = "tracing")]
use tracing::span::{Attributes, Id, Record};

const URL: &str = "TOWER_SEMAPHORE_POISONED";
const BOUND: Duration = Duration::from_secs(20);
const HOLD: Duration = Duration::from_millis(20);

static LOCK: Mutex<()> = Mutex::new(());
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Stands for the work of a user's recorder and subscriber.
fn lock() {
    let guard = LOCK.lock();
    if guard.is_err() {
        PANICS.fetch_add(1, Relaxed);
    }
    drop(guard.expect("no thread has panicked with it"));
}

fn poison() {
    let panics = || {
        let _guard = LOCK.lock();
        panic!("with the lock");
    };
    assert!(thread::spawn(panics).join().is_err());
}

/// A user's subscriber.
#[cfg(feature = "tracing")]
struct Locked;

#[cfg(feature = "tracing")]
impl tracing::Subscriber for Locked {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        lock();
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        lock();
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        lock();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {
        lock();
    }

    fn event(&self, _: &tracing::Event<'_>) {
        lock();
    }

    fn enter(&self, _: &Id) {
        lock();
    }

    fn exit(&self, _: &Id) {
        lock();
    }

    fn try_close(&self, _: Id) -> bool {
        lock();
        true
    }
}

fn claim(key: &'static str) -> Claim {
    Claim::new(key).with_limit(1)
}

async fn acquire(store: &impl Semaphore, key: &'static str) -> Permit {
    let acquired = timeout(BOUND, store.acquire(claim(key))).await;
    acquired.expect("it is answered").expect("there is room")
}

/// Drops a value while this thread unwinds.
fn drop_unwinding<T>(value: T) {
    let unwinds = panic::AssertUnwindSafe(|| {
        let _value = value;
        panic!("the user's handler");
    });
    assert!(panic::catch_unwind(unwinds).is_err());
}

/// Makes claims, and lets each end in another way. `held` is from before the poisoning.
async fn claims(store: &impl Semaphore, held: Permit) {
    assert!(store.acquire(claim("a")).await.is_err());
    let waits = || store.acquire(claim("a").with_wait(BOUND));
    let timed_out = store.acquire(claim("a").with_wait(HOLD)).await;
    assert!(matches!(timed_out, Err(AcquireError::TimedOut { .. })));
    for unwinds in [false, true] {
        let mut cancelled = waits();
        // Long enough to join a queue in Redis.
        assert!(timeout(HOLD * 5, &mut cancelled).await.is_err());
        if unwinds {
            drop_unwinding(cancelled);
        } else {
            drop(cancelled);
        }
    }
    let mut granted = waits();
    assert!(timeout(HOLD * 5, &mut granted).await.is_err());
    drop_unwinding(held);
    let granted = timeout(BOUND, granted).await.expect("it is woken");
    let granted = granted.expect("there is room");
    granted.end_after(HOLD);
    timeout(BOUND, granted.lost()).await.expect("it is lost");
    assert!(granted.is_lost());
    drop(granted);
    // The units are free a moment after the loss is reported.
    let next = timeout(BOUND, waits()).await.expect("it is answered");
    next.expect("there is room").release().await;
}

/// Sends requests to a service with a limit of one. A handler answers with the request's text, or panics at `panic`.
async fn requests<S>(service: S)
where
    S: Service<Request<String>, Response = Response<ResponseBody<Streamed>>>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    S::Error: std::fmt::Debug,
{
    let call = async |text: &str| {
        let answer = service.clone().oneshot(Request::new(text.to_owned()));
        let answer = timeout(BOUND, answer).await;
        answer.expect("it is answered").expect("it is a response")
    };
    let held = call("held").await;
    assert_eq!(held.status(), 200);
    assert_eq!(call("refused").await.status(), 429);
    let body = held.into_body().collect().await.expect("it ends");
    assert_eq!(body.to_bytes(), "held");
    let panics = service.clone().oneshot(Request::new("panic".to_owned()));
    let panics = tokio::spawn(async { drop(panics.await) }).await;
    assert!(panics.is_err());
    drop_unwinding(call("held").await);
    let answer = call("held").await;
    assert_eq!(answer.status(), 200, "nothing is held");
}

/// A body that does not end in its first frame, so that a held response holds its permit.
type Streamed = StreamBody<Iter<array::IntoIter<Result<Frame<Bytes>, Infallible>, 1>>>;

async fn handler(request: Request<String>) -> Result<Response<Streamed>, Infallible> {
    assert_ne!(request.body(), "panic", "the user's handler");
    let frame = Frame::data(request.into_body().into());
    Ok(Response::new(StreamBody::new(iter([Ok(frame)]))))
}

async fn layers(store: &(impl Semaphore + Clone)) {
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("layer"), store.clone());
    requests(layer.layer(service_fn(handler))).await;
    let layer = GlobalConcurrencyLimitLayer::new(1, "global", store.clone());
    requests(layer.with_wait(HOLD).layer(service_fn(handler))).await;
}

async fn use_both_stores(url: &str) {
    let memory = MemorySemaphore::new();
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let redis = patient.connect(url).await.expect("it connects");
    let held = (acquire(&memory, "a").await, acquire(&redis, "a").await);
    // From here on, existing instruments panic when they are used, and new ones when they are made.
    poison();
    claims(&memory, held.0).await;
    layers(&memory).await;
    assert_eq!(memory.busy_keys(), 0);
    claims(&redis, held.1).await;
    layers(&redis).await;
    // Every path has called into the recorder or the subscriber.
    assert!(PANICS.load(Relaxed) > 100);
    assert!(redis.shutdown(BOUND).await.is_empty());
    // The instruments of a thread are dropped when the thread ends.
    let ends = move || drop(memory.acquire(claim("b")).now_or_never());
    assert!(thread::spawn(ends).join().is_ok());
}

#[test]
#[ignore = "the process of the test below"]
fn a_process_whose_lock_is_poisoned() {
    let Ok(url) = env::var(URL) else { return };
    // Poison errors are too many to print.
    panic::set_hook(Box::new(|panic| {
        let text = panic.to_string();
        if !text.contains("PoisonError") {
            eprintln!("{text}");
        }
    }));
    metrics::set_global_recorder(Hooked::new(|_, _| lock())).expect("there is no other");
    #[cfg(feature = "tracing")]
    tracing::subscriber::set_global_default(Locked).expect("there is no other");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    runtime.block_on(use_both_stores(&url));
}

#[test]
fn a_recorder_and_a_subscriber_that_always_panic_fail_no_claim_and_abort_no_process() {
    let server = RedisServer::start();
    let output = child(module_path!(), "a_process_whose_lock_is_poisoned")
        .env(URL, server.url())
        .output()
        .expect("it starts");
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
    let is_passed = output.status.success() && stdout.contains("1 passed");
    assert!(is_passed, "{}\n{stdout}\n{stderr}", output.status);
}
