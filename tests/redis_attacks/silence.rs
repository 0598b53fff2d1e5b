//! Connections that go silent: nothing closes, nothing is answered.

use crate::support::{
    proxy::{End, Proxy, Seen},
    rig::{BOUND, Rig},
    wait::eventually,
};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
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
    sleep(3 * TIMEOUT).await;
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
    // A store subscribes once when it connects, to see whether it may.
    proxy.clear_log();
    let held = Claim::new("bob").with_limit(1);
    let _permit = store.acquire(held.clone()).await.expect("there is room");
    // A waiter makes its store subscribe.
    let waiting = tokio::spawn(store.acquire(held.with_wait(BOUND)));
    let subscribed = || proxy.count(b"SUBSCRIBE") + proxy.count(b"PSUBSCRIBE");
    eventually("it subscribes", BOUND, async || subscribed() > 0).await;
    let (mut seen, before) = (0, subscribed());
    for _ in 0..300 {
        if subscribed() > seen {
            seen = subscribed();
            proxy.kill(End::Close);
        }
        sleep(Duration::from_millis(10)).await;
    }
    // 50 ms, then twice as long each time: six within three seconds.
    let made = subscribed() - before;
    assert!((1..15).contains(&made), "{made} subscriptions in 3 s");
    waiting.abort();
}

/// How long it takes from the end of the `number`th subscription to the next one.
async fn pause(proxy: &Proxy, number: usize) -> Duration {
    let made = |seen: &Seen| seen.args[0].eq_ignore_ascii_case(b"SUBSCRIBE");
    let subscribed = || proxy.log().into_iter().filter(made).map(|seen| seen.at);
    let is_made = async |count| {
        eventually("it subscribes", BOUND, async || {
            subscribed().count() >= count
        })
        .await;
    };
    is_made(number).await;
    let end = Instant::now();
    proxy.kill(End::Close);
    is_made(number + 1).await;
    let next = subscribed().nth(number).expect("it is made");
    next.saturating_duration_since(end)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_pauses_twice_as_long_before_each_subscription_up_to_2_s_until_one_lasts() {
    const LONGEST: Duration = Duration::from_secs(2);
    let rig = rig().await;
    // Without the subscription that the store makes when it connects, to see whether it may.
    rig.proxy.clear_log();
    let held = Claim::new("bob").with_limit(1);
    let _permit = rig
        .store
        .acquire(held.clone())
        .await
        .expect("there is room");
    let waiting = tokio::spawn(rig.store.acquire(held.with_wait(BOUND * 3)));
    let mut pauses = Vec::new();
    for number in 1..=8 {
        let shortest = (Duration::from_millis(50) * (1 << (number - 1))).min(LONGEST);
        pauses.push(pause(&rig.proxy, number).await);
        assert!(pauses[number - 1] >= shortest, "{pauses:?}");
    }
    assert!(pauses[7] < LONGEST * 2, "{pauses:?}");
    sleep(LONGEST * 3 / 2).await;
    let first = pause(&rig.proxy, 9).await;
    assert!(first < LONGEST * 3 / 4, "{first:?} after {pauses:?}");
    waiting.abort();
}
