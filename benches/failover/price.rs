//! The cost of waiting until a replica has each grant.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::{
    bench::{
        figures::{Latencies, median, ratio},
        run::{bar, pick},
        table::{Table, figure},
    },
    redis::Replicated,
};
use tokio::task::JoinSet;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const TASKS: [usize; 3] = [1, 16, 256];

/// Higher than the number of permits that are held, or dropped but not yet released on the server, so that no claim is
/// refused.
const LIMIT: u32 = 10_000;

/// The number of replicas that must have a grant before it counts.
const VARIANTS: [u32; 2] = [0, 1];

/// The delays of the link to the replica, in ms.
const LINKS: [u64; 2] = [0, 1];

/// The results of all rounds of a variant.
#[derive(Default)]
struct Series {
    pairs: Vec<f64>,
    p50: Vec<f64>,
    acquire: Latencies,
}

/// Measures both variants in alternating rounds, so that noise affects both.
pub(crate) async fn compare() {
    let head = [
        "link, ms",
        "tasks",
        "min_replicas",
        "pairs/s",
        "× min_replicas 0",
        "acquire p50 µs",
        "× min_replicas 0",
        "p99 µs",
    ];
    let mut table = Table::new("Uncontended pairs, a key per task, one replica", &head);
    for link in LINKS {
        let servers = Replicated::start(Duration::from_millis(link)).await;
        for tasks in TASKS {
            let series = measure(&servers, tasks).await;
            for (replicas, variant) in VARIANTS.iter().zip(&series) {
                let figures = [
                    link as f64,
                    tasks as f64,
                    f64::from(*replicas),
                    median(&variant.pairs),
                    ratio(&variant.pairs, &series[0].pairs),
                    variant.acquire.p50(),
                    ratio(&variant.p50, &series[0].p50),
                    variant.acquire.quantiles([0.99])[0],
                ];
                table.row(figures.map(figure));
            }
        }
    }
    println!("{table}");
}

async fn measure(servers: &Replicated, tasks: usize) -> [Series; 2] {
    let (rounds, span_ms) = pick((3, 200), (9, 400));
    let mut stores = Vec::new();
    for replicas in VARIANTS {
        // A long timeout, so that no claim fails on a busy machine.
        let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
        let builder = builder.min_replicas(replicas);
        let store = builder.connect(servers.primary.url()).await;
        stores.push(store.expect("the server is there"));
    }
    let progress = bar(&format!("{tasks} tasks"), (rounds + 1) * 2);
    let mut series = [Series::default(), Series::default()];
    for round in 0..=rounds {
        for (store, series) in stores.iter().zip(&mut series) {
            let (pairs, acquire) = load(store, tasks, Duration::from_millis(span_ms)).await;
            // The first round is a warm-up.
            if round > 0 {
                series.pairs.push(pairs);
                series.p50.push(acquire.p50());
                series.acquire.append(acquire);
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    series
}

/// The pairs of acquire and release per second, and the latencies of the acquires.
async fn load(store: &RedisSemaphore, tasks: usize, span: Duration) -> (f64, Latencies) {
    let start = Instant::now();
    let store = Arc::new(store.clone());
    let mut running = JoinSet::new();
    for task in 0..tasks {
        let claim = Claim::new(format!("account-{task}")).with_limit(LIMIT);
        running.spawn(work(Arc::clone(&store), claim, start + span));
    }
    let mut acquire = Latencies::default();
    for latencies in running.join_all().await {
        acquire.append(latencies);
    }
    // Commands run in order, so after this release all earlier ones have reached the server.
    let flush = store.acquire(Claim::new("flush").with_limit(1)).await;
    flush.expect("it is free").release().await;
    (
        acquire.count() as f64 / start.elapsed().as_secs_f64(),
        acquire,
    )
}

async fn work(store: Arc<RedisSemaphore>, claim: Claim, end: Instant) -> Latencies {
    let mut acquire = Latencies::default();
    let mut start = Instant::now();
    while start < end {
        let permit = store.acquire(claim.clone()).await;
        acquire.add(start.elapsed());
        drop(permit.expect("there is room"));
        start = Instant::now();
    }
    acquire
}
