//! Sentinels that are gone or that have missed a failover.
//!
//! No failover runs here: each Sentinel is configured with the primary that it names.
//!
//! Promises: P18.

use super::{BOUND, claim, naming_since_epoch, patient, scripts, works};
use std::{thread, time::Duration};
use testing::{
    causes::causes,
    redis::{RedisServer, Sentinels},
    resp::Raw,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, RedisSemaphore, Semaphore};

async fn connect(sentinels: &[RedisServer]) -> RedisSemaphore {
    let urls = sentinels.iter().map(RedisServer::url);
    let builder = patient().lease(Duration::from_secs(60));
    let store = builder.connect_sentinel(urls, Sentinels::NAME).await;
    store.expect("it connects")
}

/// Closes all connections to a server.
async fn cut(server: &RedisServer) {
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
        .await;
}

/// Asserts that for a second all claims fail and none reaches the server.
async fn assert_grants_nothing(store: &RedisSemaphore, server: &RedisServer) {
    for _ in 0..10 {
        let answer = store.acquire(claim()).await;
        assert!(
            matches!(answer, Err(AcquireError::Store { .. })),
            "{answer:?}"
        );
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(scripts(server).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sentinels_the_last_named_primary_serves_even_after_a_cut() {
    let primary = RedisServer::start();
    let mut sentinels = [0; 3].map(|_| naming_since_epoch(&primary, 1));
    let store = connect(&sentinels).await;
    let held = store.acquire(claim()).await.expect("there is room");
    sentinels.iter_mut().for_each(RedisServer::kill);
    for _ in 0..2 {
        cut(&primary).await;
        // Under a high limit, because a permit is held.
        eventually("it serves", BOUND, async || {
            store.acquire(claim().with_limit(10_000)).await.is_ok()
        })
        .await;
    }
    // A new runtime must connect for the first time, or use the keeper's connection.
    let other = store.clone();
    let serves = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("it starts");
        runtime.block_on(eventually("it serves there", BOUND, async || {
            other.acquire(claim().with_limit(10_000)).await.is_ok()
        }));
    };
    thread::spawn(serves).join().expect("no panic");
    assert!(held.release().await, "it was held all the time");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_missed_the_last_failover_is_not_followed_when_the_others_are_gone() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let mut sentinels = [
        naming_since_epoch(&old, 3),
        naming_since_epoch(&new, 7),
        naming_since_epoch(&new, 7),
    ];
    let store = connect(&sentinels).await;
    assert!(works(&store).await);
    sentinels[1..].iter_mut().for_each(RedisServer::kill);
    // Long enough that the store also polls the outdated Sentinel, once per second.
    for _ in 0..3 {
        cut(&new).await;
        eventually("it serves", BOUND, async || works(&store).await).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(scripts(&old).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_sentinels_a_primary_that_was_started_again_gets_no_claims() {
    let mut primary = RedisServer::start();
    let mut sentinels = [0; 3].map(|_| naming_since_epoch(&primary, 1));
    let store = connect(&sentinels).await;
    let _held = store.acquire(claim()).await.expect("there is room");
    sentinels.iter_mut().for_each(RedisServer::kill);
    // The restarted server is empty, and another server may have replaced it while it was down.
    primary.restart();
    assert_grants_nothing(&store, &primary).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_sentinel_of_three_does_not_vouch_for_a_primary_that_was_started_again() {
    let mut primary = RedisServer::start();
    let mut sentinels = [0; 3].map(|_| naming_since_epoch(&primary, 1));
    let store = connect(&sentinels).await;
    let _held = store.acquire(claim()).await.expect("there is room");
    sentinels[1..].iter_mut().for_each(RedisServer::kill);
    cut(&primary).await;
    eventually("it serves", BOUND, async || {
        store.acquire(claim().with_limit(10_000)).await.is_ok()
    })
    .await;
    // The other two Sentinels may have promoted another primary, and this process cannot learn that.
    primary.restart();
    assert_grants_nothing(&store, &primary).await;
}

/// The primary cannot report its role, because its user has only the rights that the docs require, without INFO.
#[tokio::test(flavor = "multi_thread")]
async fn without_info_a_new_connection_to_a_primary_needs_most_sentinels() {
    let primary = RedisServer::start();
    let mut raw = Raw::connect(primary.port()).await;
    let rule = "ACL SETUSER ann on >battery-staple ~* &* +@all -info";
    let rule: Vec<_> = rule.split(' ').collect();
    assert_eq!(raw.cmd(&rule).await.text(), "OK");
    let mut sentinels = [0; 3].map(|_| naming_since_epoch(&primary, 1));
    let urls = sentinels.iter().map(RedisServer::url);
    let builder = patient().fixed_credentials("ann", "battery-staple");
    let store = builder.connect_sentinel(urls, Sentinels::NAME).await;
    let store = store.expect("it connects");
    let _held = store.acquire(claim()).await.expect("there is room");
    sentinels[1..].iter_mut().for_each(RedisServer::kill);
    cut(&primary).await;
    eventually("the reason is reported", BOUND, async || {
        let answer = store.acquire(claim().with_limit(10_000)).await;
        answer.is_err_and(|error| causes(&error).contains("without INFO it is not known"))
    })
    .await;
}
