//! Compares the refusals of a limit in shadow with those of a limit in force, for the same random requests. Figures are
//! printed with `--nocapture`.
//!
//! Promises: P25.

use super::rig::{Noted, claims, job, run};
use std::time::Duration;
use testing::{
    rng::Rng,
    stores::{Store, memory},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower::{Layer, ServiceExt, service_fn};
use tower_semaphore::{Claim, ConcurrencyLimitLayer};

/// Requests that arrive independently of each other's outcome.
#[derive(Clone, Copy)]
struct Load {
    requests: usize,
    /// The mean time between two requests.
    apart: Duration,
    /// The mean time that each request runs.
    hold: Duration,
    wait: Duration,
    seed: u64,
}

/// The number of requests that the limit refuses, or would refuse if it is in shadow.
async fn refused(load: Load, store: Store, in_shadow: bool) -> usize {
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
    // In shadow, claims may still wait although their requests have run.
    tokio::time::sleep(load.wait + Duration::from_millis(500)).await;
    if in_shadow {
        assert!(statuses.iter().all(|status| *status == 200));
        store.refused()
    } else {
        let refused = statuses.iter().filter(|status| **status == 429);
        refused.count()
    }
}

/// Claims one or two of an account's three units, and the same number of the fleet's sixteen. Eight accounts take part.
fn two_limits(rng: &mut Rng) -> Vec<Claim> {
    // The first accounts are the busiest.
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

const WAITS: [u64; 2] = [0, 100];

/// The difference between the refusals in shadow and those of the limit in force, in percent of the latter.
async fn difference(name: &str, load: Load, stores: [Store; 2]) -> f64 {
    let [enforced, tried] = stores;
    // Both run at the same time, so that a disturbance affects both.
    let enforced = tokio::spawn(refused(load, enforced, false));
    let tried = tokio::spawn(refused(load, tried, true));
    let (enforced, tried) = tokio::try_join!(enforced, tried).expect("both end");
    let (enforced, tried) = (enforced as f64, tried as f64);
    let percent = (tried - enforced) / enforced * 100.0;
    println!(
        "{name}, wait {:?}: {} requests, {enforced} refused, {tried} in shadow: {percent:+.2} %",
        load.wait, load.requests
    );
    // With few refusals, the difference in percent would be noise.
    assert!(
        enforced * 10.0 > load.requests as f64,
        "{enforced} are too few"
    );
    percent.abs()
}

/// `slower` multiplies all times.
fn load(requests: usize, wait: u64, slower: u32) -> Load {
    Load {
        requests,
        apart: Duration::from_millis(4) * slower,
        hold: Duration::from_millis(60) * slower,
        wait: Duration::from_millis(wait) * slower,
        seed: 7,
    }
}

#[tokio::test(start_paused = true)]
async fn in_memory_a_limit_in_shadow_predicts_the_refusals_of_one_in_force() {
    for wait in WAITS {
        let stores = [memory(), memory()];
        let percent = difference("memory", load(5_000, wait, 1), stores).await;
        assert!(percent < 2.0, "{percent:.2} %");
    }
}

/// `SHADOW_REQUESTS` sets the number of requests. `SHADOW_SLOWER` multiplies their intervals and durations, so that the
/// time of a round trip matters less.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn over_redis_a_limit_in_shadow_predicts_roughly_the_refusals_of_one_in_force() {
    use std::env;
    use testing::{redis::RedisServer, stores::redis};

    let number = |name: &str| env::var(name).map(|text| text.parse().expect("a number"));
    let requests = number("SHADOW_REQUESTS").unwrap_or(500) as usize;
    let slower = number("SHADOW_SLOWER").unwrap_or(4);
    for wait in WAITS {
        let servers = [RedisServer::start(), RedisServer::start()];
        let stores = [
            redis(&servers[0].url()).await,
            redis(&servers[1].url()).await,
        ];
        let percent = difference("Redis", load(requests, wait, slower), stores).await;
        assert!(percent < 25.0, "{percent:.2} %");
    }
}
