//! Permits that change their weight while they are shown.

use super::{claim, every_store::memory, granted, usage};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use tower_semaphore::Permit;

/// Permits between the two that change, so that it takes a while to look at all.
const BETWEEN: u32 = 200;
const HEAVY: u32 = 100;
const LIMIT: u32 = BETWEEN + HEAVY + 1;

/// Moves units from one permit to the other and back until it is over. Returns how often.
async fn moved(permits: [Permit; 2], is_over: Arc<AtomicBool>) -> u32 {
    let mut times = 0;
    while !is_over.load(SeqCst) {
        for (from, to) in [(0, 1), (1, 0)] {
            permits[from].resize(1).await.expect("it is held");
            permits[to].resize(HEAVY).await.expect("there is room");
        }
        times += 1;
        tokio::task::yield_now().await;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_go_from_one_permit_to_another_are_shown_once() {
    let store = memory();
    let first = granted(&store, &claim("a", LIMIT).with_weight(HEAVY)).await;
    let mut between = Vec::new();
    for _ in 0..BETWEEN {
        between.push(granted(&store, &claim("a", LIMIT)).await);
    }
    let last = granted(&store, &claim("a", LIMIT)).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let moving = tokio::spawn(moved([first, last], Arc::clone(&is_over)));
    for _ in 0..2_000 {
        let usage = usage(&store, "a").await;
        let listed: u32 = usage.held.iter().map(|info| info.weight).sum();
        assert!(
            listed <= usage.units,
            "{listed} are listed of {}",
            usage.units
        );
        assert!(usage.units <= LIMIT, "{}", usage.units);
        tokio::task::yield_now().await;
    }
    is_over.store(true, SeqCst);
    assert!(moving.await.expect("no panic") > 10);
}
