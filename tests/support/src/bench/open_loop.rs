//! An open loop: claims arrive at a constant rate, whatever the outcome of earlier ones.

use super::run::pick;
use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout};

/// The longest useful latency of a claim. A later answer is worthless.
const BUDGET: Duration = Duration::from_millis(500);

/// The time after which a caller gives up. It exceeds the budget, because a semaphore may time out itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// The interval at which claims are started.
const TICK: Duration = Duration::from_millis(1);

/// The rate of claims, and the duration of the load.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    pub per_second: f64,
    /// The warm-up, in which queues reach their full length. Claims of this time do not count.
    pub warm: Duration,
    pub span: Duration,
}

impl Rate {
    /// This rate, for the duration that the benchmark's flags ask for.
    pub fn of(per_second: f64) -> Self {
        let (warm, span) = pick((500, 1_000), (1_000, 4_000));
        Self {
            per_second,
            warm: Duration::from_millis(warm),
            span: Duration::from_millis(span),
        }
    }
}

/// The outcome of a load.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    /// Claims made per second.
    pub rate: f64,
    /// Claims granted within their budget of time, per second.
    pub good: f64,
    /// The mean latency of the claims granted within their budget, if any.
    pub mean_ms: Option<f64>,
}

#[derive(Default)]
struct Counts {
    made: AtomicU64,
    good: AtomicU64,
    good_micros: AtomicU64,
}

impl Counts {
    fn made(&self) {
        self.made.fetch_add(1, Relaxed);
    }

    fn ended(&self, took: Duration, granted: bool) {
        if granted && took <= BUDGET {
            self.good.fetch_add(1, Relaxed);
            let micros = took.as_micros() as u64;
            self.good_micros.fetch_add(micros, Relaxed);
        }
    }

    fn offered(&self, span: Duration) -> Offered {
        let rate = |count: &AtomicU64| count.load(Relaxed) as f64 / span.as_secs_f64();
        let good = self.good.load(Relaxed);
        let mean = || self.good_micros.load(Relaxed) as f64 / good as f64 / 1e3;
        Offered {
            rate: rate(&self.made),
            good: rate(&self.good),
            mean_ms: (good > 0).then(mean),
        }
    }
}

/// Makes claims at that rate, and numbers them. A claim returns true if it was granted.
pub async fn offer<C, F>(rate: Rate, claim: C) -> Offered
where
    C: Fn(u64) -> F,
    F: Future<Output = bool> + Send + 'static,
{
    let counts = Arc::new(Counts::default());
    let start = Instant::now();
    let mut made = 0;
    while start.elapsed() < rate.warm + rate.span {
        let due = (start.elapsed().as_secs_f64() * rate.per_second) as u64;
        let counted = start.elapsed() >= rate.warm;
        for number in made..due {
            let counts = counted.then(|| Arc::clone(&counts));
            counts.iter().for_each(|counts| counts.made());
            tokio::spawn(one(claim(number), counts));
        }
        made = due.max(made);
        sleep(TICK).await;
    }
    // Waits until the last callers have given up.
    sleep(PATIENCE + TICK * 100).await;
    counts.offered(rate.span)
}

/// Makes one claim, and counts its outcome if `counts` is given.
async fn one(claim: impl Future<Output = bool>, counts: Option<Arc<Counts>>) {
    let start = Instant::now();
    let granted = timeout(PATIENCE, claim).await.unwrap_or(false);
    if let Some(counts) = counts {
        counts.ended(start.elapsed(), granted);
    }
}
