//! How near a limit in shadow comes to the limit in force. Figures are printed with `--nocapture`.

use super::simulated::{Load, refused};
use std::time::Duration;
use testing::stores::{Store, memory};

const WAITS: [u64; 2] = [0, 100];

/// The difference is in percent of the refusals of the limit in force.
async fn difference(name: &str, load: Load, stores: [Store; 2]) -> f64 {
    let [enforced, tried] = stores;
    // At the same time, so that what disturbs one disturbs both.
    let enforced = tokio::spawn(refused(load, enforced, false));
    let tried = tokio::spawn(refused(load, tried, true));
    let (enforced, tried) = tokio::try_join!(enforced, tried).expect("both end");
    let (enforced, tried) = (enforced as f64, tried as f64);
    let percent = (tried - enforced) / enforced * 100.0;
    println!(
        "{name}, wait {:?}: {} requests, {enforced} refused, {tried} in shadow: {percent:+.2} %",
        load.wait, load.requests
    );
    assert!(
        enforced * 10.0 > load.requests as f64,
        "{enforced} are too few"
    );
    percent.abs()
}

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
async fn in_memory_the_refusals_are_those_of_the_limit_in_force() {
    for wait in WAITS {
        let stores = [memory(), memory()];
        let percent = difference("memory", load(20_000, wait, 1), stores).await;
        assert!(percent < 2.0, "{percent:.2} %");
    }
}

/// `SHADOW_REQUESTS` sets how many, and `SHADOW_SLOWER` how many times as far apart and as long: then a
/// round trip weighs less, and the difference is a figure.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn over_redis_the_refusals_are_about_those_of_the_limit_in_force() {
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
