//! The grants of two tenants that always wait, where one holds its permits ten times as long as the other.

use std::time::{Duration, Instant};
use testing::bench::{
    run::pick,
    table::{Table, figure},
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LIMIT: u32 = 5;
/// The number of clients per tenant.
const CLIENTS: usize = 30;
/// Each tenant, its holds in ms, and its share.
const HOLDS: [(&str, u64, u32); 2] = [("fast", 10, 1), ("slow", 100, 1)];
/// The same tenants, with shares in the opposite ratio of their holds.
const WEIGHED: [(&str, u64, u32); 2] = [("fast", 10, 10), ("slow", 100, 1)];

pub(crate) async fn compare(url: &str) {
    let title = "Two tenants that always wait, holds of 10 and 100 ms, limit 5";
    let head = ["tenant", "share", "part of the grants", "part of the time"];
    let mut table = Table::new(title, &head);
    for tenants in [HOLDS, WEIGHED] {
        let grants = run(url, tenants).await;
        let all: f64 = grants.iter().sum();
        let times = [0, 1].map(|at| grants[at] * tenants[at].1 as f64);
        for (at, (name, _, share)) in tenants.into_iter().enumerate() {
            let parts = [grants[at] / all, times[at] / (times[0] + times[1])];
            let figures = [f64::from(share), parts[0], parts[1]].map(figure);
            table.row([name.to_owned()].into_iter().chain(figures));
        }
    }
    println!("{table}");
}

/// The number of grants of each tenant.
async fn run(url: &str, tenants: [(&'static str, u64, u32); 2]) -> [f64; 2] {
    let store = super::store(url).await;
    let end = Instant::now() + Duration::from_secs(pick(5, 15));
    let mut work = JoinSet::new();
    for (at, (name, hold, share)) in tenants.into_iter().enumerate() {
        let claim = Claim::new(format!("holds-{share}-{}", tenants[0].2))
            .with_limit(LIMIT)
            .with_wait(Duration::from_secs(60))
            .with_flow(name)
            .with_share(share);
        for _ in 0..CLIENTS {
            work.spawn(count_grants(store.clone(), claim.clone(), (at, hold), end));
        }
    }
    let mut grants = [0.0; 2];
    for (at, count) in work.join_all().await {
        grants[at] += count;
    }
    grants
}

/// Claims again and again until `end`. Returns the index of the tenant, and the number of grants.
async fn count_grants(
    store: RedisSemaphore,
    claim: Claim,
    (at, hold): (usize, u64),
    end: Instant,
) -> (usize, f64) {
    let mut count = 0.0;
    loop {
        let permit = store.acquire(claim.clone()).await.expect("it is granted");
        if Instant::now() >= end {
            return (at, count);
        }
        count += 1.0;
        sleep(Duration::from_millis(hold)).await;
        drop(permit);
    }
}
