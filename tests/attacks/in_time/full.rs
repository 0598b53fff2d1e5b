//! A key that is full while its releases never cease.

use super::load::{Tally, hot_request, offer};
use std::time::Duration;
use testing::machine::alone;
use testing::rig::{BOUND, Rig};
use tower_semaphore::RedisSemaphore;

/// The budget of a claim is 500 ms; the rest is for a busy machine.
const IN_TIME: Duration = Duration::from_millis(2_500);

/// A claim that is not answered in it would not be later either.
const TIME: Duration = Duration::from_secs(3);

async fn answers_on_a_hot_key(delay: Duration) -> Tally {
    let _alone = alone().await;
    let mut rig = Rig::new(RedisSemaphore::builder()).await;
    rig.proxy.delay(delay, delay);
    let one = |number| hot_request(rig.store.clone(), number);
    let tally: Tally = offer(4_000, TIME, one).await.into_iter().collect();
    rig.nothing_is_left(BOUND).await;
    tally
}

fn all_in_time(tally: &Tally) {
    assert_eq!(tally.unanswered, 0, "{tally:?}");
    assert!(tally.slowest < IN_TIME, "{tally:?}");
    assert!(tally.granted > 0 && tally.full > 0, "{tally:?}");
    assert_eq!(tally.other, 0, "{tally:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_claim_on_a_full_key_is_answered_while_releases_never_cease() {
    all_in_time(&answers_on_a_hot_key(Duration::from_millis(2)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_claim_on_a_full_key_is_answered_over_a_slow_link_too() {
    all_in_time(&answers_on_a_hot_key(Duration::from_millis(20)).await);
}
