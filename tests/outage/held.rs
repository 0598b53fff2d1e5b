//! Permits that are held when the server goes, and permits that are admitted without it. If the policy lets them go on,
//! they are *degraded*.
//!
//! Promises: P4, P19.

use crate::server::{
    BOUND, HELD, TWO_REFRESHES, assert_refused, builder, claim, degraded, granted, store,
    wait_until_back,
};
use std::time::Duration;
use testing::{proxy::Proxy, redis::RedisServer, resp::Raw, rig::Rig, wait::eventually};
use tokio::time::{sleep, timeout};
use tower_semaphore::{
    AcquireError, Claim, Lock, Permit, PermitLost, RedisSemaphore, Semaphore,
    redis::{self, WhenUnavailable},
};

/// The time within which a lease ends and its holder is notified, even on a busy machine.
const NOTIFIED: Duration = Duration::from_millis(3_500);

/// Waits until the server stores this number of units under a key.
async fn wait_until_stored(server: &RedisServer, name: &str, count: usize) {
    let mut raw = Raw::connect(server.port()).await;
    // The server also needs time to start.
    let within = TWO_REFRESHES + Duration::from_secs(2);
    eventually("the units are stored", within, async || {
        raw.zcard(name).await == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strict_claims_and_locks_are_lost_and_refused_whatever_the_policy() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    let strict = Claim::new("strict").with_limit(1).with_strict(true);
    let permit = store.acquire(strict.clone()).await.expect("there is room");
    let lock = Lock::new(store.clone(), "item");
    let guard = lock.try_acquire().await.expect("it is free");
    server.kill();
    drop(degraded(&store, 5).await);
    assert_refused(store.acquire(strict).await);
    assert!(Lock::new(store, "other").try_acquire().await.is_err());
    let losses = async {
        permit.lost().await;
        guard.lost().await;
    };
    let notified = timeout(NOTIFIED, losses).await;
    assert!(notified.is_ok() && permit.is_lost() && guard.is_lost());
}

/// The simulation uses only one timeout, a shorter one.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_permit_is_kept_with_the_longest_timeout_too() {
    let lease = Duration::from_secs(3);
    let short = builder(WhenUnavailable::Admit)
        .lease(lease)
        .timeout(lease / 3);
    let rigs = (0..5).map(|_| Rig::new(short.clone()));
    for rig in futures_util::future::join_all(rigs).await {
        let permit = granted(&rig.store, 5).await;
        // Longer than a refresh interval.
        sleep(lease * 8 / 15).await;
        assert!(!permit.is_lost());
        rig.proxy.black_hole();
        // Longer than a lease.
        assert!(timeout(lease * 5 / 3, permit.lost()).await.is_err());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_degraded_permit_becomes_lighter_but_not_heavier() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    server.kill();
    let permit = store.acquire(claim(5).with_weight(2)).await;
    let permit = permit.expect("the policy admits it");
    let error = permit.resize(3).await.expect_err("no server knows it");
    let AcquireError::Store { source: error, .. } = error else {
        panic!("{error:?}");
    };
    let source = std::error::Error::source(&error).expect("it has a cause");
    assert!(source.is::<redis::Error>() && !source.is::<PermitLost>());
    assert_eq!(permit.weight(), 2);
    permit.resize(1).await.expect("fewer are always granted");
    assert_eq!(permit.weight(), 1);
    server.restart();
    eventually("the server has it", BOUND, async || !permit.is_degraded()).await;
    wait_until_stored(&server, HELD, 1).await;
    permit.resize(3).await.expect("there is room");
    wait_until_stored(&server, HELD, 3).await;
}

/// A permit of two units in an outage. Another process has taken one of the units from the server, so only one is left
/// when the server is back. Returns the permit, and that of the other process.
async fn half_back(proxy: &Proxy, others: &RedisSemaphore) -> (Permit, Permit) {
    let apart = builder(WhenUnavailable::Admit).connect(proxy.url()).await;
    let apart = apart.expect("it connects");
    let permit = granted(&apart, 2).await;
    permit.resize(2).await.expect("there is room");
    proxy.black_hole();
    eventually("it is degraded", BOUND, async || permit.is_degraded()).await;
    let mut taken = None;
    eventually("its leases have ended", BOUND, async || {
        taken = others.acquire(claim(2)).await.ok();
        taken.is_some()
    })
    .await;
    proxy.forward();
    wait_until_back(&apart).await;
    (permit, taken.expect("it has just been granted"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_degraded_until_the_server_has_each_of_its_units() {
    for gives_up in [false, true] {
        let server = RedisServer::start();
        let proxy = Proxy::start(&server).await;
        let others = store(&server, WhenUnavailable::Refuse).await;
        let (permit, taken) = half_back(&proxy, &others).await;
        wait_until_stored(&server, HELD, 2).await;
        if gives_up {
            permit.resize(1).await.expect("fewer are always granted");
        } else {
            sleep(TWO_REFRESHES).await;
            assert!(
                permit.is_degraded(),
                "the server has only one of its two units"
            );
            assert!(!permit.is_lost() && taken.release().await);
        }
        eventually("it is whole", BOUND, async || !permit.is_degraded()).await;
        wait_until_stored(&server, HELD, 2).await;
        assert!(permit.release().await);
        // Unless the first permit gave a unit up, this one was released above.
        assert_eq!(taken.release().await, gives_up);
    }
}
