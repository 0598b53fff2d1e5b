//! A server closes the connections of a store that is idle.

use super::{BOUND, claim};
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{Operate, Policy, RedisSemaphore, Semaphore, semaphore::Key};

#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_an_operator_that_may_run_only_once_succeeds_over_a_new_connection() {
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
        raw.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])
            .await;
        let revoked = operator.revoke(&policy, &key, &id).await;
        assert!(revoked.expect("only the connection has ended"));
        eventually("its holder is told", BOUND, async || permit.is_lost()).await;
    }
}
