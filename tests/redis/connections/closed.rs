//! Idle connections of a store that end or fall silent.
//!
//! Promises: P18.

use super::{BOUND, claim};
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, rig::Rig, wait::eventually};
use tower_semaphore::{Operate, Policy, RedisSemaphore, Semaphore, semaphore::Key};

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_call_that_must_run_once_succeeds_after_its_connection_was_closed() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let operator = builder.clone().operator(true).connect(server.url()).await;
    let operator = operator.expect("it connects");
    let (policy, key) = (Policy::DEFAULT, Key::from("ann"));
    for _ in 0..5 {
        let holder = builder
            .clone()
            .connect(server.url())
            .await
            .expect("it connects");
        let permit = holder.acquire(claim()).await.expect("there is room");
        let usage = operator.usage(&policy, &key).await.expect("it answers");
        let id = usage.held[0].id.clone();
        let kill = ["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"];
        // At least one connection of the operator and one of the holder.
        assert!(raw.cmd(&kill).await.int() >= 2);
        let revoked = operator.revoke(&policy, &key, &id).await;
        assert!(revoked.expect("only the connection has ended"));
        eventually("the holder is notified", BOUND, async || permit.is_lost()).await;
    }
}

/// The call tests the connection first. If the test is not answered, the call itself was not sent.
#[tokio::test(flavor = "multi_thread")]
async fn an_operators_call_over_a_silent_connection_reports_that_it_was_not_sent() {
    let timeout = Duration::from_millis(500);
    let rig = Rig::new(RedisSemaphore::builder().timeout(timeout)).await;
    let (policy, key) = (Policy::DEFAULT, Key::from("ann"));
    let permit = rig.store.acquire(claim()).await.expect("there is room");
    let usage = rig.store.usage(&policy, &key).await.expect("it answers");
    let id = usage.held[0].id.clone();
    rig.proxy.black_hole();
    let revoked = rig.store.revoke(&policy, &key, &id).await;
    let error = revoked.expect_err("the connection is silent");
    let error = format!("{error:?}");
    rig.proxy.forward();
    assert!(error.contains("no connection to Redis"), "{error}");
    eventually("it answers again", BOUND, async || {
        let usage = rig.store.usage(&policy, &key).await;
        usage.is_ok_and(|usage| usage.held.len() == 1)
    })
    .await;
    drop(permit);
}
