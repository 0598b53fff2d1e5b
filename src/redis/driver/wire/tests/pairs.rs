//! How fast the driver is over a real server, beside the store that ships.
//!
//! `RUSTFLAGS="--cfg tower_semaphore_core" cargo test --release --lib pairs -- --ignored --nocapture`

use super::{LEASE, driver, level};
use crate::{
    redis::RedisSemaphore,
    semaphore::{Claim, Semaphore},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use testing::redis::RedisServer;
use tokio::runtime::Builder;

const TIME: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

/// Pairs of an acquire and a release per second by so many tasks.
async fn rate<F: Future<Output = ()> + Send>(
    tasks: usize,
    pair: impl Fn() -> F + Clone + Send + 'static,
) -> f64 {
    let (pairs, ends) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let workers = (0..tasks).map(|_| {
        let (pair, pairs, ends) = (pair.clone(), Arc::clone(&pairs), Arc::clone(&ends));
        tokio::spawn(async move {
            while !ends.load(Relaxed) {
                pair().await;
                pairs.fetch_add(1, Relaxed);
            }
        })
    });
    let workers: Vec<_> = workers.collect();
    tokio::time::sleep(TIME / 4).await;
    let (before, since) = (pairs.load(Relaxed), Instant::now());
    tokio::time::sleep(TIME).await;
    let rate = (pairs.load(Relaxed) - before) as f64 / since.elapsed().as_secs_f64();
    ends.store(true, Relaxed);
    for worker in workers {
        worker.await.expect("no panic");
    }
    rate
}

/// The median time of an acquire in a task that does nothing else, a millisecond apart.
async fn idle<F: Future<Output = ()> + Send>(
    acquire: impl Fn() -> F + Send + Sync + 'static,
) -> Duration {
    let task = tokio::spawn(async move {
        let mut times = Vec::new();
        for _ in 0..1_000 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let since = Instant::now();
            acquire().await;
            times.push(since.elapsed());
        }
        times.sort();
        times[times.len() / 2]
    });
    task.await.expect("no panic")
}

#[test]
#[ignore = "a measurement"]
fn pairs_per_second_beside_the_store_that_ships() {
    let server = RedisServer::start();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let driver = driver(&server.url(), LEASE);
        let store = RedisSemaphore::connect(server.url())
            .await
            .expect("a store");
        let own = move || {
            let driver = driver.clone();
            async move { drop(driver.acquire(vec![level("a", 1_000_000)]).await) }
        };
        let old = move || {
            let claim = store.acquire(Claim::new("a").with_limit(1_000_000));
            async move { drop(claim.await) }
        };
        println!("| tasks | driver pairs/s | store pairs/s | |\n|---|---|---|---|");
        for tasks in [1, 16, 256] {
            for _ in 0..ROUNDS {
                let (old, own) = (
                    rate(tasks, old.clone()).await,
                    rate(tasks, own.clone()).await,
                );
                println!("| {tasks} | {own:.0} | {old:.0} | {:.2} |", own / old);
            }
        }
        for _ in 0..ROUNDS {
            let (old, own) = (idle(old.clone()).await, idle(own.clone()).await);
            println!("idle p50: driver {own:?}, store {old:?}");
        }
    });
}
