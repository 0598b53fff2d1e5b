//! A machine resumes after it was suspended.

use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};
use std::{
    env,
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};
use testing::{
    child::child, clock::SteppedClock, machine::alone, proxy::Proxy, redis::RedisServer,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const URL: &str = "RESUMED_URL";
/// Permits before the suspension, and as many after it.
const KEYS: usize = 20;
/// How often the machine is suspended at most.
const TRIES: usize = 5;
/// So long that no permit ends in this test by itself, and that two ticks are far apart.
const LEASE: Duration = Duration::from_secs(30);
/// How long the process waits for a loss: for the next tick, and the refresh that it starts.
const WATCHED: Duration = Duration::from_secs(8);
/// Longer than a lease.
const SUSPENDED: i64 = 60;

/// How long the machine has run, suspended or not, less the time that this process has run.
fn suspended(start: Instant) -> f64 {
    let booted = clock_gettime(ClockId::Boottime).tv_sec as f64;
    booted - start.elapsed().as_secs_f64()
}

async fn hold(store: &RedisSemaphore, name: &str) -> Vec<Permit> {
    let claims = (0..KEYS).map(|number| Claim::new(format!("{name}{number}")).with_limit(1));
    let permits = join_all(claims.map(|claim| store.acquire(claim))).await;
    let permits = permits.into_iter();
    permits
        .map(|permit| permit.expect("there is room"))
        .collect()
}

/// Acquires and releases name queues.
fn is_refresh_of_after(args: &[Vec<u8>]) -> bool {
    let names = |text: &[u8]| {
        let mut args = args.iter();
        args.any(|arg| arg.windows(text.len()).any(|window| window == text))
    };
    names(b"{concurrency:after") && !names(b":queue")
}

async fn lost(permits: &[Permit]) -> usize {
    let lost = permits.iter().map(|permit| timeout(WATCHED, permit.lost()));
    let lost = join_all(lost).await.into_iter();
    lost.filter(Result::is_ok).count()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "other tests start it as a process of its own"]
async fn a_process_that_is_suspended() {
    let Ok(url) = env::var(URL) else {
        return;
    };
    // A busy machine is no failure of the store.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let builder = builder.lease(LEASE);
    let store = builder.connect(url.as_str()).await.expect("it connects");
    let before = hold(&store, "before").await;
    let start = Instant::now();
    let first = suspended(start);
    // The keeper has ticked since.
    sleep(LEASE / 12).await;
    println!("\nholds");
    while suspended(start) - first < SUSPENDED as f64 / 2.0 {
        sleep(Duration::from_millis(1)).await;
    }
    let after = hold(&store, "after").await;
    let (lost_before, lost_after) = tokio::join!(lost(&before), lost(&after));
    println!("\nbefore {lost_before}\nafter {lost_after}");
}

/// How many permits from before a suspension are lost, and how many of those granted since.
async fn lost_before_and_since() -> [usize; 2] {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    // The network is not back at once: the keeper has to refresh twice.
    proxy.drop_replies_to(1, is_refresh_of_after);
    let clock = SteppedClock::compile();
    let mut child = child(module_path!(), "a_process_that_is_suspended")
        .env(URL, proxy.url())
        .envs(clock.environment())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let out = child.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(out).lines().map_while(Result::ok);
    let mut says = |start: &str| {
        let said = lines.find_map(|line| Some(line.strip_prefix(start)?.to_owned()));
        said.expect("it goes on")
    };
    tokio::task::block_in_place(|| says("holds"));
    clock.suspend(SUSPENDED);
    let lost = ["before ", "after "].map(|group| {
        let count = tokio::task::block_in_place(|| says(group));
        count.parse().expect("a number")
    });
    child.wait().expect("it ends");
    lost
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_from_before_a_suspension_are_lost_and_those_granted_since_are_not() {
    let _alone = alone().await;
    for _ in 0..TRIES {
        let [before, since] = lost_before_and_since().await;
        assert_eq!(since, 0, "of {KEYS}");
        // A few may have been refreshed just before. On a busy machine the keeper may tick before the
        // permits are granted, and asks at once for those from before.
        if before > KEYS / 2 {
            return;
        }
    }
    panic!("no permit was lost");
}
