//! Clocks that jump under a process: its machine resumes after a suspension, or NTP sets the wall clock forward.
//!
//! Promises: P4, P6, P8.

use futures_util::future::join_all;
use rustix::time::{ClockId, clock_gettime};
use std::{
    env,
    io::{BufRead, BufReader, Lines},
    process::{Child, ChildStdout, Stdio},
    time::{Duration, Instant},
};
use testing::{
    child::child, clock::SteppedClock, machine::alone, proxy::Proxy, redis::RedisServer,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const URL: &str = "CLOCKS_URL";
const KEYS: &str = "CLOCKS_KEYS";
/// Long enough that no permit ends by itself in these tests and that ticks are far apart.
const LEASE: Duration = Duration::from_secs(30);
/// The time for which a process waits for a loss: until the keeper's next tick and its refreshes.
const WATCHED: Duration = Duration::from_secs(8);
/// The length of each jump in seconds, longer than a lease.
const LEAP: i64 = 60;

/// A time in seconds that grows only by suspensions: the machine's uptime, which includes them, minus the time that
/// this process has run since `start`.
fn suspended(start: Instant) -> f64 {
    let booted = clock_gettime(ClockId::Boottime).tv_sec as f64;
    booted - start.elapsed().as_secs_f64()
}

/// Acquires `count` permits of different keys. Claims that fail on a busy machine are repeated with other keys.
async fn hold(store: &RedisSemaphore, name: &str, count: usize) -> Vec<Permit> {
    let (mut permits, mut number) = (Vec::new(), 0);
    while permits.len() < count {
        let claims = (permits.len()..count).take(50).map(|_| {
            number += 1;
            store.acquire(Claim::new(format!("{name}{number}")).with_limit(1))
        });
        permits.extend(join_all(claims).await.into_iter().flatten());
    }
    permits
}

/// The number of permits that are lost within `WATCHED`.
async fn lost(permits: &[Permit]) -> usize {
    let lost = permits.iter().map(|permit| timeout(WATCHED, permit.lost()));
    let lost = join_all(lost).await.into_iter();
    lost.filter(Result::is_ok).count()
}

/// Holds `keys` permits from before a suspension and `keys` from after it. Prints the number of lost permits of each
/// kind. Each output begins with a line break, because the test runner has written to the line.
async fn hold_across_a_suspension(store: &RedisSemaphore, keys: usize) {
    let before = hold(store, "before", keys).await;
    let start = Instant::now();
    let first = suspended(start);
    // The keeper's thread runs at least once during this sleep.
    sleep(LEASE / 12).await;
    println!("\nholds");
    // Half of a leap is far more than the rounding of `suspended`. Sleeps are counted, because the clocks jump.
    let mut sleeps = 0;
    while suspended(start) - first < LEAP as f64 / 2.0 {
        assert!(sleeps < 60_000, "no suspension for a minute");
        sleeps += 1;
        sleep(Duration::from_millis(1)).await;
    }
    let after = hold(store, "after", keys).await;
    let (before, after) = tokio::join!(lost(&before), lost(&after));
    println!("\nbefore {before}\nafter {after}");
}

/// Holds `keys` permits, and prints the number of lost ones.
async fn hold_and_watch(store: &RedisSemaphore, keys: usize) {
    let permits = hold(store, "k", keys).await;
    println!("\nholds");
    println!("\nlost {}", lost(&permits).await);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "other tests start it as a process of its own"]
async fn a_process_with_a_clock_of_its_own() {
    let (Ok(url), Ok(keys)) = (env::var(URL), env::var(KEYS)) else {
        return;
    };
    // The timeout tolerates a busy machine.
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    let store = builder.lease(LEASE).connect(url.as_str()).await;
    let store = store.expect("it connects");
    match keys.strip_prefix("suspended ") {
        Some(keys) => hold_across_a_suspension(&store, keys.parse().expect("a number")).await,
        None => hold_and_watch(&store, keys.parse().expect("a number")).await,
    }
}

/// A child process that holds permits, and its clock.
struct Holder {
    _server: RedisServer,
    proxy: Proxy,
    clock: SteppedClock,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    async fn start(keys: &str) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::start(&server).await;
        // After a suspension the network takes a moment to return. So the first reply is lost, and the keeper must
        // refresh again.
        proxy.drop_replies_to(1, is_refresh_of_after);
        let clock = SteppedClock::compile();
        let mut child = child(module_path!(), "a_process_with_a_clock_of_its_own")
            .envs([(URL, &*proxy.url()), (KEYS, keys)])
            .envs(clock.environment())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = child.stdout.take().expect("it is piped");
        let mut holder = Self {
            _server: server,
            proxy,
            clock,
            child,
            lines: BufReader::new(out).lines(),
        };
        holder.wait_for("holds");
        holder
    }

    /// Waits for a line that the child prints with this start. Returns the rest of the line.
    fn wait_for(&mut self, start: &str) -> String {
        let lines = self.lines.by_ref().map_while(Result::ok);
        let mut found = lines.filter_map(|line| Some(line.strip_prefix(start)?.to_owned()));
        tokio::task::block_in_place(|| found.next().expect("it goes on"))
    }

    /// The numbers of lost permits that the child prints after these words.
    fn lost<const N: usize>(mut self, groups: [&str; N]) -> [usize; N] {
        let lost = groups.map(|group| self.wait_for(group).parse().expect("a number"));
        self.child.wait().expect("it ends");
        lost
    }
}

/// True for a refresh of an `after` permit. Unlike acquires and releases, refreshes do not name queues.
fn is_refresh_of_after(args: &[Vec<u8>]) -> bool {
    let names = |text: &[u8]| {
        let mut args = args.iter();
        args.any(|arg| arg.windows(text.len()).any(|window| window == text))
    };
    names(b"{concurrency:after") && !names(b":queue")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_loses_the_permits_from_before_it_and_none_granted_after_it() {
    let _alone = alone().await;
    for _ in 0..5 {
        let holder = Holder::start("suspended 20").await;
        holder.clock.suspend(LEAP);
        let [before, after] = holder.lost(["before ", "after "]);
        assert_eq!(after, 0, "of 20");
        // A few permits may have been refreshed just before the suspension. On a busy machine the keeper may tick
        // before the new permits are granted, and then refreshes the old ones at once.
        if before > 10 {
            return;
        }
    }
    panic!("no permit was lost");
}

/// Refreshing these 2,000 permits takes longer than a timeout.
#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_set_forward_loses_no_permit() {
    let _alone = alone().await;
    let holder = Holder::start("2000").await;
    let delay = Duration::from_millis(50);
    holder.proxy.delay(delay, delay);
    holder.clock.set(LEAP);
    assert_eq!(holder.lost(["lost "]), [0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_set_forward_in_an_outage_loses_no_permit() {
    let _alone = alone().await;
    let holder = Holder::start("1").await;
    holder.proxy.black_hole();
    holder.clock.set(LEAP);
    sleep(WATCHED / 3).await;
    holder.proxy.forward();
    assert_eq!(holder.lost(["lost "]), [0]);
}
