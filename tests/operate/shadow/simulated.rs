//! The same random requests under a limit in force and under one in shadow.

use super::rig::{Noted, claims, job, run};
use std::time::Duration;
use testing::{rng::Rng, stores::Store};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer};

/// Requests that come whatever becomes of the others.
#[derive(Clone, Copy)]
pub(crate) struct Load {
    pub(crate) requests: usize,
    /// The mean time between two.
    pub(crate) apart: Duration,
    /// The mean time for which each runs.
    pub(crate) hold: Duration,
    pub(crate) wait: Duration,
    pub(crate) seed: u64,
}

/// How many are refused.
pub(crate) async fn refused(load: Load, store: Store, in_shadow: bool) -> usize {
    let store = Noted::new(store);
    let service = ConcurrencyLimitLayer::new(3, claims, store.clone())
        .with_wait(load.wait)
        .with_max_waiting(4)
        .with_shadow(in_shadow)
        .layer(service_fn(run));
    let mut rng = Rng::new(load.seed);
    let mut at = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..load.requests {
        at += exponential(&mut rng, load.apart);
        let hold = exponential(&mut rng, load.hold).as_millis() as u64;
        let request = job(two_limits(&mut rng), hold);
        let service = service.clone();
        sleep_until(at).await;
        running.spawn(async move {
            let Ok(answer) = service.oneshot(request).await;
            answer.status()
        });
    }
    let statuses = running.join_all().await;
    // What would have waited may still do so.
    tokio::time::sleep(load.wait + Duration::from_millis(500)).await;
    match in_shadow {
        true => {
            assert!(statuses.iter().all(|status| *status == 200));
            store.refused()
        }
        false => {
            let refused = statuses.iter().filter(|status| **status == 429);
            refused.count()
        }
    }
}

/// One account of eight, one or two units of its three, and as many of the fleet's sixteen.
fn two_limits(rng: &mut Rng) -> Vec<Claim> {
    let account = rng.below(8).min(rng.below(8));
    let weight = 1 + rng.below(2) as u32;
    let fleet = Claim::new("all").with_policy("fleet").with_limit(16);
    [Claim::new(account as u64), fleet]
        .map(|claim| claim.with_weight(weight))
        .into()
}

fn exponential(rng: &mut Rng, mean: Duration) -> Duration {
    let part = (rng.below(1_000_000) + 1) as f64 / 1e6;
    mean.mul_f64(-part.ln())
}
