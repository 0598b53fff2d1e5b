//! Degraded permits when the server is back.

use crate::server::{BOUND, HELD, TWO_REFRESHES, claim, degraded, granted, is_back, store};
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{
    AcquireError, Claim, Claims, Permit, PermitLost, RedisSemaphore, Semaphore,
    redis::{self, WhenUnavailable},
};

/// For a busy machine, in which a server has to start, too.
const SLACK: Duration = Duration::from_secs(2);

async fn until_in_the_books(server: &RedisServer, count: usize) {
    let mut raw = Raw::connect(server.port()).await;
    let within = TWO_REFRESHES + SLACK;
    eventually("they are in the books", within, async || {
        raw.zcard(HELD).await == count
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn degraded_permits_are_in_the_books_within_two_refreshes() {
    for policy in [WhenUnavailable::Admit, WhenUnavailable::ShareOf(0.5)] {
        let mut server = RedisServer::start();
        let store = store(&server, policy).await;
        let before = granted(&store, 20).await;
        server.kill();
        let mut permits = vec![before];
        for _ in 0..7 {
            permits.push(degraded(&store, 20).await);
        }
        server.restart();
        until_in_the_books(&server, 8).await;
        let all_told = async || permits.iter().all(|permit| !permit.is_degraded());
        eventually("each permit knows it", BOUND, all_told).await;
        assert!(
            permits
                .iter()
                .all(|permit| permit.token().is_some() && !permit.is_lost())
        );
        let mut tokens: Vec<_> = permits.iter().map(Permit::token).collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 8, "two have the same token");
        for permit in permits {
            assert!(permit.release().await, "it was held");
        }
        until_in_the_books(&server, 0).await;
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
    eventually("it is in the books", BOUND, async || !permit.is_degraded()).await;
    until_in_the_books(&server, 1).await;
    permit.resize(3).await.expect("there is room");
    until_in_the_books(&server, 3).await;
}

/// A permit of two units, of which the other process has taken one meanwhile.
async fn half_back(proxy: &testing::proxy::Proxy, others: &RedisSemaphore) -> (Permit, Permit) {
    let builder = crate::server::builder(WhenUnavailable::Admit);
    let apart = builder.connect(proxy.url()).await.expect("it connects");
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
    is_back(&apart).await;
    (permit, taken.expect("it has just been granted"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_degraded_until_all_that_was_added_to_it_has_its_place() {
    let server = RedisServer::start();
    let proxy = testing::proxy::Proxy::start(&server).await;
    let others = store(&server, WhenUnavailable::Refuse).await;
    let (permit, taken) = half_back(&proxy, &others).await;
    until_in_the_books(&server, 2).await;
    tokio::time::sleep(TWO_REFRESHES).await;
    assert!(permit.is_degraded(), "one of its two units has no place");
    assert!(!permit.is_lost() && taken.release().await);
    eventually("it gets in", BOUND, async || !permit.is_degraded()).await;
    until_in_the_books(&server, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_gives_up_what_has_no_place_is_degraded_no_more() {
    let server = RedisServer::start();
    let proxy = testing::proxy::Proxy::start(&server).await;
    let others = store(&server, WhenUnavailable::Refuse).await;
    let (permit, taken) = half_back(&proxy, &others).await;
    until_in_the_books(&server, 2).await;
    permit.resize(1).await.expect("fewer are always granted");
    eventually("it is whole", BOUND, async || !permit.is_degraded()).await;
    until_in_the_books(&server, 2).await;
    assert!(taken.release().await && permit.release().await);
}

fn claims(account: &'static str, wide: u32) -> Claims {
    let account = Claim::new(account).with_limit(4);
    let fleet = Claim::new("all").with_policy("fleet").with_limit(wide);
    [account, fleet].into()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_degraded_permit_covers_all_its_levels() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    server.kill();
    let permit = store.acquire_all(claims("a", 8)).await;
    let permit = permit.expect("the policy admits it");
    assert!(permit.is_degraded() && permit.levels().len() == 2);
    let names: Vec<_> = permit
        .levels()
        .map(|level| level.policy().as_str())
        .collect();
    assert_eq!(names, ["concurrency", "fleet"]);
    server.restart();
    let mut raw = Raw::connect(server.port()).await;
    eventually("all levels are in the books", BOUND, async || {
        !permit.is_degraded()
    })
    .await;
    assert_eq!(raw.zcard("semaphore:{concurrency:a}:held").await, 1);
    assert_eq!(raw.zcard("semaphore:{fleet:all}:held").await, 1);
}
