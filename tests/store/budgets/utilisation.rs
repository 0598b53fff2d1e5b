//! How much of a budget is used while streams always wait for it, for estimates of several sizes.
//!
//! Promises: P26.

use super::*;
use std::{cell::RefCell, collections::VecDeque, rc::Rc};
use testing::rng::Rng;
use tokio::{
    task::LocalSet,
    time::{Instant, sleep},
};

const LIMIT: u32 = 60_000;

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
    fn record(&mut self, units: u64) {
        let now = Instant::now();
        self.total += units;
        self.recent.push_back((now, units));
        self.in_window += units;
        while let Some((at, units)) = self.recent.front()
            && *at + MINUTE <= now
        {
            self.in_window -= units;
            self.recent.pop_front();
        }
        self.peak = self.peak.max(self.in_window);
    }
}

/// Runs streams of 5 to 60 s that use 1,000 units on average, while others always wait. Measures for twenty minutes,
/// after a warm-up of ten. Returns the used share of the limit, and the peak of any window as a share of the limit.
async fn utilisation(estimate: u32) -> (f64, f64) {
    let (store, used) = (
        MemorySemaphore::new(),
        Rc::new(RefCell::new(Used::default())),
    );
    let streams = LocalSet::new();
    for worker in 0..45 {
        let (store, used) = (store.clone(), Rc::clone(&used));
        streams.spawn_local(async move {
            let mut rng = Rng::new(worker);
            loop {
                let claim = tokens(LIMIT, MINUTE, estimate).with_max_waiting(1_000);
                let permit = store.acquire(claim.with_wait(100 * 60 * MINUTE)).await;
                let permit = permit.expect("there is room");
                let steps = 1 + rng.below(12) as u32;
                let units = 500 + rng.below(1_001) as u32;
                let mut settled = 0;
                for step in 1..=steps {
                    sleep(5 * SECOND).await;
                    let now = units * step / steps;
                    permit.settle("tokens", now);
                    used.borrow_mut().record((now - settled).into());
                    settled = now;
                }
            }
        });
    }
    streams
        .run_until(async {
            sleep(10 * MINUTE).await;
            let before = used.borrow().total;
            used.borrow_mut().peak = 0;
            sleep(20 * MINUTE).await;
            let used = used.borrow();
            let share = (used.total - before) as f64 / (20.0 * f64::from(LIMIT));
            (share, used.peak as f64 / f64::from(LIMIT))
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn estimates_of_the_mean_use_fill_the_whole_budget_and_larger_ones_leave_a_part_unused() {
    let mut measured = Vec::new();
    for estimate in [1_000, 2_000, 4_000] {
        measured.push(utilisation(estimate).await);
    }
    assert!(measured[0].0 >= 0.97, "{measured:?}");
    assert!(measured[1].0 >= 0.90, "{measured:?}");
    // In means of a stream's use, 1,000 units: a stream reserves 4 and settles 1 of them over 32.5 s, so it has 3.5
    // reserved on average. So 60 / 3.5 streams run at a time, and each uses 1 in 32.5 s. The limit is 60 in 60 s.
    let formula = 60.0 / (32.5 * (4.0 - 0.5));
    assert!(
        (measured[2].0 - formula).abs() <= 0.05,
        "{measured:?}, not {formula}"
    );
    assert!(
        measured.iter().all(|(_, peak)| *peak <= 1.5),
        "{measured:?}"
    );
}
