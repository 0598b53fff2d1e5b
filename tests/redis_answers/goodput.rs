//! More claims than a slow link carries.

use crate::{
    load::{Tally, alone, answer, offer},
    rig::{BOUND, Rig},
};
use std::time::Duration;
use tower_semaphore::{Claim, RedisSemaphore};

/// Each way.
const DELAY: Duration = Duration::from_millis(50);
const TIME: Duration = Duration::from_secs(3);
const TRIES: usize = 4;
/// What the lower rate counts for at least, so that a slow moment does not hide a collapse.
const LEAST: usize = 4_500;

/// The outcomes of claims at a rate, each on one of many keys with room for all.
async fn offered(rate: u64) -> Tally {
    let mut rig = Rig::new(RedisSemaphore::builder()).await;
    rig.proxy.delay(DELAY, DELAY);
    let one = |number: u64| {
        let claim = Claim::new(number % 100).with_limit(10_000);
        let answer = answer(rig.store.clone(), claim);
        async { answer.await.0 }
    };
    let tally: Tally = offer(rate, TIME, one).await.into_iter().collect();
    rig.nothing_is_left(BOUND).await;
    tally
}

/// Whether the goodput at a higher rate is so much of that at a lower one, and both.
async fn kept_up(rate: u64, percent: usize) -> (bool, [Tally; 2]) {
    let few = offered(2_000).await;
    let many = offered(rate).await;
    let all_answered = few.unanswered + many.unanswered == 0;
    let kept_up = many.granted * 100 >= few.granted.max(LEAST) * percent;
    (all_answered && kept_up, [few, many])
}

/// A collapse leaves a third at twice as much, a sixth at four times as much, and in each of the
/// tries. A busy machine costs less than that, because it has no time left for so many tasks.
async fn keeps_up(rate: u64, percent: usize) {
    let _alone = alone().await;
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let (kept_up, tallies) = kept_up(rate, percent).await;
        if kept_up {
            return;
        }
        tries.push(tallies);
    }
    panic!("at 2,000/s and at {rate}/s: {tries:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn goodput_over_a_slow_link_stays_when_twice_as_much_is_offered() {
    keeps_up(4_000, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn goodput_over_a_slow_link_stays_when_four_times_as_much_is_offered() {
    keeps_up(8_000, 50).await;
}
