//! A process that has no descriptor left, which the keeper's thread needs for its runtime.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    collections::HashSet,
    error::Error,
    ffi::OsString,
    fs::{self, DirEntry, File},
    iter,
    time::Duration,
};
use testing::{machine::alone, redis::RedisServer, wait::eventually};
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::{WhenUnavailable, client::Client},
};

/// For a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// How many descriptors the process may have. It has fewer.
const FEW: u64 = 100;

/// Takes all descriptors that are left.
fn all() -> Vec<File> {
    iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// The keeper's threads that there are now. Needs one descriptor.
fn keepers() -> Vec<OsString> {
    let tasks = fs::read_dir("/proc/self/task").expect("procfs");
    let tasks: Vec<_> = tasks.flatten().collect();
    let is_keeper = |task: &DirEntry| {
        // One that ends meanwhile has no name.
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "tower-semaphore")
    };
    let keepers = tasks.into_iter().filter(is_keeper);
    keepers.map(|task| task.file_name()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_descriptor_for_the_keeper_the_policy_decides_and_few_threads_start() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let client = Client::open(server.url()).expect("a URL");
    let connection = client.get_multiplexed_async_connection().await;
    let limit = getrlimit(Resource::Nofile);
    let (current, maximum) = (Some(FEW), limit.maximum);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("it may");
    let mut taken = all();

    let builder = RedisSemaphore::builder().when_unavailable(WhenUnavailable::Admit);
    let store = builder.with_connection(connection.expect("it connects"));
    let store = store.expect("good settings");
    let claim = Claim::new("a").with_limit(1);
    let permit = store.acquire(claim.clone()).await.expect("as decided");
    assert!(permit.is_degraded());
    let error = store.check().await.expect_err("no thread runs");
    let why = error.source().expect("a reason").to_string();
    assert!(why.contains("keeper"), "{why}");
    taken.pop();
    let seen: HashSet<_> = (0..200).flat_map(|_| keepers()).collect();
    assert!(seen.len() < 10, "threads that end at once: {seen:?}");

    // Nobody claims meanwhile.
    drop(taken);
    eventually("the server knows the permit", BOUND, async || {
        !permit.is_degraded()
    })
    .await;
    drop(permit);
    setrlimit(Resource::Nofile, limit).expect("it may");
    eventually("the server decides", BOUND, async || {
        let permit = store.acquire(claim.clone()).await;
        permit.is_ok_and(|permit| !permit.is_degraded())
    })
    .await;
    store.check().await.expect("all is well");
}
