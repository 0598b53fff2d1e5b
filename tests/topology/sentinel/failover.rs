//! Failovers of a real primary.
//!
//! Promises: P4, P18.

use super::{BOUND, claim, patient, scripts, works};
use std::time::{Duration, Instant};
use testing::{machine::beside_others, redis::Sentinels, resp::Raw, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, Operate, Policy, RedisSemaphore, Semaphore};

async fn store(sentinels: &Sentinels) -> RedisSemaphore {
    let store = patient().lease(Duration::from_secs(60));
    let store = store
        .connect_sentinel(sentinels.urls(), Sentinels::NAME)
        .await;
    store.expect("it connects")
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_the_replica_serves_and_the_returning_primary_gets_nothing() {
    let _share = beside_others().await;
    let mut sentinels = Sentinels::start().await;
    let store = store(&sentinels).await;
    assert!(works(&store).await);
    sentinels.server_mut(0).kill();
    eventually("the replica is promoted", BOUND, async || {
        sentinels.is_primary(1).await
    })
    .await;
    eventually("it serves", BOUND, async || works(&store).await).await;
    // At first the restarted server is an empty primary, which would grant the held permit again.
    let _held = store.acquire(claim()).await.expect("there is room");
    sentinels.server_mut(0).restart();
    eventually("it is a replica", BOUND, async || {
        assert!(store.acquire(claim()).await.is_err(), "it is granted twice");
        !sentinels.is_primary(0).await
    })
    .await;
    // The server closes connections when it becomes a replica, so the query may fail at first.
    eventually("it answers as a replica", BOUND, async || {
        let mut raw = sentinels.raw(0).await;
        let info = raw.try_cmd(&["INFO", "replication"]).await;
        info.is_ok_and(|info| info.text().contains("role:slave"))
    })
    .await;
    assert_eq!(scripts(sentinels.server(0)).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_replaced_while_it_was_silent_gets_no_claim_when_it_answers_again() {
    let _share = beside_others().await;
    let sentinels = Sentinels::start().await;
    let store = store(&sentinels).await;
    assert!(works(&store).await);
    sentinels.server(0).stop();
    sentinels.until_named(1).await;
    eventually("it serves", BOUND, async || works(&store).await).await;
    sentinels.server(0).cont();
    // Commands that were sent to the server before may run now.
    sleep(Duration::from_millis(500)).await;
    let before = scripts(sentinels.server(0)).await;
    eventually("it is a replica", BOUND, async || {
        assert!(works(&store).await);
        !sentinels.is_primary(0).await
    })
    .await;
    assert_eq!(scripts(sentinels.server(0)).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_failover_loses_no_permit_and_wakes_waiters_on_the_new_primary() {
    let _share = beside_others().await;
    let sentinels = Sentinels::start().await;
    let store = store(&sentinels).await;
    let permit = store.acquire(claim()).await.expect("there is room");
    let mut sentinel = Raw::connect(sentinels.sentinel(0).port()).await;
    let command = ["SENTINEL", "FAILOVER", Sentinels::NAME];
    assert_eq!(sentinel.cmd(&command).await.text(), "OK");
    sentinels.until_named(1).await;
    eventually("it serves", BOUND, async || {
        matches!(store.acquire(claim()).await, Err(AcquireError::Full { .. }))
    })
    .await;
    let waiting = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    let mut raw = sentinels.raw(1).await;
    eventually("it waits, and the store is subscribed", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:*"]).await;
        let waits = raw.zcard("semaphore:2:{concurrency:ann}:queue").await == 1;
        waits && !channels.array().is_empty()
    })
    .await;
    let start = Instant::now();
    assert!(permit.release().await, "it was held all the time");
    let waiter = waiting.await.expect("no panic").expect("it is granted");
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(2),
        "a poll would be later: {took:?}"
    );
    assert!(waiter.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_requested_failover_loses_no_unit_of_a_budget() {
    let _share = beside_others().await;
    let sentinels = Sentinels::start().await;
    let store = store(&sentinels).await;
    // In this window almost no units come back while the test runs.
    let month = Duration::from_secs(30 * 24 * 60 * 60);
    let tokens = |estimate| {
        claim()
            .with_limit(100)
            .with_window(month)
            .with_estimate(estimate)
    };
    let permit = store.acquire(tokens(50)).await.expect("there is room");
    assert!(permit.settle(Policy::DEFAULT, 20));
    let used = store.acquire(tokens(30)).await.expect("there is room");
    assert!(used.release().await, "its 30 are spent");
    let mut sentinel = Raw::connect(sentinels.sentinel(0).port()).await;
    let command = ["SENTINEL", "FAILOVER", Sentinels::NAME];
    assert_eq!(sentinel.cmd(&command).await.text(), "OK");
    sentinels.until_named(1).await;
    let in_use = async || {
        let usage = store.usage(&Policy::DEFAULT, &"ann".into()).await.ok()?;
        let budget = usage.budgets.first()?;
        Some((budget.spent, budget.reserved))
    };
    let used_and_reserved = async || in_use().await.map(|(spent, reserved)| spent + reserved);
    eventually("it serves", BOUND, async || {
        used_and_reserved().await.is_some()
    })
    .await;
    // Of the first permit 20 are spent and 30 reserved, and of the second 30 are spent.
    assert_eq!(used_and_reserved().await, Some(80));
    let refused = store.acquire(tokens(21)).await;
    assert!(
        matches!(refused, Err(AcquireError::Full { .. })),
        "{refused:?}"
    );
    assert!(permit.release().await, "it was held all the time");
    assert_eq!(in_use().await, Some((50, 0)));
}
