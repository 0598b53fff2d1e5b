//! Heavy claims at a rate, and light claims beside them.

use crate::{
    offered::{TRIES, failures, offer},
    routes::keys,
};
use std::time::Duration;
use testing::{machine::alone, rig::Rig};
use tower_semaphore::RedisSemaphore;

/// A store behind a link with a round trip. A busy machine is no failure of it.
async fn far(round_trip: Duration) -> Rig {
    let rig = Rig::new(RedisSemaphore::builder().timeout(Duration::from_secs(1))).await;
    rig.proxy.delay(round_trip / 2, round_trip / 2);
    rig
}

/// Claims of a weight at a rate are granted, but for 10 %: more than half failed in each try when the
/// units in flight had a bound.
async fn are_granted(weight: u32, rate: u32, round_trip: Duration) {
    let _alone = alone().await;
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let rig = far(round_trip).await;
        let (failed, count) = failures(offer(&rig.store, keys(false, "key"), weight, rate)).await;
        if failed * 10 <= count {
            return;
        }
        tries.push((failed, count));
    }
    panic!("failed, of: {tries:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn forty_heavy_claims_a_second_over_a_long_link_are_granted() {
    are_granted(1_000, 40, Duration::from_millis(100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_hundred_claims_of_weight_100_a_second_over_a_link_of_20_ms_are_granted() {
    are_granted(100, 400, Duration::from_millis(20)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eighty_heavy_claims_a_second_fail_no_light_claim() {
    let _alone = alone().await;
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let rig = far(Duration::from_millis(20)).await;
        let light = offer(&rig.store, keys(false, "light"), 1, 500);
        let heavy = offer(&rig.store, keys(false, "heavy"), 300, 80);
        let (failed, count) = failures(light).await;
        failures(heavy).await;
        if failed * 10 <= count {
            return;
        }
        tries.push((failed, count));
    }
    panic!("light claims that failed, of: {tries:?}");
}
