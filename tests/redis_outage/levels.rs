//! Several limits while the server is unavailable.

use crate::server::{BOUND, is_refused, store};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Claim, Claims, Permit, Semaphore, redis::WhenUnavailable};

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
    assert!(permit.levels().iter().all(Permit::is_degraded));
    let names: Vec<_> = permit
        .tokens()
        .iter()
        .map(|(policy, _)| policy.to_string())
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

#[tokio::test(flavor = "multi_thread")]
async fn a_share_is_decided_for_all_levels_or_none() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::ShareOf(0.5)).await;
    server.kill();
    let mut permits = Vec::new();
    for account in ["a", "b", "c", "a", "b", "c"] {
        permits.extend(store.acquire_all(claims(account, 8)).await);
    }
    assert_eq!(permits.len(), 4, "half of the fleet's eight");
    // What the wide limit refused holds nothing of the narrow one.
    let alone = Claim::new("c").with_limit(4);
    let one = store
        .acquire(alone.clone())
        .await
        .expect("`c` has one of two");
    is_refused(store.acquire(alone).await);
    drop((one, permits));
    permits_of_both(&store).await;
}

async fn permits_of_both(store: &tower_semaphore::RedisSemaphore) {
    let both = [
        store.acquire_all(claims("c", 8)).await,
        store.acquire_all(claims("c", 8)).await,
    ];
    assert!(both.iter().all(Result::is_ok));
    is_refused(store.acquire_all(claims("c", 8)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_strict_level_makes_all_strict() {
    let mut server = RedisServer::start();
    let store = store(&server, WhenUnavailable::Admit).await;
    server.kill();
    let strict = Claim::new("a").with_limit(4).with_strict(true);
    let fleet = Claim::new("all").with_policy("fleet").with_limit(8);
    for _ in 0..5 {
        is_refused(
            store
                .acquire_all([strict.clone(), fleet.clone()].into())
                .await,
        );
    }
}
