//! A store starts no threads while it works. The test needs a separate process, because it must run without a recorder.
//!
//! Promises: P11.

use std::{
    collections::HashMap,
    fs,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};
use testing::{child::child, redis::RedisServer};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// The names of this process's threads, by their numbers.
fn threads() -> HashMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs");
    let tasks = tasks.flatten().filter_map(|task| {
        // A thread that ends in the meantime has no name.
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        Some((task.file_name().into_string().ok()?, name.trim().to_owned()))
    });
    tasks.collect()
}

/// Acquires and drops permits in pairs, a light one and one for the whole limit, so that the keeper's thread sends their
/// releases.
async fn pairs(store: &RedisSemaphore, count: usize) {
    for _ in 0..count {
        let permit = store.acquire(Claim::new("a").with_limit(2)).await;
        drop(permit.expect("there is room"));
        // Granted only after the keeper has sent the release.
        let all = Claim::new("a").with_limit(2).with_weight(2);
        let all = store.acquire(all.with_wait(super::exposition::BOUND)).await;
        drop(all.expect("the first one is released"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "another test starts it as a process of its own"]
async fn a_process_without_a_recorder() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url())
        .await
        .expect("it connects");
    pairs(&store, 10).await;
    let (before, is_over) = (threads(), AtomicBool::new(false));
    let started = thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut seen = HashMap::new();
            while !is_over.load(Relaxed) {
                seen.extend(threads());
            }
            seen
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(pairs(&store, 1_000));
        });
        is_over.store(true, Relaxed);
        looks.join().expect("no panic")
    });
    let started = started.into_iter();
    let started: HashMap<_, _> = started
        .filter(|(task, _)| !before.contains_key(task))
        .collect();
    let store_threads = started.values().filter(|name| name.contains("semaphore"));
    println!(
        "{} threads of the store started",
        store_threads.clone().count()
    );
    assert_eq!(store_threads.count(), 0, "{started:?}");
}

#[test]
fn a_thousand_pairs_start_no_thread() {
    let mut child = child(module_path!(), "a_process_without_a_recorder");
    let output = child.output().expect("it starts");
    let output = String::from_utf8_lossy(&output.stdout);
    println!("{output}");
    assert!(output.contains("1 passed"), "{output}");
}
