//! Waiters whose round trip is long beside their lease.

use crate::common::{BOUND, SOON, builder, claim, ended, queued};
use std::time::Duration;
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, stall::StallWatch, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{
    Acquire, AcquireError, Permit, RedisSemaphore, Semaphore, semaphore::StoreError,
};

const LEASE: Duration = Duration::from_millis(300);
/// The longest that the lease allows.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Each way.
const DELAY: Duration = Duration::from_millis(40);
/// Where heartbeats come too late, each of them fails.
const ROUNDS: usize = 8;
/// A machine that stalls for longer may let any waiter of such a lease die.
const CALM: Duration = Duration::from_millis(50);

async fn store(url: String) -> RedisSemaphore {
    let store = builder(LEASE).timeout(TIMEOUT).connect(url).await;
    store.expect("it connects")
}

/// The token of a permit that is released at once; none if the wait ended before. An error if the
/// server did not answer in time: that says nothing of the order.
async fn token(acquire: Acquire) -> Result<Option<u64>, StoreError> {
    let permit = match acquire.await {
        Ok(permit) => permit,
        Err(AcquireError::Store(error)) => return Err(error),
        Err(_) => return Ok(None),
    };
    let token = permit.token();
    permit.release().await;
    Ok(Some(token))
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
) -> Result<[Option<u64>; 2], StoreError> {
    let holder = holder(near).await;
    let mut tasks = Vec::new();
    for (number, store) in (1..).zip(waiters) {
        let task = tokio::spawn(token(store.acquire(claim(1).with_wait(SOON))));
        eventually("it waits", BOUND, async || {
            queued(raw).await == number || task.is_finished()
        })
        .await;
        tasks.push(task);
    }
    sleep(LEASE * 3 / 2).await;
    holder.release().await;
    let mut tokens = [None; 2];
    for (token, task) in tokens.iter_mut().zip(tasks) {
        *token = ended("a waiter", task).await.expect("it did not panic")?;
    }
    Ok(tokens)
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
        let tokens = tokens(&near, waiters, &mut raw).await;
        let Ok([head, second]) = tokens else {
            continue;
        };
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
    assert!(judged > 0, "the machine or the link stalled in every round");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_the_queue_is_never_passed_over_by_a_waiter_as_far_from_the_server() {
    keep_their_order(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_head_of_the_queue_is_never_passed_over_by_a_waiter_nearer_to_the_server() {
    keep_their_order(true).await;
}
