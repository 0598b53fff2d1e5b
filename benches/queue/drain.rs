//! The drain of a long queue on one key.

use std::time::{Duration, Instant};
use testing::bench::{
    plot::{self, Title},
    run::pick,
    table::{Table, figure},
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

pub(crate) async fn compare(url: &str) {
    let title = "A queue on one key: from the first grant to the last, one permit";
    let mut table = Table::new(
        title,
        &["waiters", "total ms", "µs per grant", "not granted"],
    );
    let mut points = Vec::new();
    for waiters in pick(&[10, 100, 1_000][..], &[10, 100, 1_000, 10_000]) {
        let (took, failed) = drain(url, *waiters).await;
        let took = took.as_secs_f64();
        let each = took * 1e6 / *waiters as f64;
        table.row([*waiters as f64, took * 1e3, each, failed as f64].map(figure));
        points.push((*waiters as f64, each));
    }
    println!("{table}");
    let title = Title {
        file: "queue",
        text: title,
        x: "waiters",
        y: "µs per grant",
    };
    plot::lines(title, &[("RedisSemaphore".to_owned(), points)]);
}

/// The number of waiters that join at once.
const WAVE: u32 = 50;

/// Enqueues `waiters` for the only permit of a key, releases it, and measures the time until all have had it. Each
/// waiter releases it at once. Also returns the number of failed claims.
async fn drain(url: &str, waiters: u32) -> (Duration, usize) {
    let builder = RedisSemaphore::builder().max_waiting_total(waiters + 1);
    let store = builder.connect(url).await.expect("the server is there");
    let claim = Claim::new(format!("queue-{waiters}"))
        .with_limit(1)
        .with_wait(Duration::from_secs(60))
        .with_max_waiting(waiters);
    let permit = store.acquire(claim.clone()).await.expect("it is free");
    let mut queue = JoinSet::new();
    for number in 0..waiters {
        let (store, claim) = (store.clone(), claim.clone());
        queue.spawn(async move { store.acquire(claim).await.is_ok() });
        // Waiters join in waves, because this measures how a queue drains and not how fast it fills.
        if number % WAVE == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    }
    // Wait until the last waiters have joined.
    sleep(Duration::from_millis(200)).await;
    let start = Instant::now();
    drop(permit);
    let granted = queue.join_all().await;
    let failed = granted.iter().filter(|granted| !**granted).count();
    (start.elapsed(), failed)
}
