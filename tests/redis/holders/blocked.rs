//! Handlers that block every worker of the application's runtime.

use super::common::{BOUND, HELD, claim, live, store};
use std::{
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
};
use tower_semaphore::{Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(1_500);
const BLOCKED: Duration = Duration::from_secs(6);
const WORKERS: usize = 2;
const PERMITS: u32 = 1_000;

async fn acquire_all(store: &RedisSemaphore) -> Vec<Permit> {
    let mut permits = Vec::new();
    for _ in 0..PERMITS / 50 {
        let claims = (0..50).map(|_| store.acquire(claim(PERMITS)));
        let granted = futures_util::future::join_all(claims).await;
        permits.extend(granted.into_iter().map(|one| one.expect("there is room")));
    }
    permits
}

/// Returns once every worker is blocked.
fn block_every_worker(app: &Runtime) -> Vec<JoinHandle<()>> {
    let all = Arc::new(Barrier::new(WORKERS + 1));
    let blocker = |all: Arc<Barrier>| async move {
        all.wait();
        thread::sleep(BLOCKED);
    };
    let blockers = (0..WORKERS)
        .map(|_| app.spawn(blocker(Arc::clone(&all))))
        .collect();
    all.wait();
    blockers
}

/// Every permit is held, in Redis and for its holder, for as long as the workers are blocked.
async fn all_are_held(raw: &mut Raw, permits: &[Permit]) {
    let start = Instant::now();
    while start.elapsed() < BLOCKED - Duration::from_millis(500) {
        let lost = permits.iter().filter(|permit| permit.is_lost()).count();
        let held = live(raw).await;
        let after = start.elapsed();
        assert_eq!((held, lost), (PERMITS.into(), 0), "after {after:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[test]
fn handlers_that_block_every_worker_for_four_leases_lose_none_of_a_thousand_permits() {
    let server = RedisServer::start();
    let mut app = Builder::new_multi_thread();
    let app = app.worker_threads(WORKERS).enable_all().build();
    let app = app.expect("a runtime starts");
    let store = app.block_on(store(server.url(), LEASE));
    let permits = app.block_on(acquire_all(&store));
    let blockers = block_every_worker(&app);

    let judge = Builder::new_current_thread().enable_all().build();
    let judge = judge.expect("a runtime starts");
    judge.block_on(async {
        let mut raw = Raw::connect(server.port()).await;
        all_are_held(&mut raw, &permits).await;
        for blocker in blockers {
            blocker.await.expect("it did not panic");
        }
        assert!(!permits.iter().any(Permit::is_lost));
        drop(permits);
        eventually("all are released", BOUND, async || {
            raw.zmembers(HELD).await.is_empty()
        })
        .await;
    });
}
