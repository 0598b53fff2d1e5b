//! Clocks that differ, and clocks that are set. Only the server's clock decides.
//!
//! Promises: P1, P4, P5.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use testing::{
    clock::SteppedClock, fleet::Process, proxy::Proxy, redis::RedisServer, resp::Raw,
    wait::eventually,
};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const BOUND: Duration = Duration::from_secs(20);
const HELD: &str = "semaphore:2:{concurrency:a}:held";
const QUEUE: &str = "semaphore:2:{concurrency:a}:queue";
const HOUR: i64 = 3_600;
const LEASE: Duration = Duration::from_secs(2);
/// The time within which a permit is free after the clock was set: a lease, and slack for a busy machine.
const FREE: Duration = Duration::from_secs(5);
/// The lease of the five processes whose clocks differ. They share a limit of three.
const SHORT: Duration = Duration::from_millis(900);
const MISSING: &str = "this test needs libfaketime: `apt-get install faketime`";

/// A process whose wall clock `libfaketime` shifts by `skew` seconds, and its results.
struct Skewed {
    process: Process,
    skew: i64,
    /// The start of its current permit, if it holds one.
    since: Option<Instant>,
    grants: u32,
    refusals: u32,
}

impl Skewed {
    /// Starts a process, and checks that its wall clock is shifted. `libfaketime` leaves the monotonic clock alone.
    fn start(server: &RedisServer, skew: i64) -> Self {
        let monotonic = ["DONT_FAKE_MONOTONIC", "FAKETIME_DONT_FAKE_MONOTONIC"];
        let mut environment = vec![
            ("LD_PRELOAD", library().display().to_string()),
            ("FAKETIME", format!("{skew:+}s")),
        ];
        environment.extend(monotonic.map(|name| (name, "1".to_owned())));
        let mut process = Process::with(&server.url(), SHORT, &environment);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.expect("it is after 1970").as_secs() as i64;
        let really = process.clock() as i64 - now;
        assert!((really - skew).abs() <= 5, "{really} s instead of {skew} s");
        Self {
            process,
            skew,
            since: None,
            grants: 0,
            refusals: 0,
        }
    }

    /// Tries to take a permit of `a`. It must be granted exactly if fewer than three are `held`.
    fn try_acquire(&mut self, held: usize) {
        let granted = self.process.acquire("p", "a", 3).is_some();
        assert_eq!(
            granted,
            held < 3,
            "the process at {:+} s, with {held} held",
            self.skew
        );
        self.since = granted.then(Instant::now);
        self.grants += u32::from(granted);
        self.refusals += u32::from(!granted);
    }

    /// Checks that the permit is still held. Releases it once it is older than a lease.
    fn keep(&mut self, since: Instant) {
        let lost = self.process.is_lost("p");
        assert!(
            !lost,
            "the process at {:+} s lost its live permit",
            self.skew
        );
        if since.elapsed() > SHORT * 4 / 3 {
            let held = self.process.release("p");
            assert!(
                held,
                "the permit of the process at {:+} s was not held any more",
                self.skew
            );
            self.since = None;
        }
    }
}

/// Finds the library where Debian and distributions that follow it install it.
fn library() -> PathBuf {
    let folders = fs::read_dir("/usr/lib").expect(MISSING).flatten();
    let folders = folders.map(|folder| folder.path());
    let file = Path::new("faketime/libfaketimeMT.so.1");
    let all = folders.chain(["/usr/lib".into()]);
    let mut libraries = all.map(|folder| folder.join(file));
    libraries.find(|library| library.exists()).expect(MISSING)
}

fn holders(fleet: &[Skewed]) -> usize {
    let hold = fleet.iter().filter(|process| process.since.is_some());
    hold.count()
}

/// Only one process acts at a time, so the test always knows how many permits are held.
#[tokio::test(flavor = "multi_thread")]
async fn processes_with_clocks_minutes_apart_hold_the_limit_and_never_more() {
    let server = RedisServer::start();
    let mut fleet = [-600, -60, 0, 90, 600].map(|skew| Skewed::start(&server, skew));
    let mut raw = Raw::connect(server.port()).await;
    let start = Instant::now();
    while start.elapsed() < SHORT * 6 {
        for i in 0..fleet.len() {
            let held = holders(&fleet);
            match fleet[i].since {
                Some(since) => fleet[i].keep(since),
                None => fleet[i].try_acquire(held),
            }
            assert_eq!(raw.zmembers(HELD).await.len(), holders(&fleet));
        }
    }
    for process in fleet {
        let (grants, refusals) = (process.grants, process.refusals);
        assert!(
            grants > 0 && refusals > 0,
            "{:+} s: {grants} grants, {refusals} refusals",
            process.skew
        );
    }
}

fn claim() -> Claim {
    Claim::new("a").with_limit(1)
}

async fn store(server: &RedisServer, lease: Duration) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(lease);
    let store = builder.timeout(lease / 3).connect(server.url()).await;
    store.expect("it connects")
}

