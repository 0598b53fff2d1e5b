//! Many who wait for one key.

use crate::support::{
    plot::{self, Title},
    run::pick,
    table::{Table, figure},
};
use std::time::{Duration, Instant};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

pub(crate) async fn compare(url: &str) {
    let title = "A line on one key: from the first grant to the last, one permit";
    let mut table = Table::new(title, &["waiters", "total ms", "µs per grant"]);
    let mut points = Vec::new();
    for waiters in pick(&[10, 100, 1_000][..], &[10, 100, 1_000, 10_000]) {
        let took = drain(url, *waiters).await.as_secs_f64();
        let each = took * 1e6 / *waiters as f64;
        table.row([*waiters as f64, took * 1e3, each].map(figure));
        points.push((*waiters as f64, each));
    }
    println!("{table}");
    let title = Title {
        file: "line",
        text: title,
        x: "waiters",
        y: "µs per grant",
    };
    plot::lines(title, &[("RedisSemaphore".to_owned(), points)]);
}

/// Lets `waiters` stand in the line of a key that is held, frees it, and times them until all
/// have had it. Each gives it back at once.
async fn drain(url: &str, waiters: usize) -> Duration {
    let builder = RedisSemaphore::builder().max_waiting(waiters + 1);
    let store = builder.connect(url).await.expect("the server is there");
    let claim = Claim::new(format!("crowd-{waiters}"))
        .with_limit(1)
        .with_wait(Duration::from_secs(60))
        .with_max_waiting(waiters);
    let permit = store.acquire(claim.clone()).await.expect("it is free");
    let mut line = JoinSet::new();
    for _ in 0..waiters {
        let (store, claim) = (store.clone(), claim.clone());
        line.spawn(async move { drop(store.acquire(claim).await.expect("its turn comes")) });
    }
    // Until all have joined.
    sleep(Duration::from_millis(200 + waiters as u64 / 5)).await;
    let start = Instant::now();
    drop(permit);
    line.join_all().await;
    start.elapsed()
}
