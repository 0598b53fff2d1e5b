//! From a release in one store to the grant in another.

use crate::Servers;
use redis::Script;
use std::time::{Duration, Instant};
use testing::bench::{
    figures::Latencies,
    link,
    run::pick,
    table::{Table, figure},
};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// Measures by turns, so that noise hits both.
pub(crate) async fn compare(servers: &[Servers; 2]) {
    let rounds = pick(300, 2_000);
    let Servers::One(server) = &servers[0] else {
        return;
    };
    let mut connection = link::connect(&link::client(&server.url())).await;
    let mut stores = Vec::new();
    for servers in servers {
        let pair = (servers.store().await, servers.store().await);
        stores.push((servers.name(), pair, Latencies::default()));
    }
    let mut trips = Latencies::default();
    for round in 0..rounds {
        for (_, (holder, waiter), wakes) in &mut stores {
            wakes.add(wake(holder, waiter, round).await);
        }
        let start = Instant::now();
        let answer = Script::new("return 1").invoke_async(&mut connection).await;
        let _: u8 = answer.expect("the server answers");
        trips.add(start.elapsed());
    }
    let head = ["", "p50", "p99", "× round trip"];
    let mut table = Table::new("From a release to the grant in another store, µs", &head);
    let all = stores.iter().map(|(name, _, wakes)| (*name, wakes));
    for (name, own) in [("empty script", &trips)].into_iter().chain(all) {
        let [p50, p99] = own.quantiles([0.5, 0.99]);
        let figures = [p50, p99, p50 / trips.p50()].map(figure);
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    println!("{table}");
}

/// One permit goes from one store to the other. The keys are on all nodes by turns.
async fn wake(holder: &RedisSemaphore, waiter: &RedisSemaphore, round: usize) -> Duration {
    let claim = Claim::new(format!("wake-{}", round % 64))
        .with_limit(1)
        .with_wait(Duration::from_secs(5));
    let permit = holder.acquire(claim.clone()).await;
    let permit = permit.expect("it is free soon");
    let waiter = waiter.clone();
    let waiting = tokio::spawn(async move {
        let permit = waiter.acquire(claim).await.expect("it is granted");
        let granted = Instant::now();
        assert!(permit.release().await, "it was held");
        granted
    });
    // Until it is in the queue, and all connections are idle.
    sleep(Duration::from_millis(3)).await;
    let released = Instant::now();
    drop(permit);
    waiting.await.expect("the waiter ends") - released
}
