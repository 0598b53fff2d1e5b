//! The cost of a failing node: how often the store asks the nodes for their slots.
//!
//! Promises: P18.

use super::{connect, load::Load, name, patient};
use std::time::Duration;
use testing::{machine::alone, redis::Cluster};
use tokio::time::sleep;

async fn looks(cluster: &Cluster, nodes: &[usize]) -> u64 {
    let mut looks = 0;
    for &node in nodes {
        let stats = cluster.raw(node).await.commandstats().await;
        // Redis 6.2 does not count subcommands separately.
        let slots = stats.get("cluster|slots").or_else(|| stats.get("cluster"));
        looks += slots.copied().unwrap_or_default();
    }
    looks
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_node_under_load_is_looked_for_a_few_times_in_a_second() {
    const TIME: Duration = Duration::from_secs(3);
    let _alone = alone().await;
    let mut cluster = Cluster::of_primaries(3).await;
    let store = connect(patient().timeout(Duration::from_millis(500)), &cluster).await;
    let mut keys = cluster.keys_of(0, 50, name).await;
    keys.extend(cluster.keys_of(1, 5, name).await);
    let load = Load::start(&store, &keys);
    sleep(Duration::from_millis(500)).await;
    cluster.node_mut(0).kill();
    let before = looks(&cluster, &[1, 2]).await;
    sleep(TIME).await;
    let looks = looks(&cluster, &[1, 2]).await - before;
    let (seen, _) = load.stop().await;
    let failed = seen.iter().filter(|seen| seen.error.is_some()).count();
    assert!(failed > 500, "claims failed: {failed}");
    // The store looks at most five times per second, each time at two nodes.
    assert!((3..=45).contains(&looks), "{looks} looks");
}

/// A map is read again after ten seconds, for the sake of messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_at_rest_is_not_looked_at_for_seconds() {
    let _alone = alone().await;
    let cluster = Cluster::of_primaries(3).await;
    let store = connect(patient(), &cluster).await;
    let mut keys = cluster.keys_of(0, 10, name).await;
    keys.extend(cluster.keys_of(1, 10, name).await);
    let before = looks(&cluster, &[0, 1, 2]).await;
    let load = Load::start(&store, &keys);
    sleep(Duration::from_secs(1)).await;
    load.stop().await;
    assert_eq!(looks(&cluster, &[0, 1, 2]).await, before);
}
