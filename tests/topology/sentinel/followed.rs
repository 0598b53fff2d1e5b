//! What Sentinels say is followed, and what a server says of its role.
//!
//! One Sentinel is told to watch one server or another. So both servers are primaries and can be
//! reached, as after a failover that the old primary has not noticed.

use super::{BOUND, claim, patient, scripts, watch, works};
use std::{
    thread,
    time::{Duration, Instant},
};
use testing::{
    redis::{RedisServer, Sentinels, sentinel},
    resp::Raw,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore, redis::ConnectError};

async fn connect(sentinel: &RedisServer) -> Result<RedisSemaphore, ConnectError> {
    let builder = patient().lease(Duration::from_secs(60));
    builder
        .connect_sentinel([sentinel.url()], Sentinels::NAME)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_replaced_gets_no_claims_although_it_can_be_reached() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinel = sentinel(servers[0].client_port(), 1);
    let store = connect(&sentinel).await.expect("it connects");
    assert!(works(&store).await);
    watch(&sentinel, &servers[1], 1).await;
    // A permit of the old primary is released on the new one, which does not know it.
    let many = claim().with_limit(10_000);
    eventually("it is left", BOUND, async || {
        assert!(store.acquire(many.clone()).await.is_ok());
        scripts(&servers[1]).await > 0
    })
    .await;
    // Each runtime has connections of its own, and so has the keeper: they all have to leave.
    sleep(Duration::from_millis(500)).await;
    let before = scripts(&servers[0]).await;
    for _ in 0..20 {
        assert!(works(&store).await);
    }
    assert_eq!(scripts(&servers[0]).await, before);
}

/// Claims on a runtime of its own, until its own connection goes to this server. What it claims first
/// may go over the keeper's connection, and stay behind.
fn goes_elsewhere(store: &RedisSemaphore, new: &RedisServer) {
    let other = Claim::new("elsewhere").with_limit(10_000);
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("it starts");
        runtime.block_on(async {
            let before = scripts(new).await;
            eventually("it is left", BOUND, async || {
                drop(store.acquire(other.clone()).await);
                scripts(new).await > before
            })
            .await;
        });
    };
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_runtime_finds_the_primary_replaced_all_others_leave_it_too() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinel = sentinel(servers[0].client_port(), 1);
    let store = connect(&sentinel).await.expect("it connects");
    for round in 0..3 {
        let (old, new) = (&servers[round % 2], &servers[(round + 1) % 2]);
        eventually("it serves", BOUND, async || works(&store).await).await;
        watch(&sentinel, new, 1).await;
        // Before the Sentinel is looked at again.
        goes_elsewhere(&store, new);
        sleep(Duration::from_secs(3)).await;
        let before = scripts(old).await;
        for _ in 0..20 {
            assert!(works(&store).await);
        }
        assert_eq!(scripts(old).await, before, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_woken_by_the_new_primary() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinel = sentinel(servers[0].client_port(), 1);
    let store = connect(&sentinel).await.expect("it connects");
    let first = store.acquire(claim()).await.expect("there is room");
    let queued = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    let mut raw = Raw::connect(servers[0].port()).await;
    eventually("the store is subscribed", BOUND, async || {
        !raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:*"])
            .await
            .array()
            .is_empty()
    })
    .await;
    watch(&sentinel, &servers[1], 1).await;
    let mut raw = Raw::connect(servers[1].port()).await;
    eventually("the store is subscribed there", BOUND, async || {
        !raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:*"])
            .await
            .array()
            .is_empty()
    })
    .await;
    // That primary knows nothing of the first permit, and would take it back if there is room.
    drop(first);
    let second = queued
        .await
        .expect("no panic")
        .expect("it is granted there");
    let waiting = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    eventually("it waits", BOUND, async || {
        raw.zcard("semaphore:{concurrency:ann}:queue").await == 1
    })
    .await;
    let start = Instant::now();
    assert!(second.release().await);
    let third = waiting.await.expect("no panic").expect("it is granted");
    let took = start.elapsed();
    assert!(
        took < Duration::from_secs(2),
        "a poll would be later: {took:?}"
    );
    drop(third);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_it_is_no_primary_gets_no_claims() {
    let primary = RedisServer::start();
    let port = primary.client_port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    let sentinel = sentinel(replica.client_port(), 1);
    let error = connect(&sentinel).await.expect_err("it is a replica");
    assert!(
        matches!(error, ConnectError::Unavailable { .. }),
        "{error:?}"
    );
    assert!(format!("{error:?}").contains("no primary"), "{error:?}");
    assert_eq!(scripts(&replica).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_becomes_a_replica_is_left_for_the_one_that_sentinels_name() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinel = sentinel(servers[0].client_port(), 1);
    let store = connect(&sentinel).await.expect("it connects");
    assert!(works(&store).await);
    let port = servers[1].client_port().to_string();
    let mut old = Raw::connect(servers[0].port()).await;
    old.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
    // READONLY, and then a role that is not a primary's.
    let refused = store.acquire(claim()).await;
    assert!(
        matches!(refused, Err(AcquireError::Store { .. })),
        "{refused:?}"
    );
    watch(&sentinel, &servers[1], 1).await;
    eventually("it serves", BOUND, async || works(&store).await).await;
    assert!(scripts(&servers[1]).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sentinel_that_is_cut_off_is_not_followed() {
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let watching = |server: &RedisServer, epoch: u32| {
        let (name, port) = (Sentinels::NAME, server.client_port());
        let content = format!(
            "sentinel monitor {name} 127.0.0.1 {port} 2\nsentinel config-epoch {name} {epoch}\n"
        );
        RedisServer::with_configuration(&["--sentinel"], &content)
    };
    // It has missed the last failover.
    let sentinels = [watching(&old, 3), watching(&new, 7), watching(&new, 7)];
    let urls = sentinels.each_ref().map(RedisServer::url);
    for _ in 0..5 {
        let store = patient()
            .connect_sentinel(urls.clone(), Sentinels::NAME)
            .await;
        assert!(works(&store.expect("it connects")).await);
    }
    assert_eq!(scripts(&old).await, 0);
    assert!(scripts(&new).await > 0);
}
