//! Nodes die, and their replicas are promoted.
//!
//! Promises: P4, P18.

use super::{
    BOUND, connect,
    load::{Load, Seen},
    name, patient,
};
use std::time::{Duration, Instant};
use testing::{machine::beside_others, redis::Cluster, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// Under load on a busy machine an answer may take this long without any fault.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Ends a node: either its port refuses connections, or it stops answering.
type Fault = fn(&mut Cluster, usize);

struct Outcome {
    cluster: Cluster,
    store: RedisSemaphore,
    /// The claims on the keys of the dead node.
    own: Vec<Seen>,
    /// The claims on the keys of the other nodes.
    others: Vec<Seen>,
    promoted: Instant,
    /// The largest number of simultaneous holders of a key, whose limit is one.
    most: usize,
}

async fn fail_over(fault: Fault) -> Outcome {
    let mut cluster = Cluster::of_pairs(3).await;
    let store = connect(patient().timeout(TIMEOUT), &cluster).await;
    let dying = cluster.keys_of(0, 10, name).await;
    let mut keys = dying.clone();
    keys.extend(cluster.keys_of(1, 10, name).await);
    keys.extend(cluster.keys_of(2, 10, name).await);
    let load = Load::start(&store, &keys);
    sleep(TIMEOUT).await;
    fault(&mut cluster, 0);
    eventually("the replica is promoted", BOUND, async || {
        cluster.is_primary(cluster.replica_of(0)).await
    })
    .await;
    let promoted = Instant::now();
    sleep(TIMEOUT * 4).await;
    let (seen, most) = load.stop().await;
    let (own, others) = seen.into_iter().partition(|seen| dying.contains(&seen.key));
    Outcome {
        cluster,
        store,
        own,
        others,
        promoted,
        most,
    }
}

impl Outcome {
    fn assert_that_others_are_unharmed(&self) {
        let harmed = |seen: &&Seen| seen.error.is_some() || seen.took > TIMEOUT;
        let harmed: Vec<_> = self.others.iter().filter(harmed).collect();
        assert!(
            harmed.is_empty(),
            "{} of {}: {:?}",
            harmed.len(),
            self.others.len(),
            harmed[0]
        );
        assert!(self.others.len() > 100, "{}", self.others.len());
    }

    /// `bound` counts from the promotion. The target is a second; the rest is slack for a busy machine.
    fn assert_that_own_are_served_within(&self, bound: Duration) {
        let failed = self.own.iter().filter(|seen| seen.error.is_some());
        let last = failed.map(|seen| seen.start + seen.took).max();
        let late = last
            .expect("some have failed")
            .saturating_duration_since(self.promoted);
        assert!(
            late < bound,
            "the last claim failed {late:?} after the promotion"
        );
        eprintln!("the last claim failed {late:?} after the promotion");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_killed_harms_its_own_keys_only_until_its_replica_is_promoted() {
    let _share = beside_others().await;
    let outcome = fail_over(|cluster, node| cluster.node_mut(node).kill()).await;
    outcome.assert_that_others_are_unharmed();
    outcome.assert_that_own_are_served_within(Duration::from_secs(2));
    // A grant that did not reach the replica may be made again.
    assert!(outcome.most <= 2, "{}", outcome.most);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_falls_silent_harms_its_own_keys_only_until_its_replica_is_promoted() {
    let _share = beside_others().await;
    let outcome = fail_over(|cluster, node| cluster.node(node).stop()).await;
    outcome.assert_that_others_are_unharmed();
    // A claim that was sent to the node before it fell silent fails after two timeouts.
    outcome.assert_that_own_are_served_within(Duration::from_secs(2) + TIMEOUT * 2);
    assert!(outcome.most <= 2, "{}", outcome.most);
    // The old primary continues. It is a replica now.
    outcome.cluster.node(0).cont();
    eventually("it is a replica", BOUND, async || {
        !outcome.cluster.is_primary(0).await
    })
    .await;
    let key = &outcome.own[0].key;
    let permit = outcome
        .store
        .acquire(Claim::new(key.as_str()).with_limit(1))
        .await;
    assert!(permit.expect("there is room").release().await);
}

/// The store looks for a lost node even without claims.
#[tokio::test(flavor = "multi_thread")]
async fn claims_are_granted_soon_after_a_failover_during_which_none_was_made() {
    let _share = beside_others().await;
    let mut cluster = Cluster::of_pairs(3).await;
    let store = connect(patient(), &cluster).await;
    let key = cluster.keys_of(0, 1, name).await.remove(0);
    let claim = Claim::new(key.as_str()).with_limit(1);
    let permit = store.acquire(claim.clone()).await.expect("there is room");
    assert!(permit.release().await);
    cluster.node_mut(0).kill();
    let promoted = cluster.node(cluster.replica_of(0)).port();
    for node in [1, 2, cluster.replica_of(0)] {
        eventually("the replica is promoted and known", BOUND, async || {
            cluster.port_of(node, &name(&key)).await == promoted
        })
        .await;
    }
    let known = Instant::now();
    eventually("it is granted", BOUND, async || {
        store.acquire(claim.clone()).await.is_ok()
    })
    .await;
    let late = known.elapsed();
    assert!(late < Duration::from_secs(1), "{late:?}");
}
