//! A process without a free descriptor, so that the keeper's thread cannot make its runtime.
//!
//! The process is a child, because the test needs descriptors itself. The child reports over its standard error, and
//! continues when it gets a line. It writes no other lines there unless it fails.
//!
//! Promises: P11.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    collections::HashSet,
    env,
    error::Error,
    ffi::OsString,
    fs::{self, DirEntry, File},
    io, iter,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use testing::{
    child::child,
    machine::alone,
    redis::RedisServer,
    wait::{eventually, within},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
};
use tower_semaphore::{
    RedisSemaphore,
    redis::client::{AsyncConnectionConfig, Client, ConnectionInfo},
};

/// Tolerates a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// The limit on the child's descriptors. The child has fewer when the limit is set.
const FEW: u64 = 100;

/// The environment variable with the server's URL.
const URL: &str = "LEAKS_REDIS_URL";

/// The child prints this line once it has no free descriptor.
const FULL: &str = "no descriptor is left";

/// Takes all free descriptors.
fn take_descriptors() -> Vec<File> {
    iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// The keeper's threads in a process.
fn keepers(process: u32) -> Vec<OsString> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).expect("procfs");
    let is_keeper = |task: &DirEntry| {
        // A thread that has just ended has no name.
        let name = fs::read_to_string(task.path().join("comm"));
        name.is_ok_and(|name| name.trim() == "tower-semaphore")
    };
    let keepers = tasks.flatten().filter(is_keeper);
    keepers.map(|task| task.file_name()).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the test below starts it as a process of its own"]
async fn a_process_without_a_descriptor() {
    let url = env::var(URL).expect("the parent sets it");
    let limit = getrlimit(Resource::Nofile);
    // The files that use up the descriptors.
    let taken = Arc::new(Mutex::new(None));
    let takes = Arc::clone(&taken);
    // The first connection is made before the keeper's thread starts.
    let connector = move |info, config: AsyncConnectionConfig| {
        let takes = Arc::clone(&takes);
        async move {
            let connection = Client::open::<ConnectionInfo>(info)?
                .get_multiplexed_async_connection_with_config(&config)
                .await?;
            takes.lock().expect("no panic").get_or_insert_with(|| {
                let (current, maximum) = (Some(FEW), limit.maximum);
                setrlimit(Resource::Nofile, Rlimit { current, maximum }).expect("it may");
                take_descriptors()
            });
            Ok(connection)
        }
    };
    // An operator's store connects without a check.
    let builder = RedisSemaphore::builder().operator(true);
    let store = builder.connector(connector).connect(url).await;
    let store = store.expect("it needs no keeper");
    eventually("a check names the keeper", BOUND, async || {
        let checked = store.check().await;
        let why = checked.as_ref().err().and_then(Error::source);
        why.is_some_and(|why| why.to_string().contains("keeper"))
    })
    .await;
    eprintln!("{FULL}");
    io::stdin().read_line(&mut String::new()).expect("a line");

    taken.lock().expect("no panic").as_mut().map(Vec::clear);
    setrlimit(Resource::Nofile, limit).expect("it may");
    eventually("all is well", BOUND, async || store.check().await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_descriptor_for_the_keeper_a_check_names_the_keeper_and_few_threads_start() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let command = child(module_path!(), "a_process_without_a_descriptor");
    let mut process = Command::from(command)
        .env(URL, server.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(process.stderr.take().expect("it is piped")).lines();
    let mut next = async || {
        let line = within("a line, or the end", 2 * BOUND, lines.next_line());
        line.await.expect("text")
    };
    assert_eq!(next().await.as_deref(), Some(FULL));

    let (start, id) = (Instant::now(), process.id().expect("it runs"));
    let mut seen = HashSet::new();
    while start.elapsed() < Duration::from_secs(1) {
        seen.extend(keepers(id));
    }
    // Each thread ends at once, and the next one starts a tenth of a second later. Without the pause it would be
    // hundreds.
    assert!(seen.len() < 50, "{} threads end at once", seen.len());

    let mut input = process.stdin.take().expect("it is piped");
    input.write_all(b"go on\n").await.expect("it reads");
    assert_eq!(next().await, None);
    let status = within("its end", BOUND, process.wait()).await;
    assert!(status.expect("it has started").success());
}
