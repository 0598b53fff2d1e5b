//! A server that was stopped for longer than a lease, and goes on.

use crate::{load::alone, rig::Rig, support::wait::eventually};
use std::time::{Duration, Instant};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_secs(3);
const STOP: Duration = Duration::from_secs(8);
/// Within this after the stop, the store serves again and nothing stale is in the way.
const BACK: Duration = Duration::from_secs(1);

fn claim() -> Claim {
    Claim::new("a").with_limit(10)
}

/// Clients that come for as long, forty at a time, and go when they are granted.
async fn clients_come(store: &RedisSemaphore, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        for _ in 0..40 {
            let acquire = store.acquire(claim());
            tokio::spawn(async move { drop(acquire.await) });
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// How often a lone client is told that the limit is reached.
async fn refusals(store: &RedisSemaphore, time: Duration) -> usize {
    let (end, mut refused) = (Instant::now() + time, 0);
    while Instant::now() < end {
        match store.acquire(claim()).await {
            Ok(permit) => drop(permit.release().await),
            Err(AcquireError::Full { .. }) => refused += 1,
            Err(error) => panic!("the server goes on: {error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn acquires_that_lay_in_a_stopped_servers_sockets_are_in_nobodys_way() {
    let _alone = alone().await;
    let rig = Rig::new(RedisSemaphore::builder().lease(LEASE)).await;
    rig.server.stop();
    clients_come(&rig.store, STOP).await;
    rig.server.cont();
    tokio::time::sleep(BACK).await;
    eventually("it answers", Duration::from_secs(5), async || {
        !matches!(
            rig.store.acquire(claim()).await,
            Err(AcquireError::Store(_))
        )
    })
    .await;
    let refused = refusals(&rig.store, LEASE * 2).await;
    assert_eq!(refused, 0, "refused although nobody holds");
}
