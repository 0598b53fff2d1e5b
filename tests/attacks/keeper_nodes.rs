//! One of two nodes is dead: the keeper refreshes and releases what lives on the other.

use crate::routes::{Nodes, keys};
use futures_util::future::join_all;
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};
use testing::{machine::alone, redis::RedisServer};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, redis::Builder};

struct Rig {
    _servers: [RedisServer; 2],
    nodes: Nodes,
    store: RedisSemaphore,
}

impl Rig {
    async fn new(builder: Builder) -> Self {
        let servers = [RedisServer::start(), RedisServer::start()];
        let nodes = Nodes::connect(&servers[0], &servers[1]).await;
        let store = builder
            .with_connection(nodes.clone())
            .expect("right settings");
        let rig = Self {
            _servers: servers,
            nodes,
            store,
        };
        rig.hold(false, 1).await;
        rig
    }

    fn kill_other(&self) {
        self.nodes.dead.store(true, Ordering::Relaxed);
    }

    /// Permits of keys of their own, on one of the nodes.
    async fn hold(&self, is_on_other: bool, count: usize) -> Vec<Permit> {
        let (mut permits, mut keys) = (Vec::new(), keys(is_on_other, "held"));
        while permits.len() < count {
            let keys = keys.by_ref().take((count - permits.len()).min(50));
            let claims = keys.map(|key| self.store.acquire(Claim::new(key).with_limit(1)));
            // On a busy machine some fail.
            permits.extend(join_all(claims).await.into_iter().flatten());
        }
        permits
    }
}

/// So many that each slot of the refresh schedule needs several sends.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_loses_no_permit_of_another_node_although_this_process_holds_thousands() {
    const KEYS: usize = 2_800;
    const LEASE: Duration = Duration::from_secs(16);
    let _alone = alone().await;
    let rig = Rig::new(RedisSemaphore::builder().lease(LEASE)).await;
    let living = rig.hold(false, KEYS).await;
    let dying = rig.hold(true, KEYS).await;
    rig.kill_other();
    // Also those that come back later: their holders have been told.
    let told = living
        .iter()
        .map(|permit| timeout(LEASE * 5 / 4, permit.lost()));
    let told = join_all(told).await.into_iter().filter(Result::is_ok);
    assert_eq!(told.count(), 0, "of {KEYS} are lost");
    assert!(dying.iter().all(Permit::is_lost));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_delays_no_release_of_another_node() {
    const TIMEOUT: Duration = Duration::from_secs(4);
    let _alone = alone().await;
    let builder = RedisSemaphore::builder().lease(TIMEOUT * 4);
    let rig = Rig::new(builder.timeout(TIMEOUT)).await;
    let living = rig.hold(false, 2).await;
    let dying = rig.hold(true, 200).await;
    rig.kill_other();
    let start = Instant::now();
    // Some of them leave together, and some one after the other.
    for (number, permit) in dying.into_iter().enumerate() {
        drop(permit);
        if number % 10 == 0 {
            sleep(Duration::from_millis(2)).await;
        }
    }
    let released = join_all(living.iter().map(Permit::release)).await;
    assert_eq!(released, [true; 2]);
    let took = start.elapsed();
    assert!(took < TIMEOUT / 2, "{took:?}");
}

/// So many that not all of them are in flight together.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_refuses_no_claim_of_another_node_whose_permit_was_released_after_thousands() {
    const DYING: usize = 14_000;
    let _alone = alone().await;
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    // A busy machine is no failure of the store.
    let rig = Rig::new(builder.timeout(Duration::from_secs(3))).await;
    let dying = rig.hold(true, DYING).await;
    let key = keys(false, "alive").next().expect("there are many");
    let claim = || rig.store.acquire(Claim::new(key.as_str()).with_limit(1));
    let permit = claim().await.expect("there is room");
    rig.kill_other();
    drop(dying);
    drop(permit);
    let answer = claim().await;
    assert!(answer.is_ok(), "{answer:?}");
}
