//! `Permit::end_after` starts a task, which ends when the permit is dropped.
//!
//! Promises: P9.

use std::{fs, time::Duration};
use testing::child::child;
use tokio::{runtime::Handle, task::yield_now};
use tower_semaphore::{Claim, MemorySemaphore, Semaphore};

const HOUR: Duration = Duration::from_secs(3_600);

/// The names of this process's threads.
fn threads() -> Vec<String> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten();
    let names = threads.map(|thread| fs::read_to_string(thread?.path().join("comm")));
    names.map_while(Result::ok).collect()
}

#[tokio::test(start_paused = true)]
#[ignore = "other tests start it as a process of its own"]
async fn a_process_that_drops_a_permit_before_its_time_is_over() {
    let store = MemorySemaphore::new();
    let permit = store.acquire(Claim::new("a").with_limit(1)).await;
    let permit = permit.expect("there is room");
    let tasks = || Handle::current().metrics().num_alive_tasks();
    permit.end_after(HOUR);
    yield_now().await;
    assert_eq!(tasks(), 1);
    drop(permit);
    // More than enough polls for the task to end.
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!(tasks(), 0);
    // The library starts this thread only for work that outlives its runtime.
    let background = |name: &String| name.trim() == "tower-semaphore";
    assert!(!threads().iter().any(background));
}

#[test]
fn a_permit_that_is_dropped_before_its_time_is_over_leaves_no_task_and_no_thread() {
    let output = child(
        module_path!(),
        "a_process_that_drops_a_permit_before_its_time_is_over",
    )
    .output();
    let printed = output.expect("it starts").stdout;
    let printed = String::from_utf8_lossy(&printed);
    assert!(printed.contains("1 passed"), "{printed}");
}
