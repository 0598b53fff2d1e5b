//! The outage policy while one of several nodes is unavailable.
//!
//! Promises: P19.

use super::{BOUND, name};
use std::time::{Duration, Instant};
use testing::{
    machine::beside_others,
    redis::{Cluster, PROCESSES, until_processes_know_each_other},
    wait::eventually,
};
use tokio::time::sleep;
use tower_semaphore::{
    AcquireError, Claim, Permit, RedisSemaphore, Semaphore,
    redis::WhenUnavailable::{self, Admit, Refuse, Share},
};

/// Under load on a busy machine an answer may take this long without any fault.
const TIMEOUT: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);
const LIMIT: u32 = 4;
/// Half of the limit, for each of two processes.
const SHARE: usize = 2;

/// Two processes, and a key on each node.
struct Fixture {
    cluster: Cluster,
    stores: [RedisSemaphore; 2],
    keys: Vec<String>,
}

impl Fixture {
    async fn new(cluster: Cluster, policy: WhenUnavailable) -> Self {
        let stores = [
            connect(&cluster, policy).await,
            connect(&cluster, policy).await,
        ];
        let mut keys = Vec::new();
        for node in 0..3 {
            keys.extend(cluster.keys_of(node, 1, name).await);
        }
        let fixture = Self {
            cluster,
            stores,
            keys,
        };
        let mut raw = fixture.cluster.raw(fixture.counting_node().await).await;
        until_processes_know_each_other(&mut raw, 2).await;
        fixture
    }

    /// The node that counts the processes.
    async fn counting_node(&self) -> usize {
        self.cluster.first_owner(self.cluster.slot(PROCESSES).await)
    }

