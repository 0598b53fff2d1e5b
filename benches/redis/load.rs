//! Many tasks that acquire and release permits for a while.

use crate::rival::Rival;
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use testing::bench::figures::Latencies;
use tokio::task::JoinSet;

/// The results of a load.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Pairs of acquire and release per second, including the last release.
    pub(crate) pairs: f64,
    /// The latencies of the acquires.
    pub(crate) acquire: Latencies,
    /// The processor time of this process per pair, in µs.
    pub(crate) cpu: f64,
    /// The number of refused claims.
    pub(crate) refused: u64,
}

/// The results of one task.
#[derive(Default)]
struct Seen {
    acquire: Latencies,
    pairs: u64,
    refused: u64,
}

/// Runs a task for each of the keys, all under `limit`, for `span`.
pub(crate) async fn run(
    rival: &Arc<Rival>,
    keys: Vec<String>,
    limit: u32,
    span: Duration,
) -> Outcome {
    let (start, cpu) = (Instant::now(), cpu_time());
    let (mut tasks, mut pairs) = (JoinSet::new(), 0);
    for key in keys {
        tasks.spawn(work(Arc::clone(rival), key, limit, start + span));
    }
    let mut outcome = Outcome::default();
    while let Some(seen) = tasks.join_next().await {
        let seen = seen.expect("no task panics");
        outcome.acquire.append(seen.acquire);
        pairs += seen.pairs;
        outcome.refused += seen.refused;
    }
    rival.settle().await;
    outcome.pairs = pairs as f64 / start.elapsed().as_secs_f64();
    outcome.cpu = (cpu_time() - cpu).as_secs_f64() * 1e6 / pairs as f64;
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
                seen.pairs += 1;
            }
            None => seen.refused += 1,
        }
        start = Instant::now();
    }
    seen
}

/// The processor time of all threads of this process.
fn cpu_time() -> Duration {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}
