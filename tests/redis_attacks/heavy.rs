//! Heavy claims at a rate, and light claims beside them.

use crate::support::{machine::alone, rig::Rig};
use futures_util::future::join_all;
use std::time::Duration;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep_until},
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const TIME: Duration = Duration::from_secs(3);
/// How often a rate is offered at most: a busy machine fails some claims, but not each time.
const TRIES: usize = 3;

type Answer = JoinHandle<Result<Permit, AcquireError>>;

/// A store behind a link with a round trip. A busy machine is no failure of it.
async fn far(round_trip: Duration) -> Rig {
    let rig = Rig::new(RedisSemaphore::builder().timeout(Duration::from_secs(1))).await;
    rig.proxy.delay(round_trip / 2, round_trip / 2);
    rig
}

/// Offers claims of a weight at a rate per second, each for a key of its own.
fn offer(rig: &Rig, weight: u32, rate: u32) -> JoinHandle<Vec<Answer>> {
    let store = rig.store.clone();
    tokio::spawn(async move {
        let start = Instant::now();
        let mut answers = Vec::new();
        for number in 0..rate * TIME.as_secs() as u32 {
            sleep_until(start + Duration::from_secs(1) * number / rate).await;
            let claim = Claim::new(format!("{weight}-{number}"));
            let claim = claim.with_limit(weight).with_weight(weight);
            answers.push(tokio::spawn(store.acquire(claim)));
        }
        answers
    })
}

/// How many claims fail, of how many.
async fn failures(offered: JoinHandle<Vec<Answer>>) -> (usize, usize) {
    let answers = join_all(offered.await.expect("no panic")).await;
    let count = answers.len();
    let errors = answers
        .into_iter()
        .filter(|answer| !matches!(answer, Ok(Ok(_))));
    (errors.count(), count)
}

/// Claims of a weight at a rate are granted, but for 10 %: more than half failed in each try when the
/// units in flight had a bound.
async fn are_granted(weight: u32, rate: u32, round_trip: Duration) {
    let _alone = alone().await;
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let rig = far(round_trip).await;
        let (failed, count) = failures(offer(&rig, weight, rate)).await;
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
        let (light, heavy) = (offer(&rig, 1, 500), offer(&rig, 300, 80));
        let (failed, count) = failures(light).await;
        failures(heavy).await;
        if failed * 10 <= count {
            return;
        }
        tries.push((failed, count));
    }
    panic!("light claims that failed, of: {tries:?}");
}
