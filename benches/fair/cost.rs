//! The cost of an acquire that finds room, with and without a flow, which is the tenant that a waiter belongs to.

use std::time::{Duration, Instant};
use testing::bench::{
    figures::{Latencies, median, ratio},
    run::{bar, pick},
    table::{Table, figure},
};
use tokio::task::JoinSet;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const TASKS: [usize; 2] = [1, 256];

fn claims() -> [(&'static str, Claim); 2] {
    let claim = Claim::new("cost")
        .with_limit(1_000)
        .with_wait(Duration::from_secs(10))
        .with_max_waiting(1_000);
    [
        ("no flow", claim.clone()),
        ("a flow", claim.with_flow("ann").with_share(4)),
    ]
}

pub(crate) async fn compare(url: &str) {
    let store = super::store(url).await;
    let head = [
        "tasks",
        "claim",
        "pairs/s",
        "× no flow",
        "acquire p50 µs",
        "× no flow",
    ];
    let mut table = Table::new(
        "Uncontended pairs on one key, with a flow and without",
        &head,
    );
    for tasks in TASKS {
        let (rounds, span_ms) = pick((5, 200), (15, 400));
        let span = Duration::from_millis(span_ms);
        let mut all = claims().map(|_| (Vec::new(), Vec::new()));
        let progress = bar(&format!("{tasks} tasks"), rounds + 1);
        for round in 0..=rounds {
            for ((_, claim), (pairs, p50)) in claims().into_iter().zip(&mut all) {
                let (rate, acquire) = run(&store, &claim, tasks, span).await;
                // The first round is a warm-up.
                if round > 0 {
                    pairs.push(rate);
                    p50.push(acquire.p50());
                }
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        for ((name, _), (pairs, p50)) in claims().into_iter().zip(&all) {
            let (pairs_without, p50_without) = &all[0];
            let figures = [
                median(pairs),
                ratio(pairs, pairs_without),
                median(p50),
                ratio(p50, p50_without),
            ];
            let named = [tasks.to_string(), name.to_owned()];
            table.row(named.into_iter().chain(figures.map(figure)));
        }
    }
    println!("{table}");
}

/// The pairs of acquire and release per second, and the latencies of the acquires.
async fn run(
    store: &RedisSemaphore,
    claim: &Claim,
    tasks: usize,
    span: Duration,
) -> (f64, Latencies) {
    let start = Instant::now();
    let mut work = JoinSet::new();
    for _ in 0..tasks {
        work.spawn(pairs(store.clone(), claim.clone(), start + span));
    }
    let mut acquire = Latencies::default();
    for own in work.join_all().await {
        acquire.append(own);
    }
    (
        acquire.count() as f64 / start.elapsed().as_secs_f64(),
        acquire,
    )
}

async fn pairs(store: RedisSemaphore, claim: Claim, end: Instant) -> Latencies {
    let mut acquire = Latencies::default();
    let mut start = Instant::now();
    while start < end {
        let permit = store.acquire(claim.clone()).await.expect("there is room");
        acquire.add(start.elapsed());
        drop(permit);
        start = Instant::now();
    }
    acquire
}
