//! How late the waiters of a rate are granted, compared with the exact times at which their units come back.

use futures_util::future::join_all;
use std::time::Duration;
use testing::bench::{
    figures::Latencies,
    run::pick,
    table::{Table, figure},
};
use tokio::time::Instant;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// 20 units per second, so one unit comes back every 50 ms.
const LIMIT: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

fn rate() -> Claim {
    let claim = Claim::new("late").with_policy("rate").with_limit(LIMIT);
    claim.with_window(WINDOW).with_max_waiting(1_000)
}

/// Spends the whole limit, and then measures when each of the claims that wait is granted.
pub(crate) async fn measure(store: &RedisSemaphore) {
    let waiters: u32 = pick(200, 800);
    let spent = store.acquire(rate().with_weight(LIMIT)).await;
    let start = Instant::now();
    // The end of the permit gives no unit back.
    drop(spent.expect("nothing is spent"));
    // `join_all` polls the claims in this order, so they queue in this order and each gets the next unit.
    let grants = (1..=waiters).map(async |number| {
        let permit = store
            .acquire(rate().with_wait(Duration::from_secs(600)))
            .await;
        drop(permit.expect("its unit comes back"));
        start.elapsed().saturating_sub(WINDOW * number / LIMIT)
    });
    let mut late = Latencies::default();
    for lateness in join_all(grants).await {
        late.add(lateness);
    }
    let head = ["waiters", "p50", "p99"];
    let mut table = Table::new("Grant of a waiter after its unit has come back, ms", &head);
    let cells = late
        .quantiles([0.5, 0.99])
        .map(|micros| figure(micros / 1e3));
    table.row([waiters.to_string()].into_iter().chain(cells));
    println!("{table}");
}
