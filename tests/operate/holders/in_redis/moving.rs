//! A permit that is revoked while its slot moves to another node.

use super::claim;
use crate::holders::BOUND;
use std::time::Duration;
use testing::{redis::Cluster, wait::eventually};
use tokio::time::timeout;
use tower_semaphore::{Operate, Policy, RedisSemaphore, Semaphore};

/// No refresh is due for five minutes.
const LONG: Duration = Duration::from_secs(1_000);
const NAME: &str = "semaphore:{concurrency:a}";

async fn store(cluster: &Cluster) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LONG);
    let builder = builder.timeout(Duration::from_secs(3));
    builder
        .connect_cluster(cluster.urls())
        .await
        .expect("it connects")
}

/// A script that empties a key fails when it looks at that key again: on this node it is one that may have
/// moved.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_is_revoked_while_its_slot_moves_is_not_revoked_by_half() {
    let cluster = Cluster::of_primaries(3).await;
    let [holder, operator] = [store(&cluster).await, store(&cluster).await];
    let slot = cluster.slot(NAME).await;
    let from = cluster.first_owner(slot);
    let to = (from + 1) % 3;
    let (policy, key) = (Policy::DEFAULT, "a".into());

    let permit = holder.acquire(claim(9)).await.expect("there is room");
    let waiter = tokio::spawn(holder.acquire(claim(9).with_wait(LONG)));
    let usage = async || operator.usage(&policy, &key).await.expect("it answers");
    eventually("it waits", BOUND, async || usage().await.waiting.len() == 1).await;
    let info = usage().await.held.remove(0);
    let channel = format!("semaphore:wake:{}", info.process.id);
    eventually("it listens", BOUND, async || {
        let mut channels = Vec::new();
        for node in 0..3 {
            let mut raw = cluster.raw(node).await;
            let listed = raw.cmd(&["PUBSUB", "CHANNELS", &channel]).await;
            channels.extend(listed.first().cloned());
        }
        !channels.is_empty()
    })
    .await;

    cluster.begin_move(slot, from, to).await;
    let revoked = operator.revoke(&policy, &key, &info.id).await;
    timeout(BOUND, permit.lost()).await.expect("it is told");
    cluster.move_keys(slot, from, to).await;
    cluster.end_move(slot, from, to).await;
    assert!(!matches!(revoked, Ok(false)), "{revoked:?}");
    let next = timeout(BOUND, waiter).await.expect("it is granted");
    let next = next.expect("no panic").expect("a permit");
    assert!(permit.is_lost() && !next.is_lost());
    assert!(!permit.release().await);
    assert!(next.release().await);
}
