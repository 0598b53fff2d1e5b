//! A server *settles* for some seconds after an outage: other processes may still admit claims without it, so a claim
//! needs its grant and room in the share. Without the server nothing is admitted until it has failed for a timeout,
//! because it may have answered other processes.
//!
//! Promises: P19.

use crate::server::{
    BOUND, HELD, LEASE, acquire_until_error, builder, claim, granted, store, wait_until_known,
    wait_until_open,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
    thread,
    time::{Duration, Instant},
};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::{runtime, time::sleep};
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::{
        Builder,
        WhenUnavailable::{Admit, Share},
    },
};

const LIMIT: u32 = 8;
const TIMEOUT: Duration = Duration::from_secs(1);
/// Slightly less than `TIMEOUT`, for which a server must fail before a claim is admitted without it, because the first
/// failure may precede the first measured claim.
const UNTIL_CERTAIN: Duration = Duration::from_millis(700);

/// With this lease hardly any refreshes are sent.
fn patient() -> Builder {
    builder(Share).lease(Duration::from_secs(15))
}

/// A store behind a proxy, and another store.
async fn two_stores(server: &RedisServer, builder: Builder) -> (Proxy, [RedisSemaphore; 2]) {
    let proxy = Proxy::start(server).await;
    let store = builder.clone().connect(proxy.url()).await;
    let other = builder.connect(server.url()).await;
    wait_until_known(server, 2).await;
    (proxy, [store.expect("a server"), other.expect("a server")])
}

/// The time until the store admits a claim.
async fn time_until_admitted(store: &RedisSemaphore) -> Duration {
    let start = Instant::now();
    eventually("the policy admits a claim", BOUND, async || {
        store.acquire(claim(LIMIT)).await.is_ok()
    })
    .await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_it_settles_counts_as_gone_only_after_a_while() {
    let mut server = RedisServer::start();
    let (proxy, [store, other]) = two_stores(&server, patient().timeout(TIMEOUT)).await;
    // Only this process loses its connection. For this process the server settles once it answers again.
    proxy.refuse().await;
    proxy.kill(End::Reset);
    wait_until_open(&store).await;
    proxy.accept().await;
    eventually("the server answers", BOUND, async || {
        let permit = store.acquire(claim(LIMIT)).await;
        permit.is_ok_and(|permit| !permit.is_degraded())
    })
    .await;
    let mut raw = Raw::connect(server.port()).await;
    eventually("the permit is released", BOUND, async || {
        raw.zcard(HELD).await == 0
    })
    .await;
    let held = acquire_until_error(&other, LIMIT).await;
    assert_eq!(held.len() as u32, LIMIT);
    server.kill();
    let after = time_until_admitted(&store).await;
    assert!(
        after >= UNTIL_CERTAIN,
        "admitted {after:?} after the first failure"
    );
}

/// The share applies only until the server has settled.
#[tokio::test(flavor = "multi_thread")]
async fn claims_that_wait_while_the_server_returns_do_not_count_as_its_failures() {
    let server = RedisServer::start();
    let (_proxy, [store, _other]) = two_stores(&server, patient()).await;
    server.stop();
    wait_until_open(&store).await;
    let mut share = acquire_until_error(&store, LIMIT).await;
    assert_eq!(share.len() as u32, LIMIT / 2);
    server.cont();
    eventually("the server has all permits", BOUND, async || {
        !share.iter().any(Permit::is_degraded)
    })
    .await;
    let wait = || store.acquire(claim(LIMIT).with_wait(Duration::from_millis(100)));
    // The share is full, so this claim waits in vain. Its wait has ended when the release makes room in the share.
    let waiter = tokio::spawn(wait());
    sleep(Duration::from_millis(250)).await;
    share.pop();
    let answer = waiter.await.expect("no panic");
    assert!(
        !answer.is_ok_and(|permit| permit.is_degraded()),
        "the server answers"
    );
    share.push(wait().await.expect("there is room"));
    // No permit is released between these claims, because its answer would prove that the server works.
    let start = Instant::now();
    let mut granted = wait().await;
    while granted.is_err() && start.elapsed() < Duration::from_secs(10) {
        granted = wait().await;
    }
    assert!(
        granted.is_ok_and(|permit| !permit.is_degraded()),
        "the server has settled"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_task_is_not_polled_is_no_outage() {
    let server = RedisServer::start();
    let store = store(&server, Admit).await;
    // The store is connected now, so the first poll sends the claim.
    assert!(granted(&store, 1).await.release().await);
    let acquire = loop {
        let mut acquire = Box::pin(store.acquire(claim(1)));
        match futures_util::poll!(&mut acquire) {
            Poll::Pending => break acquire,
            // The server was faster than this thread.
            Poll::Ready(answer) => assert!(answer.expect("it is free").release().await),
        }
    };
    sleep(2 * LEASE).await;
    let other = store.acquire(claim(1)).await;
    // The server has answered every call, so neither claim may be degraded.
    match (acquire.await, other) {
        (Ok(permit), Err(AcquireError::Full { .. })) => assert!(!permit.is_degraded()),
        // The claim timed out before it was polled again, so its unit is free.
        (Err(AcquireError::Store { .. }), Ok(other)) => assert!(!other.is_degraded()),
        answers => panic!("{answers:?}"),
    }
}

/// A separate runtime that claims until it is dropped. Its only thread is blocked after the start of each claim.
struct Blocked {
    ends: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Blocked {
    fn start(store: &RedisSemaphore) -> Self {
        let ends = Arc::<AtomicBool>::default();
        let (own, is_over) = (store.clone(), Arc::clone(&ends));
        let work = async move {
            while !is_over.load(SeqCst) {
                let claim = Claim::new("other").with_limit(1_000);
                let claim = tokio::spawn(own.acquire(claim));
                tokio::task::yield_now().await;
                thread::sleep(UNTIL_CERTAIN);
                drop(claim.await.expect("no panic"));
            }
        };
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(work);
        });
        let thread = Some(thread);
        Self { ends, thread }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        drop(self.thread.take().map(thread::JoinHandle::join));
    }
}

/// A runtime that reads an old answer late must not make the server count as working.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_is_an_outage_for_all_runtimes() {
    let server = RedisServer::start();
    let (_proxy, [store, _other]) = two_stores(&server, builder(Share)).await;
    let _blocked = Blocked::start(&store);
    let own = store.clone();
    let claims = tokio::spawn(async move {
        loop {
            drop(own.acquire(Claim::new("b").with_limit(9)).await);
            sleep(Duration::from_millis(1)).await;
        }
    });
    sleep(TIMEOUT).await;
    server.stop();
    wait_until_open(&store).await;
    let share = acquire_until_error(&store, LIMIT).await;
    server.cont();
    claims.abort();
    assert_eq!(share.len() as u32, LIMIT / 2);
}
