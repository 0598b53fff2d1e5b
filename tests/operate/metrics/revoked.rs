//! What is counted of revocations over Redis.

use super::exposition::{install, value};
use futures_util::FutureExt;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{AcquireError, Claim, Operate, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);
const LOST: &str = "tower_semaphore_lost_permits_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_is_revoked_while_it_waits_has_lost_nothing() {
    install();
    let policy = "revoked";
    let claim = || Claim::new("a").with_limit(1).with_policy(policy);
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let permit = store.acquire(claim()).await.expect("there is room");
    // Its task does not run while the keeper is told.
    let mut waiter = store.acquire(claim().with_wait(Duration::from_secs(60)));
    let (of, key) = (policy.into(), "a".into());
    let mut shown = None;
    while shown.is_none() {
        assert!((&mut waiter).now_or_never().is_none(), "there is no room");
        let usage = store.usage(&of, &key).await.expect("it answers");
        shown = Some(usage).filter(|usage| usage.waiting.len() == 1);
    }
    let usage = shown.expect("it waits");
    // Until messages arrive.
    let channel = format!("semaphore:wake:{}", usage.held[0].process.id);
    let mut raw = Raw::connect(server.port()).await;
    eventually("it listens", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", &channel]).await;
        channels.first().is_some()
    })
    .await;
    for id in [&usage.waiting[0].id, &usage.held[0].id] {
        assert!(store.revoke(&of, &key, id).await.expect("it answers"));
    }
    permit.lost().await;
    let lost = |by| value(LOST, &[("policy", policy), ("by", by)]);
    eventually("it is counted", BOUND, async || lost("revoked") > 0.0).await;
    assert_eq!((lost("revoked"), lost("lease")), (1.0, 0.0));
    let answer = waiter.await;
    assert!(matches!(answer, Err(AcquireError::Revoked)), "{answer:?}");
}
