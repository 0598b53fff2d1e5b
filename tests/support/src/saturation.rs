//! Streams that use a budget while others always wait for it.

use crate::rng::Rng;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower_semaphore::{Claim, Semaphore};

/// The limit of the budget.
const LIMIT: u32 = 60_000;

/// The mean use of a stream. It uses from half of this up to one and a half times as much.
pub const MEAN_USE: u32 = 1_000;

/// The limit sustains 32 or 33 streams at a time: each uses a sixtieth of it, and lasts 6.5 of 12 steps. So some always
/// wait.
const WORKERS: u64 = 45;

/// A stream lasts for 1 to this number of steps, and this number of steps is a window.
const STEPS: u32 = 12;

/// A budget and how long it is watched.
#[derive(Clone, Copy)]
pub struct Saturation {
    pub window: Duration,
    pub estimate: u32,
    /// The number of windows that pass before the measurement, and during it.
    pub warm_up: u32,
    pub windows: u32,
}

/// The use of a saturated budget, compared with its limit.
#[derive(Debug)]
pub struct Utilisation {
    /// The units used, divided by those that the limit allows in this time.
    pub share: f64,
    /// The largest use in any window, divided by the limit.
    pub peak: f64,
}

/// The units that all streams have used.
#[derive(Default)]
struct Used {
    total: u64,
    /// The uses of the last window, and their sum.
    recent: VecDeque<(Instant, u64)>,
    in_window: u64,
    /// The highest sum of a window.
    peak: u64,
}

impl Used {
    fn record(&mut self, units: u64, window: Duration) {
        let now = Instant::now();
        self.total += units;
        self.recent.push_back((now, units));
        self.in_window += units;
        while let Some((at, units)) = self.recent.front()
            && *at + window <= now
        {
            self.in_window -= units;
            self.recent.pop_front();
        }
        self.peak = self.peak.max(self.in_window);
    }
}

fn lock(used: &Mutex<Used>) -> MutexGuard<'_, Used> {
    used.lock().expect("nothing has panicked")
}

impl Saturation {
    /// Runs the streams for the warm-up and the windows.
    pub async fn measure(self, store: &(impl Semaphore + Clone)) -> Utilisation {
        let used = Arc::new(Mutex::default());
        let mut workers = JoinSet::new();
        for seed in 0..WORKERS {
            let (store, used) = (store.clone(), Arc::clone(&used));
            workers.spawn(async move { self.run_streams(&store, seed, &used).await });
        }
        sleep(self.window * self.warm_up).await;
        let before = {
            let mut used = lock(&used);
            used.peak = 0;
            used.total
        };
        tokio::select! {
            () = sleep(self.window * self.windows) => {}
            ended = workers.join_next() => panic!("a worker has ended: {ended:?}"),
        }
        let used = lock(&used);
        Utilisation {
            share: (used.total - before) as f64 / f64::from(self.windows * LIMIT),
            peak: used.peak as f64 / f64::from(LIMIT),
        }
    }

    /// Runs one stream after the other.
    async fn run_streams(self, store: &impl Semaphore, seed: u64, used: &Mutex<Used>) {
        let policy = format!("estimate-{}", self.estimate);
        let claim = Claim::new("saturated").with_policy(policy.as_str());
        let claim = claim.with_limit(LIMIT).with_window(self.window);
        let claim = claim.with_estimate(self.estimate);
        // More time and more waiters than any run needs.
        let claim = claim.with_wait(self.window * 6_000).with_max_waiting(1_000);
        let mut rng = Rng::new(seed);
        loop {
            let permit = store.acquire(claim.clone()).await;
            let permit = permit.expect("units come back");
            let steps = 1 + rng.below(STEPS as usize) as u32;
            let units = MEAN_USE / 2 + rng.below(MEAN_USE as usize + 1) as u32;
            let mut settled = 0;
            for step in 1..=steps {
                sleep(self.window / STEPS).await;
                let total = units * step / steps;
                permit.settle(policy.as_str(), total);
                lock(used).record((total - settled).into(), self.window);
                settled = total;
            }
        }
    }
}
