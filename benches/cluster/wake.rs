//! The time from a release in one store to the grant in another.

use crate::Servers;
use testing::bench::{
    figures::Latencies,
    link,
    run::pick,
    wake::{report, round_trip, wake},
};

/// Measures one server and the cluster in turns, so that noise affects both alike.
pub(crate) async fn compare(servers: &[Servers; 2]) {
    let rounds = pick(300, 2_000);
    let Servers::One(server) = &servers[0] else {
        return;
    };
    let connection = link::connect(&link::client(&server.url())).await;
    let mut stores = Vec::new();
    for servers in servers {
        let pair = (servers.store().await, servers.store().await);
        stores.push((servers.name(), pair, Latencies::default()));
    }
    // Round trips to the one server, for comparison.
    let mut trips = Latencies::default();
    for round in 0..rounds {
        // 64 keys, so that each node of the cluster has some.
        let key = round % 64;
        for (_, (holder, waiter), wakes) in &mut stores {
            wakes.add(wake(holder, waiter, format!("wake-{key}")).await);
        }
        trips.add(round_trip(&connection).await);
    }
    report(&trips, stores.iter().map(|(name, _, wakes)| (*name, wakes)));
}
