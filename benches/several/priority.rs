//! The wait of an interactive claim when the limit is full, with and without a backlog of batch claims.

use crate::rival;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::bench::{
    figures::{Dice, Latencies},
    run::{bar, pick},
    table::{Table, figure},
};
use tokio::{
    task::JoinSet,
    time::{sleep, sleep_until},
};
use tower_semaphore::{Claim, MemorySemaphore, Semaphore};

/// The limit, which is also the number of interactive clients.
const LIMIT: usize = 16;

/// The average time for which a permit is held. It varies by half.
const HOLD: Duration = Duration::from_millis(20);

/// The average pause of an interactive client between two requests.
const PAUSE: Duration = Duration::from_millis(100);

/// An interactive claim passes the batch claims that arrived within this time before it.
const HEAD_START: Duration = Duration::from_secs(30);

/// The load of batch clients, and the head start of the interactive claims.
#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    /// The number of batch clients. Each claims again as soon as it has released.
    batch: usize,
    head_start: Duration,
}

const LOADS: [Load; 3] = [
    Load {
        name: "full, no backlog",
        batch: LIMIT,
        head_start: HEAD_START,
    },
    Load {
        name: "10 × batch",
        batch: 10 * LIMIT,
        head_start: HEAD_START,
    },
    Load {
        name: "10 × batch, no head start",
        batch: 10 * LIMIT,
        head_start: Duration::ZERO,
    },
];

pub(crate) async fn compare(url: &str) {
    measure("Redis", Arc::new(rival::store(url).await)).await;
    measure("memory", Arc::new(MemorySemaphore::new())).await;
}

async fn measure(store_name: &str, store: Arc<dyn Semaphore>) {
    let rounds = pick(2, 3);
    let progress = bar(store_name, rounds * LOADS.len());
    let mut all = LOADS.map(|_| Latencies::default());
    for round in 0..rounds {
        for (number, (load, waits)) in LOADS.into_iter().zip(&mut all).enumerate() {
            let claim = Claim::new(format!("priority-{number}-{round}"))
                .with_limit(LIMIT as u32)
                .with_wait(Duration::from_secs(60));
            waits.append(run(&store, load, claim).await);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    report(store_name, &all);
}

/// Prints the waits in units of the average time of a hold: 1 is 20 ms.
fn report(store: &str, all: &[Latencies]) {
    let title = format!(
        "The wait of an interactive claim under a full limit, {store}, mean holds of 20 ms"
    );
    let head = [
        "load",
        "claims",
        "p50",
        "p90",
        "p99",
        "p99 more than with no backlog",
    ];
    let mut table = Table::new(title, &head);
    // The p99 of the first load, which has no backlog.
    let mut without_backlog = None;
    for (load, waits) in LOADS.iter().zip(all) {
        let hold = HOLD.as_secs_f64() * 1e6;
        let [p50, p90, p99] = waits.quantiles([0.5, 0.9, 0.99]).map(|wait| wait / hold);
        let more = p99 - *without_backlog.get_or_insert(p99);
        let figures = [waits.count() as f64, p50, p90, p99, more].map(figure);
        table.row([load.name.to_owned()].into_iter().chain(figures));
    }
    println!("{table}");
}

/// The waits of the interactive clients.
async fn run(store: &Arc<dyn Semaphore>, load: Load, claim: Claim) -> Latencies {
    let start = Instant::now();
    let end = start + Duration::from_secs(pick(1, 3));
    let mut work = JoinSet::new();
    for seed in 0..load.batch {
        work.spawn(batch(Arc::clone(store), claim.clone(), seed, end));
    }
    // Wait until the limit is full and the other batch claims are in the queue.
    sleep(HOLD * 5).await;
    let claim = claim.with_head_start(load.head_start);
    let mut interactive = JoinSet::new();
    for seed in 0..LIMIT {
        // Other seeds than those of the batch clients.
        interactive.spawn(interact(
            Arc::clone(store),
            claim.clone(),
            seed + 1_000,
            end,
        ));
    }
    let mut waits = Latencies::default();
    for own in interactive.join_all().await {
        waits.append(own);
    }
    work.join_all().await;
    waits
}

async fn batch(store: Arc<dyn Semaphore>, claim: Claim, seed: usize, end: Instant) {
    let mut dice = Dice::new(seed as u64 + 1);
    while Instant::now() < end {
        let _permit = store.acquire(claim.clone()).await.expect("it is granted");
        sleep(about(HOLD, &mut dice)).await;
    }
}

async fn interact(store: Arc<dyn Semaphore>, claim: Claim, seed: usize, end: Instant) -> Latencies {
    let mut dice = Dice::new(seed as u64 + 1);
    let mut waits = Latencies::default();
    loop {
        let next = Instant::now() + about(PAUSE, &mut dice);
        if next >= end {
            return waits;
        }
        sleep_until(next.into()).await;
        let start = Instant::now();
        let _permit = store.acquire(claim.clone()).await.expect("it is granted");
        waits.add(start.elapsed());
        sleep(about(HOLD, &mut dice)).await;
    }
}

/// A random time from half to one and a half times the `mean`.
fn about(mean: Duration, dice: &mut Dice) -> Duration {
    let mean = mean.as_micros() as u64;
    Duration::from_micros(mean / 2 + dice.below(mean))
}
