//! Grants that count only once replicas have them.
//!
//! Promises: P1, P24.

use std::{error::Error as _, time::Duration};
use testing::{
    redis::{RedisServer, Replicated},
    resp::Raw,
    stores::connected,
    wait::eventually,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{
    AcquireError, Claim, Operate, Permit, Policy, RedisSemaphore, Semaphore,
    redis::{Error, Kind, WhenUnavailable},
};

/// Generous, because no test that uses it measures time.
const BOUND: Duration = Duration::from_secs(20);
const HELD: &str = "semaphore:2:{concurrency:a}:held";

/// A primary and a replica that receives everything after a delay.
struct Servers(Replicated);

impl Servers {
    async fn start(lag: Duration) -> Self {
        Self(Replicated::start(lag).await)
    }

    async fn store(&self, min_replicas: u32) -> RedisSemaphore {
        self.store_with(min_replicas, WhenUnavailable::Refuse).await
    }

    /// A store whose timeout tolerates a busy machine.
    async fn store_with(&self, min_replicas: u32, policy: WhenUnavailable) -> RedisSemaphore {
        let builder = RedisSemaphore::builder()
            .timeout(Duration::from_secs(2))
            .lease(Duration::from_secs(8))
            .when_unavailable(policy);
        let store = builder.min_replicas(min_replicas);
        connected(async || store.clone().connect(self.0.primary.url()).await).await
    }

    /// The number of held units, by the primary's data.
    async fn held(&self) -> usize {
        Raw::connect(self.0.primary.port()).await.zcard(HELD).await
    }
}

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

/// The text of the error of a claim, which must be that no replica has confirmed it.
fn unavailable(answer: Result<Permit, AcquireError>) -> String {
    let error = answer.expect_err("no replica has it");
    let error = error
        .source()
        .and_then(|source| source.downcast_ref::<Error>());
    let error = error.expect("it is an error of the store");
    assert_eq!(error.kind(), Kind::Unavailable);
    error.to_string()
}

const NOT_REPLICATED: &str = "min_replicas: only 0 replicas of Redis have it in time";

#[tokio::test]
async fn the_replica_has_each_grant_before_its_claim_is_answered() {
    let servers = Servers::start(Duration::from_millis(200)).await;
    let store = servers.store(1).await;
    let mut replica = Raw::connect(servers.0.replica.port()).await;
    let mut permits = Vec::new();
    for count in 1..=3 {
        permits.push(store.acquire(claim(3)).await.expect("there is room"));
        assert_eq!(replica.zcard(HELD).await, count);
    }
    let waiting = store.acquire(claim(3).with_wait(BOUND));
    let waiting = tokio::spawn(waiting);
    permits.pop();
    let granted = waiting.await.expect("it does not panic");
    let granted = granted.expect("a unit is free");
    let held = replica.zmembers(HELD).await;
    assert_eq!(held.len(), 3, "{held:?}");
    drop((granted, permits));
}

#[tokio::test]
async fn while_the_replica_is_silent_claims_are_refused_and_leave_nothing() {
    let servers = Servers::start(Duration::ZERO).await;
    let store = servers.store(1).await;
    servers.0.replica.stop();
    assert_eq!(unavailable(store.acquire(claim(3)).await), NOT_REPLICATED);
    // Within less than a lease of 8 s, so it was released and did not expire.
    eventually("it is released", Duration::from_secs(6), async || {
        servers.held().await == 0
    })
    .await;
    servers.0.replica.cont();
    servers.0.until_replicated().await;
    let permit = store.acquire(claim(3)).await;
    assert!(permit.is_ok_and(|permit| !permit.is_lost()));
}

#[tokio::test]
async fn while_the_replica_is_silent_operators_see_who_holds_what() {
    let servers = Servers::start(Duration::ZERO).await;
    let store = servers.store(1).await;
    let _permit = store.acquire(claim(3)).await.expect("there is room");
    servers.0.replica.stop();
    let usage = store.usage(&Policy::DEFAULT, &"a".into()).await;
    assert_eq!(usage.expect("it answers").held.len(), 1);
    servers.0.replica.cont();
}

#[tokio::test]
async fn a_waiter_is_not_granted_by_a_message_alone() {
    let servers = Servers::start(Duration::ZERO).await;
    // Only the waiter's store requires the replica.
    let (lax, store) = (servers.store(0).await, servers.store(1).await);
    let held = lax.acquire(claim(1)).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim(1).with_wait(BOUND)));
    let mut raw = Raw::connect(servers.0.primary.port()).await;
    eventually("it waits, and listens", BOUND, async || {
        let queue = "semaphore:2:{concurrency:a}:queue";
        let channels = raw.cmd(&["PUBSUB", "CHANNELS"]).await;
        raw.zcard(queue).await == 1 && !channels.array().is_empty()
    })
    .await;
    // The waiter polls once more when its store has subscribed. Later polls come every two thirds of a second.
    sleep(Duration::from_millis(200)).await;
    servers.0.replica.stop();
    assert!(held.release().await);
    let error = unavailable(waiting.await.expect("it does not panic"));
    // The store gets no answer in time if the server first waits for the replica on behalf of another call.
    let expected = [NOT_REPLICATED, "no answer from Redis within 2s"];
    assert!(expected.contains(&&*error), "{error}");
    servers.0.replica.cont();
}

