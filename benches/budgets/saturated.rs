//! The share of a budget that streams use while others always wait, for estimates of several sizes.
//!
//! A tenth of the usual times: the window is 6 s instead of a minute, the lease 1 s instead of 10 s, and streams last from
//! 0.5 to 6 s.

use futures_util::future::{Either, join_all, select};
use std::{collections::VecDeque, pin::pin, sync::Mutex, time::Duration};
use testing::bench::{
    figures::Dice,
    run::pick,
    table::{Table, figure},
};
use tokio::time::{Instant, sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const WINDOW: Duration = Duration::from_secs(6);
const STEP: Duration = Duration::from_millis(500);
const LIMIT: u32 = 60_000;

/// The mean use of a stream.
const MEAN_USE: u32 = 1_000;

/// The use of all streams.
#[derive(Default)]
struct Used {
    total: u64,
    /// The uses of the last window, and their sum.
    recent: VecDeque<(Instant, u64)>,
    in_window: u64,
    peak: u64,
}

impl Used {
    fn record(&mut self, units: u64) {
        let now = Instant::now();
        self.total += units;
        self.in_window += units;
        self.recent.push_back((now, units));
        while let Some((at, units)) = self.recent.front()
            && *at + WINDOW <= now
        {
            self.in_window -= units;
            self.recent.pop_front();
        }
        self.peak = self.peak.max(self.in_window);
    }
}

/// Runs one stream after the other, each of 1 to 12 steps.
async fn run_streams(store: &RedisSemaphore, estimate: u32, seed: u64, used: &Mutex<Used>) {
    let mut dice = Dice::new(seed);
    loop {
        let claim = Claim::new("saturated").with_policy(format!("estimate-{estimate}"));
        let claim = claim.with_limit(LIMIT).with_window(WINDOW);
        let claim = claim.with_estimate(estimate).with_max_waiting(1_000);
        let permit = store.acquire(claim.with_wait(Duration::from_secs(3_600)));
        let permit = permit.await.expect("units come back");
        let steps = 1 + dice.below(12) as u32;
        let units = MEAN_USE / 2 + dice.below(u64::from(MEAN_USE) + 1) as u32;
        let mut settled = 0;
        for step in 1..=steps {
            sleep(STEP).await;
            let total = units * step / steps;
            permit.settle(format!("estimate-{estimate}"), total);
            let mut used = used.lock().expect("nothing has panicked");
            used.record((total - settled).into());
            settled = total;
        }
    }
}

/// Returns the share of the limit that streams use, and the largest use of a window, compared with the limit.
async fn share(store: &RedisSemaphore, estimate: u32) -> (f64, f64) {
    let used = Mutex::default();
    let streams = (1..=45).map(|seed| run_streams(store, estimate, seed, &used));
    let (warm, windows) = (5, pick(5, 30));
    let watch = async {
        sleep(WINDOW * warm).await;
        let before = {
            let mut used = used.lock().expect("nothing has panicked");
            used.peak = 0;
            used.total
        };
        sleep(WINDOW * windows).await;
        let used = used.lock().expect("nothing has panicked");
        let share = (used.total - before) as f64 / f64::from(windows * LIMIT);
        (share, used.peak as f64 / f64::from(LIMIT))
    };
    match select(pin!(watch), pin!(join_all(streams))).await {
        Either::Left((measured, _)) => measured,
        Either::Right(_) => unreachable!("streams never end"),
    }
}

pub(crate) async fn measure(url: &str) {
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(1));
    let store = builder.connect(url).await.expect("the server is there");
    let head = ["estimate ÷ mean use", "used share", "peak of a window"];
    let mut table = Table::new("Use of a saturated budget, compared with its limit", &head);
    let estimates = [1, 2, 4];
    let shares = estimates.map(|times| share(&store, times * MEAN_USE));
    for (times, (used, peak)) in estimates.iter().zip(join_all(shares).await) {
        table.row([times.to_string(), figure(used), figure(peak)]);
    }
    println!("{table}");
}