    /// Asserts that the keys of the other nodes are limited as usual, and that no claim waits for the dead node.
    async fn assert_others_unharmed(&self, dead: usize) {
        for node in (0..3).filter(|node| *node != dead) {
            let mut permits = Vec::new();
            for at in 0..10 {
                let start = Instant::now();
                let answer = self.stores[at % 2].acquire(claim(&self.keys[node])).await;
                assert!(start.elapsed() < TIMEOUT, "{:?}", start.elapsed());
                match answer {
                    Ok(permit) => permits.push(permit),
                    Err(AcquireError::Full { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
            assert_eq!(permits.len(), LIMIT as usize);
            assert!(permits.iter().all(|permit| !permit.is_degraded()));
            let mut raw = self.cluster.raw(node).await;
            let held = raw.zcard(&held(&self.keys[node])).await;
            assert_eq!(held, LIMIT as usize);
            for permit in permits {
                assert!(permit.release().await);
            }
        }
    }
}

async fn connect(cluster: &Cluster, policy: WhenUnavailable) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let builder = builder.when_unavailable(policy);
    builder
        .connect_cluster(cluster.urls())
        .await
        .expect("it connects")
}

fn claim(key: &str) -> Claim {
    Claim::new(key).with_limit(LIMIT)
}

fn held(key: &str) -> String {
    format!("{}:held", name(key))
}

/// Acquires permits until the policy admits no more.
async fn admitted(store: &RedisSemaphore, key: &str) -> Vec<Permit> {
    let mut permits = Vec::new();
    loop {
        match store.acquire(claim(key)).await {
            Ok(permit) => {
                assert!(permit.is_degraded(), "a node has granted it");
                permits.push(permit);
            }
            Err(AcquireError::Store { .. }) => return permits,
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn a_dead_node_leaves_its_own_keys_to_the_policy(is_counting: bool) {
    let _share = beside_others().await;
    let mut fixture = Fixture::new(Cluster::of_primaries(3).await, Share).await;
    let counting = fixture.counting_node().await;
    let dead = if is_counting {
        counting
    } else {
        (counting + 1) % 3
    };
    fixture.cluster.node_mut(dead).kill();
    // The last count of the processes is kept until a new one arrives, however long that takes.
    sleep(LEASE * 3 * u32::from(is_counting)).await;
    let mut permits = Vec::new();
    for store in &fixture.stores {
        let own = admitted(store, &fixture.keys[dead]).await;
        assert_eq!(own.len(), SHARE);
        permits.extend(own);
    }
    fixture.assert_others_unharmed(dead).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_keys_of_a_dead_node_are_shared_and_those_of_others_are_limited() {
    a_dead_node_leaves_its_own_keys_to_the_policy(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_node_that_counts_the_processes_the_last_count_stays() {
    a_dead_node_leaves_its_own_keys_to_the_policy(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_node_delays_no_claim_once_its_breaker_is_open() {
    let _share = beside_others().await;
    let fixture = Fixture::new(Cluster::of_primaries(3).await, Refuse).await;
    fixture.cluster.node(0).stop();
    let is_fast = async |store: &RedisSemaphore| {
        let start = Instant::now();
        let answer = store.acquire(claim(&fixture.keys[0])).await;
        assert!(
            matches!(answer, Err(AcquireError::Store { .. })),
            "{answer:?}"
        );
        start.elapsed() < TIMEOUT / 2
    };
    for store in &fixture.stores {
        eventually("its breaker is open", BOUND, || is_fast(store)).await;
        for _ in 0..50 {
            assert!(is_fast(store).await);
        }
    }
    fixture.assert_others_unharmed(0).await;
    fixture.cluster.node(0).cont();
    for store in &fixture.stores {
        eventually("the node is back", BOUND, async || {
            store.acquire(claim(&fixture.keys[0])).await.is_ok()
        })
        .await;
    }
}

/// After a promotion, the new primary gets the permits that the policy has admitted, and the limit holds again.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_primary_gets_the_permits_that_the_policy_has_admitted() {
    let _share = beside_others().await;
    let mut fixture = Fixture::new(Cluster::of_pairs(3).await, Share).await;
    let key = fixture.keys[0].clone();
    let mut permits = vec![
        fixture.stores[0]
            .acquire(claim(&key))
            .await
            .expect("there is room"),
    ];
    fixture.cluster.node_mut(0).kill();
    // The permit that process 0 holds counts towards its share of two.
    for store in [0, 1, 1] {
        let permit = fixture.stores[store].acquire(claim(&key)).await;
        permits.push(permit.expect("the policy admits it"));
    }
    let replica = fixture.cluster.replica_of(0);
    eventually("the replica is promoted", BOUND, async || {
        fixture.cluster.is_primary(replica).await
    })
    .await;
    let mut raw = fixture.cluster.raw(replica).await;
    eventually("the new primary has all permits", BOUND, async || {
        assert!(permits.iter().all(|permit| !permit.is_lost()));
        // The new primary does not have all of them yet.
        for store in &fixture.stores {
            let answer = store.acquire(claim(&key)).await;
            assert!(answer.is_err(), "there is no room");
        }
        let are_held = permits.iter().all(|permit| !permit.is_degraded());
        are_held && raw.zcard(&held(&key)).await == permits.len()
    })
    .await;
    for store in &fixture.stores {
        eventually("the limit holds", BOUND, async || {
            match store.acquire(claim(&key)).await {
                Ok(_) => panic!("there is no room"),
                Err(error) => matches!(error, AcquireError::Full { .. }),
            }
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_degraded_permit_of_several_levels_is_held_at_the_living_nodes() {
    let _share = beside_others().await;
    let mut fixture = Fixture::new(Cluster::of_primaries(3).await, Admit).await;
    fixture.cluster.node_mut(0).kill();
    for (narrow, wide) in [(1, 0), (0, 1)] {
        let narrow_claim = claim(&fixture.keys[narrow]);
        let claims = [narrow_claim.clone(), claim(&fixture.keys[wide])];
        let permit = fixture.stores[0].acquire_all(claims.into()).await;
        let permit = permit.expect("the policy admits it");
        assert!(permit.is_degraded());
        let mut raw = fixture.cluster.raw(1).await;
        eventually("the living node has its level", BOUND, async || {
            raw.zcard(&held(&fixture.keys[1])).await == 1
        })
        .await;
        sleep(LEASE / 3).await;
        assert!(
            permit.is_degraded(),
            "the dead node does not have its level"
        );
        drop(permit);
        eventually("it is released", BOUND, async || {
            raw.zcard(&held(&fixture.keys[1])).await == 0
        })
        .await;
    }
    // A strict level may not be degraded, so the claim is refused, and the levels granted before are released.
    let claims = [
        claim(&fixture.keys[1]),
        claim(&fixture.keys[0]).with_strict(true),
    ];
    let answer = fixture.stores[0].acquire_all(claims.into()).await;
    assert!(
        matches!(answer, Err(AcquireError::Store { .. })),
        "{answer:?}"
    );
    let mut raw = fixture.cluster.raw(1).await;
    eventually("it is released", BOUND, async || {
        raw.zcard(&held(&fixture.keys[1])).await == 0
    })
    .await;
}
