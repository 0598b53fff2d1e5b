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

#[derive(Clone, Copy)]
struct Tenant {
    name: &'static str,
    hold_ms: u64,
    /// The number of turns that it takes for each turn of a tenant with share 1.
    share: u32,
}

const FAST: Tenant = Tenant {
    name: "fast",
    hold_ms: 10,
    share: 1,
};
const SLOW: Tenant = Tenant {
    name: "slow",
    hold_ms: 100,
    share: 1,
};

const EQUAL_SHARES: [Tenant; 2] = [FAST, SLOW];
/// Shares in the opposite ratio of the holds.
const WEIGHED: [Tenant; 2] = [Tenant { share: 10, ..FAST }, SLOW];

pub(crate) async fn compare(url: &str) {
    let title = "Two tenants that always wait, holds of 10 and 100 ms, limit 5";
    let head = ["tenant", "share", "part of the grants", "part of the time"];
    let mut table = Table::new(title, &head);
    for tenants in [EQUAL_SHARES, WEIGHED] {
        let grants = run(url, tenants).await;
        let all: f64 = grants.iter().sum();
        let times = [0, 1].map(|at| grants[at] * tenants[at].hold_ms as f64);
        for (at, tenant) in tenants.into_iter().enumerate() {
            let parts = [grants[at] / all, times[at] / (times[0] + times[1])];
            let figures = [f64::from(tenant.share), parts[0], parts[1]].map(figure);
            table.row([tenant.name.to_owned()].into_iter().chain(figures));
        }
    }
    println!("{table}");
}

/// The number of grants of each tenant.
async fn run(url: &str, tenants: [Tenant; 2]) -> [f64; 2] {
    let store = super::store(url).await;
    let end = Instant::now() + Duration::from_secs(pick(5, 15));
    let mut work = JoinSet::new();
    for (at, tenant) in tenants.into_iter().enumerate() {
        // Both tenants compete for this key, and each run has a separate one.
        let claim = Claim::new(format!("holds-{}", tenants[0].share))
            .with_limit(LIMIT)
            .with_wait(Duration::from_secs(60))
            .with_flow(tenant.name)
            .with_share(tenant.share);
        for _ in 0..CLIENTS {
            let hold = Duration::from_millis(tenant.hold_ms);
            let grants = count_grants(store.clone(), claim.clone(), hold, end);
            work.spawn(async move { (at, grants.await) });
        }
    }
    let mut grants = [0.0; 2];
    for (at, count) in work.join_all().await {
        grants[at] += count;
    }
    grants
}

/// Claims again and again until `end`. Returns the number of grants.
async fn count_grants(store: RedisSemaphore, claim: Claim, hold: Duration, end: Instant) -> f64 {
    let mut count = 0.0;
    loop {
        let permit = store.acquire(claim.clone()).await.expect("it is granted");
        if Instant::now() >= end {
            return count;
        }
        count += 1.0;
        sleep(hold).await;
        drop(permit);
    }
}
