//! The wait of a newcomer behind another tenant's crowd, under each order of the queue.

use std::time::{Duration, Instant};
use testing::bench::{
    figures::{Dice, Latencies},
    plot::{self, Title},
    run::pick,
    table::{Table, figure},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LIMIT: u32 = 5;
const CROWD: usize = 1_000;
/// The average time for which a permit is held. It varies by half.
const HOLD: Duration = Duration::from_millis(20);
const WAIT: Duration = Duration::from_secs(120);

/// An order of the queue, given by the claims of the crowd and of the newcomer.
struct Order {
    name: &'static str,
    file: &'static str,
    crowd: fn(Claim) -> Claim,
    newcomer: fn(Claim) -> Claim,
}

const ORDERS: [Order; 3] = [
    Order {
        name: "first come, first served",
        file: "order-first-come",
        crowd: |claim| claim,
        newcomer: |claim| claim,
    },
    Order {
        name: "fair shares",
        file: "order-fair-shares",
        crowd: |claim| claim.with_flow("ann"),
        newcomer: |claim| claim.with_flow("bob"),
    },
    Order {
        name: "head starts",
        file: "order-head-starts",
        crowd: |claim| claim,
        newcomer: |claim| claim.with_head_start(Duration::from_secs(30)),
    },
];

pub(crate) async fn compare(url: &str) {
    let title = "A newcomer beside a crowd of 1,000, limit 5, in mean holds of 20 ms";
    let head = ["order", "newcomers", "wait p50", "p99"];
    let mut table = Table::new(title, &head);
    for order in &ORDERS {
        let waits = newcomers(url, order).await;
        let hold = HOLD.as_secs_f64() * 1e6;
        let [p50, p99] = waits.quantiles([0.5, 0.99]).map(|wait| wait / hold);
        let figures = [waits.count() as f64, p50, p99].map(figure);
        table.row([order.name.to_owned()].into_iter().chain(figures));
        picture(url, order).await;
    }
    println!("{table}");
}

/// A claim whose key is used under one order only, for one `purpose`: `crowd` or `picture`.
fn claim(order: &Order, purpose: &str) -> Claim {
    Claim::new(format!("{purpose}-{}", order.file))
        .with_limit(LIMIT)
        .with_wait(WAIT)
        .with_max_waiting(2 * CROWD as u32)
}

/// The waits of newcomers, one after another, behind a crowd whose clients claim again as soon as they have released.
async fn newcomers(url: &str, order: &Order) -> Latencies {
    let store = super::store(url).await;
    let mut crowd = JoinSet::new();
    for seed in 0..CROWD {
        let claim = (order.crowd)(claim(order, "crowd"));
        crowd.spawn(claim_again_and_again(store.clone(), claim, seed));
    }
    // Wait until the whole crowd is in the queue.
    sleep(HOLD * 50).await;
    let claim = (order.newcomer)(claim(order, "crowd"));
    let (mut waits, mut dice) = (Latencies::default(), Dice::new(7));
    let end = Instant::now() + Duration::from_secs(pick(6, 15));
    while Instant::now() < end {
        let start = Instant::now();
        let permit = store.acquire(claim.clone()).await.expect("it is granted");
        waits.add(start.elapsed());
        sleep(about(HOLD, &mut dice)).await;
        drop(permit);
        sleep(about(HOLD, &mut dice)).await;
    }
    crowd.shutdown().await;
    waits
}

async fn claim_again_and_again(store: RedisSemaphore, claim: Claim, seed: usize) {
    let mut dice = Dice::new(seed as u64 + 1);
    loop {
        let permit = store.acquire(claim.clone()).await.expect("it is granted");
        sleep(about(HOLD, &mut dice)).await;
        drop(permit);
    }
}

/// A random time from half to one and a half times the `mean`.
fn about(mean: Duration, dice: &mut Dice) -> Duration {
    let mean = mean.as_micros() as u64;
    Duration::from_micros(mean / 2 + dice.below(mean))
}

/// Plots how the grants of two tenants add up: 200 claims of ann's, and 20 of bob's that come later.
async fn picture(url: &str, order: &Order) {
    let store = super::store(url).await;
    let claim = || claim(order, "picture").with_limit(1);
    let held = store.acquire(claim()).await.expect("it is free");
    let mut granted = JoinSet::new();
    for _ in 0..200 {
        granted.spawn(grant_of(store.clone(), "ann", (order.crowd)(claim())));
    }
    // Wait until these claims are in the queue.
    sleep(Duration::from_millis(300)).await;
    for _ in 0..20 {
        granted.spawn(grant_of(store.clone(), "bob", (order.newcomer)(claim())));
    }
    sleep(Duration::from_millis(300)).await;
    drop(held);
    let all = timeout(WAIT, granted.join_all()).await;
    let mut all = all.expect("all are granted");
    all.sort_unstable_by_key(|(token, _)| *token);
    let series = ["ann", "bob"].map(|tenant| {
        let mut count = 0.0;
        let points = all.iter().enumerate().map(|(grant, (_, name))| {
            count += f64::from(u8::from(*name == tenant));
            ((grant + 1) as f64, count)
        });
        // The curve begins at the tenant's first grant.
        let points = points.filter(|(_, count)| *count > 0.0);
        (tenant.to_owned(), points.collect())
    });
    let title = Title {
        file: order.file,
        text: &format!(
            "{}: 200 claims of ann's, and 20 of bob's that come later",
            order.name
        ),
        x: "grant",
        y: "claims that were granted",
    };
    plot::lines(title, &series);
}

/// The token of the grant, and the tenant. Tokens grow from grant to grant.
async fn grant_of(
    store: RedisSemaphore,
    tenant: &'static str,
    claim: Claim,
) -> (u64, &'static str) {
    let permit: Permit = store.acquire(claim).await.expect("it is granted");
    (permit.token().expect("it is granted"), tenant)
}
