//! Measures the time from a release in one store to the grant in another.

use super::{
    figures::Latencies,
    table::{Table, figure},
};
use redis::{Script, aio::MultiplexedConnection};
use std::time::{Duration, Instant};
use tokio::time::sleep;
use tower_semaphore::{Claim, Semaphore};

/// The time from the release of a permit by one store to its grant to a waiter of the other store.
pub async fn wake<S: Semaphore>(holder: &S, waiter: &S, key: String) -> Duration {
    let claim = Claim::new(key)
        .with_limit(1)
        .with_wait(Duration::from_secs(5));
    let permit = holder.acquire(claim.clone()).await;
    let permit = permit.expect("it is free soon");
    let waiting = waiter.acquire(claim);
    let waiting = tokio::spawn(async move {
        let permit = waiting.await.expect("it is granted");
        let granted = Instant::now();
        assert!(permit.release().await, "it was held");
        granted
    });
    // Long enough for the claim to join the queue, and for all connections to become idle.
    sleep(Duration::from_millis(3)).await;
    let released = Instant::now();
    drop(permit);
    waiting.await.expect("the waiter ends") - released
}

/// The round-trip time of an empty script.
pub async fn round_trip(connection: &MultiplexedConnection) -> Duration {
    let script = Script::new("return 1");
    let start = Instant::now();
    let answer = script.invoke_async(&mut connection.clone()).await;
    let _: u8 = answer.expect("the server answers");
    start.elapsed()
}

/// Prints the latencies of wakes beside those of round trips.
pub fn report<'a>(trips: &'a Latencies, wakes: impl IntoIterator<Item = (&'a str, &'a Latencies)>) {
    let head = ["", "p50", "p99", "× round trip"];
    let mut table = Table::new("From a release to the grant in another store, µs", &head);
    let empty = ("empty script, there and back", trips);
    for (name, own) in [empty].into_iter().chain(wakes) {
        let [p50, p99] = own.quantiles([0.5, 0.99]);
        let figures = [p50, p99, p50 / trips.p50()].map(figure);
        table.row([name.to_owned()].into_iter().chain(figures));
    }
    println!("{table}");
}
