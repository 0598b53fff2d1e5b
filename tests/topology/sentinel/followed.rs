//! The store follows the Sentinels' reports, and each server's own report of its role.
//!
//! The tests reconfigure one Sentinel to name another server. So both servers are reachable primaries, as after a
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

/// Claims in a separate runtime until this runtime has a connection to the new server. Until then its claims may use
/// the keeper's connection to the old one.
fn claim_elsewhere(store: &RedisSemaphore, new: &RedisServer) {
    let other = Claim::new("elsewhere").with_limit(10_000);
    let run = || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().expect("it starts");
        runtime.block_on(async {
            let before = scripts(new).await;
            eventually("the new server gets scripts", BOUND, async || {
                drop(store.acquire(other.clone()).await);
                scripts(new).await > before
            })
            .await;
        });
    };
    thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_one_runtime_finds_a_new_primary_all_others_leave_the_old_one() {
    let servers = [RedisServer::start(), RedisServer::start()];
    let sentinel = sentinel(servers[0].client_port(), 1);
    let store = connect(&sentinel).await.expect("it connects");
    for round in 0..3 {
        let (old, new) = (&servers[round % 2], &servers[(round + 1) % 2]);
        eventually("it serves", BOUND, async || works(&store).await).await;
        watch(&sentinel, new, 1).await;
        // The new runtime learns of the new primary before the store polls the Sentinel again.
        claim_elsewhere(&store, new);
        // The time within which all others leave the old server.
        sleep(Duration::from_secs(3)).await;
        let before = scripts(old).await;
        for _ in 0..20 {
            assert!(works(&store).await);
        }
        assert_eq!(scripts(old).await, before, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_reports_being_a_replica_gets_no_claims() {
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
async fn a_primary_that_becomes_a_replica_is_left_for_the_one_named_by_sentinels() {
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
