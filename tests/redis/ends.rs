//! A process that exits right after it drops a permit still releases that permit.
//!
//! Promises: P9.

use std::{env, process, time::Duration};
use testing::{child::child, redis::RedisServer, resp::Raw};
use tokio::runtime::{Builder, Runtime};
use tower_semaphore::{Claim, Lock, RedisSemaphore, Semaphore};

const URL: &str = "ENDS_URL";
const JOB: &str = "ENDS_JOB";

/// Longer than the test, so that a permit that was not released is still in Redis when the test looks.
const LEASE: Duration = Duration::from_secs(3_600);

/// The largest number of runs of a job.
const MOST_RUNS: usize = 20;

/// The test passes after this many runs that left nothing behind. On a busy machine the keeper's thread may not run
/// within the 10 ms for which the drop of the last handle waits. Without that wait every run would leave its permit.
const GOOD_RUNS: usize = 2;

fn runtime(flavor: &str) -> Runtime {
    let runtime = match flavor {
        "threads" => Builder::new_multi_thread().enable_all().build(),
        _ => Builder::new_current_thread().enable_all().build(),
    };
    runtime.expect("a runtime starts")
}

async fn store(url: &str) -> RedisSemaphore {
    let store = RedisSemaphore::builder().lease(LEASE).connect(url).await;
    store.expect("it connects")
}

/// Behaves like the body of a `main`: locals are dropped at its end.
async fn run(url: &str, job: &str) {
    let store = store(url).await;
    let claim = |limit| Claim::new("a").with_limit(limit);
    match job {
        "full" => drop(store.acquire(claim(1)).await.expect("it is free")),
        "not full" => drop(store.acquire(claim(5)).await.expect("it is free")),
        "lock" => {
            let lock = Lock::new(store, "a");
            drop(lock.try_acquire().await.expect("it is free"));
        }
        "task" => {
            let permit = store.acquire(claim(1)).await.expect("it is free");
            // The task, and with it the permit and the store, is dropped when the runtime is.
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop((permit, store));
            });
        }
        other => panic!("unknown: {other}"),
    }
}

#[test]
#[ignore = "a child process of the other tests, which asserts nothing by itself"]
fn a_process_that_ends_right_after_its_permit() {
    let (Ok(url), Ok(job)) = (env::var(URL), env::var(JOB)) else {
        return;
    };
    let (flavor, job) = job.split_once(": ").expect("the parent names both");
    let runtime = runtime(flavor);
    runtime.block_on(run(&url, job));
    drop(runtime);
    // Exits here to skip the test harness: in a program, no code runs after `main` either.
    process::exit(0);
}

/// True if enough runs of a job leave no permit held.
async fn leaves_nothing(job: &str) -> bool {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let mut good = 0;
    for _ in 0..MOST_RUNS {
        let ended = child(module_path!(), "a_process_that_ends_right_after_its_permit")
            .env(URL, server.url())
            .env(JOB, job)
            .output()
            .expect("the process starts");
        assert!(ended.status.success(), "{ended:?}");
        // The token outlives the permit.
        assert_eq!(raw.keys("*:token").await.len(), 1, "it was granted");
        good += usize::from(raw.keys("*:held").await.is_empty());
        if good == GOOD_RUNS {
            return true;
        }
        raw.cmd(&["FLUSHALL"]).await;
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_main_that_ends_right_after_a_permit_or_a_lock_leaves_nothing_held() {
    for flavor in ["threads", "one thread"] {
        for job in ["full", "not full", "lock"] {
            let job = format!("{flavor}: {job}");
            assert!(leaves_nothing(&job).await, "{job}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_in_a_task_that_ends_with_its_runtime_is_not_left_held() {
    for flavor in ["threads", "one thread"] {
        assert!(leaves_nothing(&format!("{flavor}: task")).await, "{flavor}");
    }
}
