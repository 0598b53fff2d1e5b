//! The number of times that a store reads the map of slots from the nodes.
//!
//! Promises: P18.

use super::{connect, load::Load, name, patient};
use std::time::Duration;
use testing::{machine::alone, redis::Cluster};
use tokio::time::sleep;

/// The number of times that clients have read the map of slots from these nodes.
async fn map_reads(cluster: &Cluster, nodes: &[usize]) -> u64 {
    let mut reads = 0;
    for &node in nodes {
        let stats = cluster.raw(node).await.commandstats().await;
        // Redis 6.2 does not count subcommands separately.
        let slots = stats.get("cluster|slots").or_else(|| stats.get("cluster"));
        reads += slots.copied().unwrap_or_default();
    }
    reads
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_node_is_dead_the_map_is_read_a_few_times_per_second() {
    const TIME: Duration = Duration::from_secs(3);
    let _alone = alone().await;
    let mut cluster = Cluster::of_primaries(3).await;
    let store = connect(patient().timeout(Duration::from_millis(500)), &cluster).await;
    let mut keys = cluster.keys_of(0, 50, name).await;
    keys.extend(cluster.keys_of(1, 5, name).await);
    let load = Load::start(&store, &keys);
    sleep(Duration::from_millis(500)).await;
    cluster.node_mut(0).kill();
    let before = map_reads(&cluster, &[1, 2]).await;
    sleep(TIME).await;
    let reads = map_reads(&cluster, &[1, 2]).await - before;
    let (seen, _) = load.stop().await;
    let failed = seen.iter().filter(|seen| seen.error.is_some()).count();
    // Two tasks claim each of the dead node's 50 keys, and pause for 50 ms after a failure.
    assert!(failed > 500, "claims failed: {failed}");
    // In three seconds, the store reads the map at most five times per second, each time from two nodes.
    assert!((3..=45).contains(&reads), "{reads} reads");
}

/// The test is shorter than the ten seconds after which a store reads the map again because of its subscription.
#[tokio::test(flavor = "multi_thread")]
async fn a_map_of_slots_is_not_read_again_within_seconds() {
    let _alone = alone().await;
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let mut keys = cluster.keys_of(0, 10, name).await;
    keys.extend(cluster.keys_of(1, 10, name).await);
    let before = map_reads(&cluster, &[0, 1, 2]).await;
    let load = Load::start(&store, &keys);
    sleep(Duration::from_secs(1)).await;
    load.stop().await;
    assert_eq!(map_reads(&cluster, &[0, 1, 2]).await, before);
}
