//! The server's clock is set back by an hour while claims wait.

use super::BOUND;
use std::time::Duration;
use testing::{clock::SteppedClock, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const HOUR: i64 = 3_600;
const QUEUE: &str = "semaphore:{concurrency:a}:queue";
/// Less than the clock is set back by.
const HEAD_START: Duration = Duration::from_secs(30);

/// Claims before the clock is set back and after, with and without a head start. Returns their ids
/// in the order of the queue, as numbers of their arrival.
async fn queue(head_starts: [u32; 8]) -> Vec<usize> {
    let clock = SteppedClock::compile();
    let server = clock.server();
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let claim = Claim::new("a").with_limit(1);
    let held = store.acquire(claim.clone()).await.expect("there is room");
    let mut waiters = Vec::new();
    for (number, head_start) in head_starts.into_iter().enumerate() {
        if number == 4 {
            clock.set(-HOUR);
        }
        let claim = claim.clone().with_head_start(HEAD_START * head_start);
        waiters.push(tokio::spawn(store.acquire(claim.with_wait(BOUND))));
        let queued = async || raw.zcard(QUEUE).await == number + 1;
        eventually("it waits", BOUND, queued).await;
    }
    drop(held);
    let mut tokens = Vec::new();
    for (number, waiter) in waiters.into_iter().enumerate() {
        // Released at once, so that the next is granted.
        let release = tokio::spawn(async move {
            let permit = waiter.await.expect("no panic").expect("it is granted");
            let token = permit.token();
            assert!(permit.release().await);
            (token, number)
        });
        tokens.push(release);
    }
    let mut order = Vec::new();
    for token in tokens {
        order.push(token.await.expect("no panic"));
    }
    order.sort_unstable();
    order.into_iter().map(|(_, number)| number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_without_head_starts_keep_their_order_when_the_clock_is_set_back() {
    assert_eq!(queue([0; 8]).await, [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_with_head_starts_keep_their_order_when_the_clock_is_set_back() {
    let order = queue([0, 1, 0, 1, 0, 1, 0, 1]).await;
    assert_eq!(order, [1, 3, 5, 7, 0, 2, 4, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_claim_after_the_clock_was_set_back_does_not_pass_those_with_head_starts() {
    assert_eq!(
        queue([1, 1, 1, 1, 0, 0, 1, 1]).await,
        [0, 1, 2, 3, 6, 7, 4, 5]
    );
}
