//! A revocation of which no message arrives.

use super::{ALIVE, LEASE, first, granted, listens, revoke, started, stays_revoked, store, usage};
use crate::BOUND;
use std::time::Duration;
use testing::{proxy::Proxy, stores::connection, wait::eventually};
use tokio::time::{sleep, timeout};
use tower_semaphore::{AcquireError, RedisSemaphore, Semaphore, redis::WhenUnavailable};

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_is_told_by_its_next_refresh_and_never_gets_the_permit_back() {
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let [holder, operator] = [
        store(&proxy.url(), LEASE).await,
        store(&server.url(), LEASE).await,
    ];
    // One unit comes back under its own id, several under another one.
    for weight in [1, 3] {
        let permit = granted(&holder, weight).await;
        let info = first(&operator).await;
        listens(&mut raw, &info.process.id).await;
        assert!(revoke(&operator, &info.id).await);
        timeout(BOUND, permit.lost()).await.expect("it is told");
        stays_revoked(&permit, &mut raw).await;
    }
}

/// Longer than the test.
const LONG: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_whose_subscription_is_cut_is_told_when_it_has_subscribed_anew_whatever_the_lease()
{
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let [holder, operator] = [
        store(&proxy.url(), LONG).await,
        store(&server.url(), LONG).await,
    ];
    let permit = granted(&holder, 1).await;
    let info = first(&operator).await;
    listens(&mut raw, &info.process.id).await;
    assert!(revoke(&operator, &info.id).await);
    assert!(!permit.is_lost());
    proxy.drop_messages(false);
    raw.cmd(&["CLIENT", "KILL", "TYPE", "PUBSUB"]).await;
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_revoked_before_its_process_listens_is_told_of_whatever_the_lease() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LONG).await;
    let permit = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_grew_does_not_come_back_in_part() {
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let [holder, operator] = [
        store(&proxy.url(), LEASE).await,
        store(&server.url(), LEASE).await,
    ];
    let permit = granted(&holder, 2).await;
    for weight in [5, 4, 9] {
        permit.resize(weight).await.expect("there is room");
    }
    assert!(revoke(&operator, &first(&operator).await.id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_over_a_supplied_connection_is_told_by_its_next_refresh() {
    let (server, mut raw) = started().await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    let holder = builder.with_connection(connection(&server.url()).await);
    let holder = holder.expect("the settings are right");
    let permit = granted(&holder, 1).await;
    assert!(revoke(&holder, &first(&holder).await.id).await);
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waits_is_told_by_its_next_poll() {
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let [holder, operator] = [
        store(&proxy.url(), LEASE).await,
        store(&server.url(), LEASE).await,
    ];
    let permit = granted(&holder, 9).await;
    let wait = Duration::from_secs(60);
    let waiter = tokio::spawn(holder.acquire(super::claim(1).with_wait(wait)));
    eventually("it waits", BOUND, async || {
        usage(&operator).await.waiting.len() == 1
    })
    .await;
    let id = usage(&operator).await.waiting.remove(0).id;
    assert!(revoke(&operator, &id).await);
    // There is room when it polls next, and nobody else waits.
    assert!(permit.release().await);
    let answer = timeout(BOUND, waiter)
        .await
        .expect("an answer")
        .expect("no panic");
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
    assert_eq!(raw.zcard(super::HELD).await, 0);
}

/// The holder's connection is dead while its permit is revoked, for longer than its lease.
async fn revoked_in_an_outage(policy: WhenUnavailable, weight: u32) {
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    let builder = builder.when_unavailable(policy);
    let holder = builder.connect(proxy.url()).await.expect("it connects");
    let operator = store(&server.url(), LEASE).await;
    let permit = granted(&holder, weight).await;
    let id = first(&operator).await.id;
    proxy.black_hole();
    assert!(revoke(&operator, &id).await);
    sleep(LEASE + LEASE / 2).await;
    // Somebody else has used the key and its queue meanwhile.
    let other = granted(&operator, 9).await;
    let waits = super::claim(9).with_wait(Duration::from_secs(60));
    let next = tokio::spawn(operator.acquire(waits));
    eventually("it waits", BOUND, async || {
        usage(&operator).await.waiting.len() == 1
    })
    .await;
    drop(other);
    drop(next.await.expect("no panic").expect("a permit"));
    eventually("it is free", BOUND, async || {
        usage(&operator).await.units == 0
    })
    .await;
    proxy.forward();
    timeout(BOUND, permit.lost()).await.expect("it is told");
    stays_revoked(&permit, &mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_revoked_in_an_outage_of_its_holder_does_not_come_back() {
    revoked_in_an_outage(WhenUnavailable::Refuse, 1).await;
    revoked_in_an_outage(WhenUnavailable::Refuse, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_goes_on_without_redis_does_not_come_back_if_it_was_revoked() {
    revoked_in_an_outage(WhenUnavailable::Admit, 1).await;
    revoked_in_an_outage(WhenUnavailable::Admit, 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_answer_is_lost_and_that_is_revoked_meanwhile_holds_nothing() {
    let (server, mut raw) = started().await;
    let proxy = Proxy::start(&server).await;
    proxy.drop_messages(true);
    let [holder, operator] = [
        store(&proxy.url(), LEASE).await,
        store(&server.url(), LEASE).await,
    ];
    // Warm, so that the next reply is that of the claim.
    assert!(granted(&holder, 1).await.release().await);
    proxy.delay(Duration::ZERO, Duration::from_millis(500));
    let claim = tokio::spawn(holder.acquire(super::claim(1)));
    eventually("it is held", BOUND, async || {
        usage(&operator).await.units == 1
    })
    .await;
    // Its reply is on its way, and takes the connection with it; so it is sent again.
    assert!(revoke(&operator, &first(&operator).await.id).await);
    proxy.kill(testing::proxy::End::Reset);
    proxy.delay(Duration::ZERO, Duration::ZERO);
    let answer = timeout(BOUND, claim)
        .await
        .expect("an answer")
        .expect("no panic");
    let held = answer.map(|permit| (permit.is_lost(), permit));
    assert!(!matches!(held, Ok((false, _))), "{held:?}");
    drop(held);
    eventually("nothing is held", BOUND, async || {
        raw.zcard(super::HELD).await == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_remembered_of_revocations_is_little_and_ends() {
    let (server, mut raw) = started().await;
    let store = store(&server.url(), LEASE).await;
    for _ in 0..20 {
        let permit = granted(&store, 3).await;
        assert!(revoke(&store, &first(&store).await.id).await);
        drop(permit);
    }
    let remembered = raw.zmembers(ALIVE).await;
    assert_eq!(remembered.len(), 20, "{remembered:?}");
    let ttl = raw.cmd(&["PTTL", ALIVE]).await.int();
    assert!((3_500_000..=3_600_000).contains(&ttl), "{ttl}");
    // As if an hour had passed for all but one of them.
    for (member, score) in &remembered[1..] {
        let earlier = (score + 3_600_001.0).to_string();
        let args: [&[u8]; 4] = [b"ZADD", ALIVE.as_bytes(), earlier.as_bytes(), member];
        raw.cmd(&args).await;
    }
    let _permit = granted(&store, 1).await;
    assert!(revoke(&store, &first(&store).await.id).await);
    assert_eq!(raw.zcard(ALIVE).await, 2);
}
