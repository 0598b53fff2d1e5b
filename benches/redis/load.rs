//! Many tasks that acquire and release permits, for a while.

use crate::rival::Rival;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::bench::figures::Latencies;
use tokio::task::JoinSet;

/// The results of a while of load.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Pairs of acquire and release per second, the last release included.
    pub(crate) pairs: f64,
    /// How long an acquire took.
    pub(crate) acquire: Latencies,
    /// How long acquire and release took together.
    pub(crate) pair: Latencies,
    /// How often there was no permit.
    pub(crate) refused: u64,
}

/// What one task has seen.
#[derive(Default)]
struct Seen {
    acquire: Latencies,
    pair: Latencies,
    refused: u64,
}

/// Runs a task for each of the keys, all under `limit`, for `span`.
pub(crate) async fn run(
    rival: &Arc<Rival>,
    keys: Vec<String>,
    limit: u32,
    span: Duration,
) -> Outcome {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for key in keys {
        tasks.spawn(work(Arc::clone(rival), key, limit, start + span));
    }
    let mut outcome = Outcome::default();
    while let Some(seen) = tasks.join_next().await {
        let seen = seen.expect("no task panics");
        outcome.acquire.append(seen.acquire);
        outcome.pair.append(seen.pair);
        outcome.refused += seen.refused;
    }
    rival.settle().await;
    outcome.pairs = outcome.pair.count() as f64 / start.elapsed().as_secs_f64();
    outcome
}

async fn work(rival: Arc<Rival>, key: String, limit: u32, end: Instant) -> Seen {
    let mut seen = Seen::default();
    let mut start = Instant::now();
    while start < end {
        match rival.acquire(&key, limit).await {
            Some(held) => {
                seen.acquire.add(start.elapsed());
                rival.release(&key, held).await;
                seen.pair.add(start.elapsed());
            }
            None => seen.refused += 1,
        }
        start = Instant::now();
    }
    seen
}
