//! A permit that ends after its time leaves no task behind.

use std::time::Duration;
use tokio::{runtime::Handle, task::yield_now};
use tower_semaphore::{Claim, MemorySemaphore, Semaphore};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_dropped_before_its_end_leaves_no_task() {
    let store = MemorySemaphore::new();
    let permit = store.acquire(Claim::new("a").with_limit(1)).await;
    let permit = permit.expect("there is room");
    let tasks = || Handle::current().metrics().num_alive_tasks();
    permit.end_after(HOUR);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop(permit);
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!(tasks(), 0);
}
