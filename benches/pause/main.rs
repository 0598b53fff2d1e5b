//! A paused key: the server's time for a refusal, and the time from the end of a pause to the first grant.
//!
//! `cargo bench -p tower-semaphore-benches --bench pause` takes about a minute, with `-- --quick` ten seconds.

use std::time::{Duration, Instant};
use testing::{
    bench::{
        figures::{Latencies, median, ratio},
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::RedisServer,
    resp::Raw,
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, Operate, Permit, Policy, RedisSemaphore, Semaphore};

const LIMIT: u32 = 5;
const REFUSALS: usize = 1_000;

#[tokio::main]
async fn main() {
    let server = RedisServer::start();
    println!("{}", refusals(&server).await);
    println!("{}", grants_after_pauses(&server).await);
}

async fn store(server: &RedisServer) -> RedisSemaphore {
    RedisSemaphore::connect(server.url())
        .await
        .expect("the server is there")
}

/// Acquires all permits of a key.
async fn fill(store: &RedisSemaphore, key: &str) -> Vec<Permit> {
    let mut permits = Vec::new();
    for _ in 0..LIMIT {
        let claim = Claim::new(key.to_owned()).with_limit(LIMIT);
        permits.push(store.acquire(claim).await.expect("there is room"));
    }
    permits
}

/// The server's time for one refusal. Alternates between a full key, the same key while it is paused, and a free key
/// while it is paused.
async fn refusals(server: &RedisServer) -> Table {
    let (store, mut raw) = (store(server).await, Raw::connect(server.port()).await);
    let _permits = fill(&store, "full").await;
    // The times for a full key, for a full and paused key, and for a free and paused key.
    let mut all = [Vec::new(), Vec::new(), Vec::new()];
    let rounds = pick(5, 25);
    let progress = bar("refusals", rounds);
    for _ in 0..rounds {
        all[0].push(refused(&store, &mut raw, "full").await);
        for (key, times) in ["full", "free"].into_iter().zip(&mut all[1..]) {
            let (policy, named) = (Policy::DEFAULT, key.into());
            let paused = store.pause(&policy, &named, Duration::from_secs(60), "");
            paused.await.expect("it is paused");
            times.push(refused(&store, &mut raw, key).await);
            store.resume(&policy, &named).await.expect("it answers");
        }
        progress.inc(1);
    }
    progress.finish_and_clear();
    let head = ["key", "server µs a refusal", "× full"];
    let mut table = Table::new("Claims that do not wait", &head);
    for (name, times) in ["full", "full and paused", "paused"].iter().zip(&all) {
        let figures = [median(times), ratio(times, &all[0])].map(figure);
        table.row([(*name).to_owned()].into_iter().chain(figures));
    }
    table
}

/// The server's time for one refusal, in µs.
async fn refused(store: &RedisSemaphore, raw: &mut Raw, key: &str) -> f64 {
    let before = raw.script_micros().await;
    for _ in 0..REFUSALS {
        let claim = Claim::new(key.to_owned()).with_limit(LIMIT);
        assert!(store.acquire(claim).await.is_err(), "no room");
    }
    (raw.script_micros().await - before) / REFUSALS as f64
}

/// The time from the end of a pause to the first grant, with 1, 20 and 500 waiters in two stores.
async fn grants_after_pauses(server: &RedisServer) -> Table {
    let stores = [store(server).await, store(server).await];
    let head = ["waiters", "first, ms (p50)", "p99", "most"];
    let mut table = Table::new(
        "From the end of a pause of 300 ms to the first grant",
        &head,
    );
    for waiters in [1, 20, 500] {
        let mut first = Latencies::default();
        let rounds = pick(5, 60);
        let progress = bar("pauses", rounds);
        for _ in 0..rounds {
            first.add(first_grant_delay(&stores, waiters).await);
            progress.inc(1);
        }
        progress.finish_and_clear();
        let quantiles = first.quantiles([0.5, 0.99, 1.0]);
        let figures = quantiles.map(|micros| format!("{:.1}", micros / 1e3));
        table.row([waiters.to_string()].into_iter().chain(figures));
    }
    table
}

/// The time from the end of a pause to the first grant.
async fn first_grant_delay(stores: &[RedisSemaphore; 2], waiters: usize) -> Duration {
    let (policy, key) = (Policy::DEFAULT, "paused".into());
    let time = Duration::from_millis(300);
    let paused = stores[0].pause(&policy, &key, time, "").await;
    paused.expect("it is paused");
    // The pause began before its answer arrived, so `end` is a little late, and the result a little too short.
    let end = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for at in 0..waiters {
        let claim = Claim::new("paused").with_limit(LIMIT);
        let claim = claim
            .with_wait(Duration::from_secs(20))
            .with_max_waiting(1_000);
        tasks.spawn(stores[at % 2].acquire(claim));
    }
    let granted = tasks.join_next().await.expect("one waits");
    let late = end.elapsed();
    drop(granted.expect("no panic").expect("it is granted"));
    while let Some(granted) = tasks.join_next().await {
        drop(granted.expect("no panic").expect("it is granted"));
    }
    // The last releases are still in flight, and the next round needs a free key.
    sleep(Duration::from_millis(20)).await;
    late
}