#[tokio::test]
async fn a_permit_whose_refreshes_reach_no_replica_is_lost_when_its_lease_ends() {
    let servers = Servers::start(Duration::ZERO).await;
    let store = servers.store(1).await;
    let permit = store.acquire(claim(1)).await.expect("there is room");
    servers.0.replica.stop();
    // A lease of 8 s after the last refresh that reached the replica, and slack for a busy machine.
    let lost = timeout(Duration::from_secs(12), permit.lost()).await;
    lost.expect("no replica has its refreshes");
    servers.0.replica.cont();
}

#[tokio::test]
async fn without_a_replica_the_outage_policy_decides() {
    let mut servers = Servers::start(Duration::ZERO).await;
    let store = servers.store_with(1, WhenUnavailable::Admit).await;
    servers.0.replica.kill();
    let permit = store.acquire(claim(1)).await.expect("it is admitted");
    assert!(permit.is_degraded());
    let next = RedisServer::with(&["--repl-diskless-sync-delay", "0"]);
    let port = servers.0.primary.port().to_string();
    let mut raw = Raw::connect(next.port()).await;
    raw.cmd(&["REPLICAOF", "127.0.0.1", &port]).await;
    eventually("it is granted by the server", BOUND, async || {
        !permit.is_degraded()
    })
    .await;
    assert_eq!(servers.held().await, 1);
}

#[tokio::test]
async fn a_check_reports_missing_replicas() {
    let mut servers = Servers::start(Duration::ZERO).await;
    let store = servers.store(1).await;
    eventually("all is well", BOUND, async || {
        store.check().await.is_ok_and(|risks| risks.is_empty())
    })
    .await;
    servers.0.replica.kill();
    let error = store.check().await.expect_err("there is no replica");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("only 0 replicas"), "{error}");
    let mut raw = Raw::connect(servers.0.primary.port()).await;
    raw.cmd(&["ACL", "SETUSER", "default", "-wait"]).await;
    let error = store.check().await.expect_err("the user may not run WAIT");
    assert!(
        error.to_string().contains("does not permit WAIT"),
        "{error}"
    );
}

#[tokio::test]
async fn the_outage_policy_decides_a_claim_whose_wait_for_replicas_is_aborted() {
    let servers = Servers::start(Duration::ZERO).await;
    let store = servers.store_with(1, WhenUnavailable::Admit).await;
    servers.0.replica.stop();
    let claim = tokio::spawn(store.acquire(claim(1)));
    eventually("the primary has granted it", BOUND, async || {
        servers.held().await == 1
    })
    .await;
    // A server that becomes a replica aborts every WAIT.
    let mut raw = Raw::connect(servers.0.primary.port()).await;
    raw.cmd(&["REPLICAOF", "127.0.0.1", "1"]).await;
    let permit = claim.await.expect("it does not panic");
    assert!(permit.expect("it is admitted").is_degraded());
    servers.0.replica.cont();
}

#[tokio::test]
async fn the_replica_has_a_revocation_before_it_is_answered() {
    let servers = Servers::start(Duration::from_millis(200)).await;
    let store = servers.store(1).await;
    let mut replica = Raw::connect(servers.0.replica.port()).await;
    let _permit = store.acquire(claim(1)).await.expect("there is room");
    let (policy, key) = (Policy::DEFAULT, "a".into());
    let usage = store.usage(&policy, &key).await.expect("it answers");
    let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("it answers"));
    assert_eq!(replica.zcard(HELD).await, 0);
}
