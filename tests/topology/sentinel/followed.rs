//! The store follows the Sentinels' reports and each server's own report of its role.
//!
//! One Sentinel is made to watch one server and then another. So both servers are primaries and reachable, as after a
//! failover that the old primary has not noticed.
//!
//! Promises: P18.

use super::{BOUND, claim, patient, scripts, watch, works};
use std::{thread, time::Duration};
use testing::{
    redis::{RedisServer, Sentinels, sentinel},
    resp::Raw,
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{
    AcquireError, Claim, RedisSemaphore, Semaphore,
    redis::{ConnectError, Kind},
};

async fn connect(sentinel: &RedisServer) -> Result<RedisSemaphore, ConnectError> {
    let builder = patient().lease(Duration::from_secs(60));
    builder
        .connect_sentinel([sentinel.url()], Sentinels::NAME)
        .await
}

/// Claims on a separate runtime until that runtime's own connection leads to this server. Its first claims may use the
/// keeper's connection, and stay on the old server.
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
        // This happens before the store looks at the Sentinel again.
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
async fn a_server_that_says_it_is_no_primary_gets_no_claims() {
    let primary = RedisServer::start();
    let port = primary.client_port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    let sentinel = sentinel(replica.client_port(), 1);
    let error = connect(&sentinel).await.expect_err("it is a replica");
    assert_eq!(error.kind(), Kind::Unavailable, "{error:?}");
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
    // The server answers READONLY, and then reports that it is no primary.
    let refused = store.acquire(claim()).await;
    assert!(
        matches!(refused, Err(AcquireError::Store { .. })),
        "{refused:?}"
    );
    watch(&sentinel, &servers[1], 1).await;
    eventually("it serves", BOUND, async || works(&store).await).await;
    assert!(scripts(&servers[1]).await > 0);
}
