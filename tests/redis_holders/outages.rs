//! Waiters whose store fails: they say so, and leave nothing behind.

use crate::common::{
    BOUND, Outcome, SOON, claim, ended, heartbeats, permit, queued, settled, store,
};
use std::time::{Duration, Instant};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::task::JoinHandle;
use tower_semaphore::{AcquireError, Permit, RedisSemaphore, Semaphore};

/// So long that nothing which a waiter leaves behind is gone by itself in this test.
const LEASE: Duration = Duration::from_secs(120);

struct Fixture {
    server: RedisServer,
    raw: Raw,
    near: RedisSemaphore,
    holder: Permit,
}

async fn fixture() -> Fixture {
    let server = RedisServer::start();
    let near = store(server.url(), LEASE).await;
    let holder = permit(&near, 1).await;
    Fixture {
        raw: Raw::connect(server.port()).await,
        server,
        near,
        holder,
    }
}

impl Fixture {
    /// A waiter that joins as the last of so many.
    async fn waiter(
        &mut self,
        at: &RedisSemaphore,
        wait: Duration,
        of: usize,
    ) -> JoinHandle<Outcome> {
        let waiter = tokio::spawn(at.acquire(claim(1).with_wait(wait)));
        eventually("it waits", BOUND, async || {
            queued(&mut self.raw).await == of
        })
        .await;
        waiter
    }

    /// A waiter behind one that has failed because nothing reached the server any more.
    async fn behind_a_failed_one(&mut self) -> JoinHandle<Outcome> {
        let proxy = Proxy::start(&self.server).await;
        let far = store(proxy.url(), LEASE).await;
        let failing = self.waiter(&far, BOUND, 1).await;
        let near = self.near.clone();
        let next = self.waiter(&near, BOUND * 10, 2).await;
        proxy.refuse().await;
        proxy.kill(End::Reset);
        let failed = failing.await.expect("it did not panic");
        assert!(matches!(failed, Err(AcquireError::Store(_))), "{failed:?}");
        proxy.accept().await;
        // The store lives on, as in a process whose gateway was restarted.
        tokio::spawn(async move {
            let _alive = (proxy, far);
            std::future::pending::<()>().await;
        });
        next
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_failed_leaves_nothing_in_the_queue() {
    let mut fixture = fixture().await;
    let next = fixture.behind_a_failed_one().await;
    eventually("only the next one waits", SOON, async || {
        let raw = &mut fixture.raw;
        queued(raw).await == 1 && heartbeats(raw).await == 1
    })
    .await;
    next.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_waiter_is_granted_soon_after_a_release_when_the_one_before_it_has_failed() {
    let mut fixture = fixture().await;
    let next = fixture.behind_a_failed_one().await;
    assert!(fixture.holder.release().await);
    let granted = tokio::time::timeout(SOON, next).await.expect("it is soon");
    assert!(granted.expect("it did not panic").is_ok());
}

/// What a wait says that ends while the server is stopped.
async fn outcome_of(lease: Duration, wait: Duration) -> Outcome {
    let mut fixture = fixture().await;
    let proxy = Proxy::start(&fixture.server).await;
    let waiting = store(proxy.url(), lease).await;
    let start = Instant::now();
    let waiter = fixture.waiter(&waiting, wait, 1).await;
    settled(&proxy).await;
    fixture.server.stop();
    assert!(start.elapsed() < wait, "the machine is too slow for this");
    let outcome = ended("the wait", waiter).await.expect("it did not panic");
    let late = start.elapsed().saturating_sub(wait);
    fixture.server.cont();
    assert!(late < SOON, "{late:?} late");
    eventually("its permit is gone", SOON, async || {
        queued(&mut fixture.raw).await == 0
    })
    .await;
    outcome
}

/// Waits of various lengths, so that they end at various points between two polls.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_ends_while_the_server_is_stopped_is_a_failure_of_the_store() {
    let lease = LEASE / 2;
    let waits = [2_000, 2_300, 5_200].map(Duration::from_millis);
    let outcomes = waits.map(|wait| outcome_of(lease, wait));
    let outcomes = futures_util::future::join_all(outcomes).await;
    for (wait, outcome) in waits.into_iter().zip(outcomes) {
        assert!(
            matches!(outcome, Err(AcquireError::Store(_))),
            "{wait:?}: {outcome:?}"
        );
    }
}
