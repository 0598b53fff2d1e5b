//! A job that ends right after its permit. It runs this benchmark itself as a child.

use std::{
    env,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::{Duration, Instant},
};
use testing::{
    bench::{
        run::pick,
        table::{Table, figure},
    },
    redis::RedisServer,
};
use tokio::runtime::Builder;
use tower_semaphore::{Claim, Lock, RedisSemaphore, Semaphore};

const JOB: &str = "TURNS_JOB";

/// The kind of each job, with the limit of its permit, and the flavour of its runtime.
const JOBS: [&str; 6] = [
    "permit-1 many",
    "permit-5 many",
    "permit-1 current",
    "permit-5 current",
    "lock many",
    "lock current",
];

/// Runs the job if this process is such a child.
pub(crate) fn runs_as_child() -> bool {
    let Ok(job) = env::var(JOB) else {
        return false;
    };
    let words: Vec<_> = job.split(' ').collect();
    let [url, what, flavor] = words[..] else {
        panic!("the parent says all");
    };
    let runtime = match flavor {
        "many" => Builder::new_multi_thread().enable_all().build(),
        _ => Builder::new_current_thread().enable_all().build(),
    };
    runtime.expect("a runtime starts").block_on(work(url, what));
    true
}

/// Acquires and drops a permit or a lock, as a `#[tokio::main]` function would. Prints how long the drops took, in µs.
async fn work(url: &str, what: &str) {
    let store = RedisSemaphore::connect(url).await;
    let store = store.expect("the server is there");
    let done = match what {
        "lock" => {
            let lock = Lock::new(store, "nightly");
            let guard = lock.acquire(Duration::from_secs(5)).await;
            let guard = guard.expect("it is free");
            let done = Instant::now();
            drop(guard);
            done
        }
        _ => {
            let limit = if what == "permit-1" { 1 } else { 5 };
            let claim = Claim::new("ann").with_limit(limit);
            let permit = store.acquire(claim).await.expect("there is room");
            let done = Instant::now();
            drop(permit);
            drop(store);
            done
        }
    };
    print!("{}", done.elapsed().as_micros());
}

/// Counts the runs that leave a permit behind.
pub(crate) fn table() -> Table {
    let runs = pick(5, 20);
    let head = ["job", "left behind", "of", "end, µs (p50)", "most"];
    let mut table = Table::new("A process that ends right after its permit", &head);
    for job in JOBS {
        let redis = RedisServer::start();
        let mut took = Vec::new();
        let mut left_behind = 0;
        for _ in 0..runs {
            let out = Command::new(env::current_exe().expect("a benchmark is a program"))
                .env(JOB, format!("{} {job}", redis.url()))
                .output()
                .expect("the child starts");
            assert!(
                out.status.success(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
            let text = String::from_utf8(out.stdout).expect("it is a number");
            took.push(text.parse::<f64>().expect("it is a number"));
            left_behind += usize::from(is_held(&redis));
            flush(&redis);
        }
        took.sort_by(f64::total_cmp);
        table.row([
            job.to_owned(),
            left_behind.to_string(),
            runs.to_string(),
            figure(took[took.len() / 2]),
            figure(took[took.len() - 1]),
        ]);
    }
    table
}

/// True if the Redis holds a permit.
fn is_held(redis: &RedisServer) -> bool {
    let keys = ask(redis, "KEYS *:held");
    keys.contains(":held")
}

fn flush(redis: &RedisServer) {
    ask(redis, "FLUSHALL");
}

fn ask(redis: &RedisServer, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", redis.port())).expect("it listens");
    write!(stream, "{command}\r\nQUIT\r\n").expect("it is connected");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}
