//! Random histories of a budget, judged by the bound on used units over every interval and by an account in whole
//! milliseconds.
//!
//! Promises: P26.

use super::*;
use testing::rng::Rng;
use tokio::time::{Instant, advance};

/// A budget as its user counts it.
struct Account {
    limit: u64,
    /// In ms.
    window: u64,
    /// Spent units × `window`, so that each millisecond returns `limit` of them.
    spent: u64,
    reserved: u64,
    /// The uses: the millisecond, and the units.
    used: Vec<(u64, u64)>,
    now: u64,
}

impl Account {
    /// Lets time pass, in which spent units return.
    fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.spent = self.spent.saturating_sub(self.limit);
        }
        self.now += millis;
    }

    fn spend(&mut self, units: u64) {
        self.spent += units * self.window;
        self.used.push((self.now, units));
    }

    fn fits(&self, units: u64) -> bool {
        self.spent + (self.reserved + units) * self.window <= self.limit * self.window
    }

    /// Checks the bound over each interval that begins and ends with a use.
    fn check_bound(&self) {
        for (at, (begin, _)) in self.used.iter().enumerate() {
            let mut total = 0;
            for (end, units) in &self.used[at..] {
                total += units;
                let bound = self.limit * (self.window + end - begin);
                assert!(
                    total * self.window <= bound,
                    "{total} units from {begin} to {end} ms"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn random_use_stays_within_the_bound_and_no_unit_is_lost() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut below = |end: u64| rng.below(end as usize) as u64;
        let (limit, window) = (1 + below(200), 1 + below(3_000));
        let mut account = Account {
            limit,
            window,
            spent: 0,
            reserved: 0,
            used: Vec::new(),
            now: 0,
        };
        let store = MemorySemaphore::new();
        let time = Duration::from_millis(window);
        // Each permit with its estimate, and the units that it has settled.
        let mut running: Vec<(Permit, u64, Option<u64>)> = Vec::new();
        for _ in 0..400 {
            match below(5) {
                0 => {
                    let millis = below(window / 4 + 2);
                    advance(Duration::from_millis(millis)).await;
                    account.pass(millis);
                }
                1 => {
                    let units = 1 + below(limit);
                    let claim = rate(limit as u32, time).with_policy("tokens");
                    let answer = answer(&store, claim.with_weight(units as u32));
                    assert_eq!(answer.is_ok(), account.fits(units), "{seed}: {answer:?}");
                    if answer.is_ok() {
                        account.spend(units);
                    }
                }
                2 => {
                    let units = 1 + below(limit);
                    let answer = answer(&store, tokens(limit as u32, time, units as u32));
                    assert_eq!(answer.is_ok(), account.fits(units), "{seed}: {answer:?}");
                    if let Ok(permit) = answer {
                        account.reserved += units;
                        running.push((permit, units, None));
                    }
                }
                3 if !running.is_empty() => {
                    let at = below(running.len() as u64) as usize;
                    let (permit, units, settled) = &mut running[at];
                    let used = below(*units + 1);
                    assert!(permit.settle("tokens", used as u32));
                    let before = settled.unwrap_or(0);
                    let after = before.max(used);
                    *settled = Some(after);
                    account.reserved -= after - before;
                    account.spend(after - before);
                }
                4 if !running.is_empty() => {
                    let at = below(running.len() as u64) as usize;
                    let (permit, units, settled) = running.swap_remove(at);
                    drop(permit);
                    account.reserved -= units - settled.unwrap_or(0);
                    if settled.is_none() {
                        account.spend(units);
                    }
                }
                _ => {}
            }
            let (spent, reserved) = in_use(&store, "tokens").await;
            let expected = (account.spent.div_ceil(window), account.reserved);
            assert_eq!((u64::from(spent), u64::from(reserved)), expected, "{seed}");
        }
        account.check_bound();
        running.clear();
        // Nothing is reserved any more, and all spent units return.
        advance(4 * time).await;
        drop(granted(&store, tokens(limit as u32, time, limit as u32)));
    }
}

/// A claim that takes all that it can get uses the whole limit in each window.
#[tokio::test(start_paused = true)]
async fn a_year_of_steady_claims_uses_the_whole_limit() {
    let (store, limit) = (MemorySemaphore::new(), 7);
    let day = 24 * 60 * MINUTE;
    let (start, mut used) = (Instant::now(), 0);
    while start.elapsed() < 365 * day {
        drop(granted(&store, rate(limit, day)));
        used += 1;
        if let Err(AcquireError::Full { retry_after, .. }) = answer(&store, rate(limit, day)) {
            advance(retry_after.expect("time makes room")).await;
        } else {
            used += 1;
        }
    }
    // The first day has a full budget from its start, and the last claim may be one too many.
    assert!((7 * 365..=7 * 366 + 1).contains(&used), "{used}");
}

#[tokio::test(start_paused = true)]
async fn the_largest_and_the_smallest_budgets_are_exact() {
    for (limit, window) in [
        (1, 1),
        (1, 31 * 86_400_000),
        (u32::MAX, 1),
        (u32::MAX, 31 * 86_400_000),
        (3, 7),
    ] {
        let (store, time) = (MemorySemaphore::new(), Duration::from_millis(window));
        drop(granted(&store, rate(limit, time).with_weight(limit)));
        let (_, spent, left) = refused(&store, rate(limit, time));
        let left = left.expect("time makes room");
        assert_eq!(spent, limit);
        // The first unit returns after window ÷ limit, rounded up to a nanosecond.
        let exact = (u128::from(window) * 1_000_000).div_ceil(u128::from(limit));
        assert_eq!(left.as_nanos(), exact);
        advance(left - Duration::from_nanos(1)).await;
        refused(&store, rate(limit, time));
        advance(Duration::from_nanos(1)).await;
        drop(granted(&store, rate(limit, time)));
        advance(2 * time).await;
        drop(granted(&store, rate(limit, time).with_weight(limit)));
    }
}
