//! The time from a release in one process to the grant in another.

use testing::bench::{
    figures::Latencies,
    link,
    run::{bar, pick},
    wake::{report, round_trip, wake},
};
use tower_semaphore::RedisSemaphore;

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
        wakes.add(wake(&holder, &waiter, "wake".to_owned()).await);
        trips.add(round_trip(&connection).await);
        progress.inc(1);
    }
    progress.finish_and_clear();
    report(&trips, [("release to grant", &wakes)]);
}
