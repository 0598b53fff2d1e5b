//! From a release in one process to the grant in another.

use redis::Script;
use std::time::{Duration, Instant};
use testing::bench::{
    figures::Latencies,
    link::{self, MultiplexedConnection},
    run::{bar, pick},
    table::{Table, figure},
};
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

pub(crate) async fn compare(url: &str) {
    let rounds = pick(300, 2_000);
    let store = || async {
        RedisSemaphore::connect(url)
            .await
            .expect("the server is there")
    };
    let (holder, waiter) = (store().await, store().await);
    let connection = link::connect(&link::client(url)).await;
    let (mut wakes, mut trips) = (Latencies::default(), Latencies::default());
    let progress = bar("wake", rounds);
    for _ in 0..rounds {
        wakes.add(wake(&holder, &waiter).await);
        trips.add(round_trip(&connection).await);
        progress.inc(1);
    }
    progress.finish_and_clear();
    report(&trips, &wakes);
}

fn report(trips: &Latencies, wakes: &Latencies) {
    let mut table = Table::new(
        "From a release to the grant in another store, µs",
        &["", "p50", "p99", "× round trip"],
    );
    let trip = trips.p50();
    for (name, own) in [
        ("empty script, there and back", trips),
        ("release to grant", wakes),
    ] {
        let [p50, p99] = own.quantiles([0.5, 0.99]);
        let figures = [p50, p99, p50 / trip].map(figure);
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    println!("{table}");
}

/// One permit goes from one store to the other.
async fn wake(holder: &RedisSemaphore, waiter: &RedisSemaphore) -> Duration {
    let claim = Claim::new("wake")
        .with_limit(1)
        .with_wait(Duration::from_secs(5));
    let permit = holder
        .acquire(claim.clone())
        .await
        .expect("it is free soon");
    let waiter = waiter.clone();
    let waiting = tokio::spawn(async move {
        let permit = waiter.acquire(claim).await.expect("it is granted");
        let granted = Instant::now();
        assert!(permit.release().await, "it was held");
        granted
    });
    // Until it is in the queue, and both connections are idle.
    sleep(Duration::from_millis(3)).await;
    let released = Instant::now();
    drop(permit);
    waiting.await.expect("the waiter ends") - released
}

async fn round_trip(connection: &MultiplexedConnection) -> Duration {
    let script = Script::new("return 1");
    let start = Instant::now();
    let answer = script.invoke_async(&mut connection.clone()).await;
    let _: u8 = answer.expect("the server answers");
    start.elapsed()
}
