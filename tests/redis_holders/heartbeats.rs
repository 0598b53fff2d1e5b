//! Waiters whose round trip is long beside their lease.

use crate::{
    common::{BOUND, SOON, builder, claim, ended, queued},
    support::{proxy::Proxy, redis::RedisServer, resp::Raw, stall::StallWatch, wait::eventually},
};
use std::time::Duration;
use tokio::time::sleep;
use tower_semaphore::{Acquire, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(300);
/// The longest that the lease allows.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Each way.
const DELAY: Duration = Duration::from_millis(40);
const ROUNDS: usize = 20;
/// A machine that stalls for longer may let any waiter of such a lease die.
const CALM: Duration = Duration::from_millis(50);

async fn store(url: String) -> RedisSemaphore {
    let store = builder(LEASE).timeout(TIMEOUT).connect(url).await;
    store.expect("it connects")
}

/// The token of a permit that is given back at once; none if the wait ended before.
async fn token(acquire: Acquire) -> Option<u64> {
    let permit = acquire.await.ok()?;
    let token = permit.token();
    permit.release().await;
    Some(token)
}

/// The only permit, once what a round before left behind is gone.
async fn holder(near: &RedisSemaphore) -> Permit {
    let mut holder = None;
    eventually("it is free", BOUND, async || {
        holder = near.acquire(claim(1)).await.ok();
        holder.is_some()
    })
    .await;
    holder.expect("it was granted")
}

/// The tokens of two waiters, in the order of their arrival, that waited for more than a lease.
async fn tokens(
    near: &RedisSemaphore,
    waiters: [&RedisSemaphore; 2],
    raw: &mut Raw,
) -> [Option<u64>; 2] {
    let holder = holder(near).await;
    let wait = |at: &RedisSemaphore| tokio::spawn(token(at.acquire(claim(1).with_wait(SOON))));
    let head = wait(waiters[0]);
    eventually("the head waits", BOUND, async || queued(raw).await == 1).await;
    let second = wait(waiters[1]);
    eventually("both wait", BOUND, async || queued(raw).await == 2).await;
    sleep(LEASE * 3 / 2).await;
    holder.release().await;
    let head = ended("the head", head).await.expect("it did not panic");
    let second = ended("the second", second).await.expect("it did not panic");
    [head, second]
}

/// The head is far away from the server, and the second perhaps near.
async fn keep_their_order(second_is_near: bool) {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let (near, far) = (store(server.url()).await, store(proxy.url()).await);
    let mut raw = Raw::connect(server.port()).await;
    proxy.delay(DELAY, DELAY);
    let waiters = [&far, if second_is_near { &near } else { &far }];
    let mut judged = 0;
    for _ in 0..ROUNDS * 3 {
        let watch = StallWatch::start();
        let [head, second] = tokens(&near, waiters, &mut raw).await;
        if watch.longest() > CALM {
            continue;
        }
        judged += 1;
        let in_order = head.is_some() && (second.is_none() || head < second);
        assert!(in_order, "round {judged}: {head:?} before {second:?}");
        if judged == ROUNDS {
            return;
        }
    }
    assert!(judged > 0, "the machine stalled in every round");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_the_queue_is_never_passed_over_by_a_waiter_as_far_from_the_server() {
    keep_their_order(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_the_queue_is_never_passed_over_by_a_waiter_nearer_to_the_server() {
    keep_their_order(true).await;
}