async fn permit(store: &RedisSemaphore) -> Permit {
    store.acquire(claim()).await.expect("there is room")
}

/// A clock that can be set, a server that follows it, and a store.
async fn fixture(lease: Duration) -> (SteppedClock, RedisServer, RedisSemaphore) {
    let clock = SteppedClock::compile();
    let server = clock.server();
    let store = store(&server, lease).await;
    (clock, server, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_holders_permit_is_free_a_lease_after_the_clock_was_set_back() {
    for can_wait in [false, true] {
        let (clock, server, store) = fixture(LEASE).await;
        let mut process = Process::start(&server.url(), LEASE);
        process.acquire("p", "a", 1).expect("there is room");
        process.kill();
        clock.set(-HOUR);
        if can_wait {
            let granted = store.acquire(claim().with_wait(FREE)).await;
            assert!(granted.is_ok(), "{granted:?}");
        } else {
            let is_free = async || store.acquire(claim()).await.is_ok();
            eventually("it is free", FREE, is_free).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_waiter_holds_the_queue_up_for_a_lease_at_most_after_the_clock_was_set_back() {
    let (clock, server, store) = fixture(LEASE).await;
    let holder = permit(&store).await;
    let mut raw = Raw::connect(server.port()).await;
    let mut process = Process::start(&server.url(), LEASE);
    process.contend(None, "w", "a", 1);
    eventually("it waits", BOUND, async || raw.zcard(QUEUE).await == 1).await;
    process.kill();
    let waiter = tokio::spawn(store.acquire(claim().with_wait(FREE)));
    clock.set(-HOUR);
    assert!(holder.release().await);
    let granted = waiter.await.expect("it did not panic");
    assert!(granted.is_ok(), "{granted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_recover_at_once_when_the_clock_was_set_forward() {
    let (clock, _server, store) = fixture(LEASE * 3 / 2).await;
    // Forward by one hour, back by one, forward by two, and back by three.
    for (step, hours) in [1, 0, 2, -1].into_iter().enumerate() {
        clock.set(hours * HOUR);
        let claims = (0..64).map(|key| {
            let claim = Claim::new(format!("{step}-{key}")).with_limit(1);
            store.acquire(claim)
        });
        let answers = futures_util::future::join_all(claims).await;
        let failed: Vec<_> = answers.into_iter().filter_map(Result::err).collect();
        assert!(failed.is_empty(), "{hours} h: {failed:?}");
    }
}

/// Cancels a claim while its command is in flight. The command takes `delay` to arrive.
async fn cancel_in_flight(proxy: &Proxy, store: &RedisSemaphore, delay: Duration) {
    proxy.clear_log();
    proxy.delay(delay, Duration::ZERO);
    let sent = async || proxy.count(b"EVALSHA") > 0;
    tokio::select! {
        answer = store.acquire(claim()) => panic!("{answer:?}"),
        () = eventually("it is on its way", BOUND, sent) => {}
    }
    proxy.delay(Duration::ZERO, Duration::ZERO);
}

/// Like `fixture`, with a proxy in front of the server, which already knows the scripts.
async fn behind_a_proxy(lease: Duration) -> (SteppedClock, RedisServer, Proxy, RedisSemaphore) {
    let clock = SteppedClock::compile();
    let server = clock.server();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(lease);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    assert!(permit(&store).await.release().await);
    (clock, server, proxy, store)
}

/// The simulation does not check this case: an acquire that runs after the clock was set back.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_claim_holds_nothing_after_the_clock_was_set_back_by_a_second() {
    let (clock, server, proxy, store) = behind_a_proxy(BOUND).await;
    clock.set(-1);
    assert!(permit(&store).await.release().await);
    let delay = Duration::from_millis(700);
    cancel_in_flight(&proxy, &store, delay).await;
    // The command arrives during this sleep.
    tokio::time::sleep(delay + Duration::from_millis(300)).await;
    let mut raw = Raw::connect(server.port()).await;
    let is_free = async || raw.zcard(HELD).await == 0;
    eventually("nothing is held", BOUND / 2, is_free).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_and_a_drop_after_the_clock_was_set_back_end_when_all_is_released() {
    for is_dropped in [false, true] {
        let (clock, _server, proxy, store) = behind_a_proxy(LEASE).await;
        cancel_in_flight(&proxy, &store, Duration::from_millis(100)).await;
        clock.set(-HOUR);
        if !is_dropped {
            // During this sleep the command arrives, and its release is answered.
            tokio::time::sleep(LEASE / 4).await;
            let rest = tokio::time::timeout(LEASE * 4, store.shutdown(LEASE * 6)).await;
            assert_eq!(rest.expect("it ends"), []);
        }
        drop(store);
        let is_closed = async || proxy.connections() == 0;
        eventually("its connection is closed", BOUND, is_closed).await;
    }
}
