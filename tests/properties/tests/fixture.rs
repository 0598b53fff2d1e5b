//! Runs scenarios: permits lose their leases while their holders still run.

use crate::{
    case::{BOUND, Outcome},
    driver::Driver,
    holder::{Holder, Settled},
    scenario::Scenario,
    server::Redis,
    waiter::Waiter,
};
use proptest::prelude::*;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// A scenario that runs.
pub(crate) struct Fixture {
    pub(crate) key: usize,
    pub(crate) limit: u32,
    pub(crate) holders: Vec<Holder>,
    /// The waiters in the order of their arrival.
    pub(crate) queue: Vec<QueuedClaim>,
    /// The latest end of a lease at the start.
    pub(crate) end: f64,
}

/// A claim in the queue.
pub(crate) struct QueuedClaim {
    pub(crate) waiter: Waiter,
    pub(crate) weight: u32,
    pub(crate) is_short: bool,
}

/// Runs the scenarios to their end, all at once.
pub(crate) async fn run(driver: &mut Redis, scenarios: Vec<Scenario>) -> Outcome {
    let mut fixtures = Vec::new();
    for (key, scenario) in scenarios.into_iter().enumerate() {
        fixtures.push(Fixture::begin(driver, key, scenario).await);
    }
    let keys = fixtures.len();
    for fixture in &mut fixtures {
        until(async || fixture.is_settled(driver).await).await?;
    }
    drop(fixtures);
    until(async || {
        let mut left = 0;
        for key in 0..keys {
            let (held, queue) = driver.inspect(key).await;
            left += held as usize + queue.len();
        }
        Ok((left == 0)
            .then_some(())
            .ok_or("a unit or a waiter is left at the end"))
    })
    .await
}

/// Waits until the condition is settled. An error ends the wait at once.
async fn until(mut condition: impl AsyncFnMut() -> Result<Settled, TestCaseError>) -> Outcome {
    let start = Instant::now();
    loop {
        let late = start.elapsed() > BOUND;
        match condition().await? {
            Ok(()) => return Ok(()),
            Err(missing) => prop_assert!(!late, "after {BOUND:?}: {missing}"),
        }
        sleep(Duration::from_millis(5)).await;
    }
}

impl Fixture {
    async fn begin(driver: &mut Redis, key: usize, scenario: Scenario) -> Self {
        let taken: u32 = scenario.holders.iter().map(|(weight, _)| weight).sum();
        let mut fixture = Self {
            key,
            limit: taken + scenario.spare,
            holders: Vec::new(),
            queue: Vec::new(),
            end: 0.0,
        };
        for (weight, _) in &scenario.holders {
            assert!(fixture.try_one(driver, 0, *weight).await, "there is room");
        }
        for (id, waiter) in scenario.waiters.into_iter().enumerate() {
            fixture.wait(driver, id, waiter).await;
        }
        fixture.apply(driver, scenario.holders).await;
        for weight in scenario.late_claims {
            fixture.try_one(driver, 1, weight).await;
        }
        let units = driver.units(key).await;
        fixture.end = units.iter().map(|(_, end)| *end).fold(0.0, f64::max);
        fixture
    }
}
