//! Connections that go silent: nothing closes, nothing is answered.

use std::time::{Duration, Instant};
use testing::{
    proxy::End,
    rig::{BOUND, Rig},
    wait::eventually,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const TIMEOUT: Duration = Duration::from_millis(400);
/// How many connections the server has accepted since its start.
const CONNECTIONS: &str = "total_connections_received";

async fn rig() -> Rig {
    Rig::new(RedisSemaphore::builder().timeout(TIMEOUT)).await
}

/// A claim whose caller gives up after this time; `None` if no permit came by then.
async fn acquire(store: &RedisSemaphore, patience: Duration) -> Option<Permit> {
    let claim = Claim::new("ann").with_limit(1_000);
    timeout(patience, store.acquire(claim)).await.ok()?.ok()
}

#[tokio::test]
async fn a_silent_connection_is_replaced_although_every_caller_gives_up_early() {
    let rig = rig().await;
    let Rig { proxy, store, .. } = &rig;
    proxy.kill(End::Silence);
    let granted = async || acquire(store, TIMEOUT / 8).await.is_some();
    eventually("an impatient caller is granted", BOUND, granted).await;
}

#[tokio::test]
async fn one_claim_without_an_answer_is_enough_to_replace_a_silent_connection() {
    let rig = rig().await;
    let Rig { proxy, store, .. } = &rig;
    proxy.kill(End::Silence);
    assert!(acquire(store, BOUND).await.is_none(), "nothing answers");
    // A ping of a second tells that the connection is of no use, and it is made again.
    sleep(Duration::from_secs(2)).await;
    let next = acquire(store, BOUND).await;
    assert!(next.is_some(), "the connection was replaced meanwhile");
}

#[tokio::test]
async fn hang_ups_do_not_replace_a_connection_that_is_only_slow() {
    // Its keeper has connected, too.
    let mut rig = rig().await;
    let before = rig.raw.stat(CONNECTIONS).await;
    rig.proxy.delay(TIMEOUT / 4, TIMEOUT / 4);
    for _ in 0..40 {
        assert!(acquire(&rig.store, TIMEOUT / 8).await.is_none());
    }
    let granted = async || acquire(&rig.store, BOUND).await.is_some();
    eventually("a patient caller is granted", BOUND, granted).await;
    assert_eq!(rig.raw.stat(CONNECTIONS).await, before);
}

#[tokio::test]
async fn subscriptions_that_end_at_once_are_not_made_in_a_busy_loop() {
    let rig = rig().await;
    let Rig { proxy, store, .. } = &rig;
    let held = Claim::new("bob").with_limit(1);
    let _permit = store.acquire(held.clone()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(held.with_wait(BOUND)));
    let subscribed = || proxy.count(b"SUBSCRIBE") + proxy.count(b"PSUBSCRIBE");
    eventually("it subscribes", BOUND, async || subscribed() > 0).await;
    let (mut seen, before, start) = (0, subscribed(), Instant::now());
    for _ in 0..300 {
        if subscribed() > seen {
            seen = subscribed();
            proxy.kill(End::Close);
        }
        sleep(Duration::from_millis(10)).await;
    }
    // A pause of 100 ms lies before each.
    let (made, took) = (subscribed() - before, start.elapsed());
    let most = took.as_millis() as usize / 100;
    assert!(
        (1..=most).contains(&made),
        "{made} subscriptions in {took:?}"
    );
    waiting.abort();
}
