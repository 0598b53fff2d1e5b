//! Claims and permits with very many units, next to another user of the server.
//!
//! Promises: P1, P11.

use crate::load::{TIME, TRIES, answer, offer};
use futures_util::future::join_all;
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use testing::{
    machine::alone,
    redis::RedisServer,
    resp::Raw,
    rig::{BOUND, Rig, warm},
    stall::StallWatch,
    wait::{eventually, one_round_passes},
};
use tokio::runtime;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, redis::Builder};

/// The largest number of rounds. On a busy machine a round's pings may be late for other reasons.
const ROUNDS: usize = 8;

/// The longest time for which the server may work before it answers another user, in CPU time, so that other load on
/// the machine hardly matters. Handling all units at once would take half a second or more.
const STALL: Duration = Duration::from_millis(100);

/// Long enough for the server to handle all units.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Another user of the server, which sends pings on a separate thread.
struct Other {
    end: Arc<AtomicBool>,
    pings: JoinHandle<Duration>,
}

impl Other {
    fn start(server: &RedisServer) -> Self {
        let (port, pid) = (server.port(), server.pid());
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let pings = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime can be made");
            runtime.block_on(ping(port, pid, &ended))
        });
        Self { end, pings }
    }

    /// Stops the pings. Returns the longest CPU time that the server used before it answered one.
    fn slowest(self) -> Duration {
        self.end.store(true, Ordering::Relaxed);
        self.pings.join().expect("it did not panic")
    }
}

/// Pings until `end` is set. Returns the longest CPU time that the server used before it answered one.
async fn ping(port: u16, pid: u32, end: &AtomicBool) -> Duration {
    let mut raw = Raw::connect(port).await;
    let mut slowest = Duration::ZERO;
    while !end.load(Ordering::Relaxed) {
        let start = time_on_processor(pid);
        raw.cmd(&["PING"]).await;
        slowest = slowest.max(time_on_processor(pid) - start);
        thread::sleep(Duration::from_millis(1));
    }
    slowest
}

/// The CPU time of a process, which the kernel counts in nanoseconds.
fn time_on_processor(pid: u32) -> Duration {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat"));
    let schedstat = schedstat.expect("the server runs");
    let nanos = schedstat.split(' ').next().map(str::parse);
    Duration::from_nanos(nanos.expect("a field").expect("a number"))
}

/// The slowest pings while 300,000 units are acquired at once, and while they are released.
async fn heavy_round(rig: &mut Rig) -> [Duration; 2] {
    let claim = || Claim::new("a").with_limit(1_000_000).with_weight(1_000);
    let other = Other::start(&rig.server);
    let permits = join_all((0..300).map(|_| rig.store.acquire(claim()))).await;
    let acquired = other.slowest();
    assert!(permits.iter().all(Result::is_ok), "{permits:?}");

    let other = Other::start(&rig.server);
    drop(permits);
    rig.nothing_is_left(BOUND).await;
    [acquired, other.slowest()]
}

fn builder() -> Builder {
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    builder.timeout(TIMEOUT)
}

async fn assert_no_other_user_stalls(mut rig: Rig) {
    let mut rounds = Vec::new();
    // For each phase (acquire and release) the best of several rounds counts.
    for _ in 0..ROUNDS {
        rounds.push(heavy_round(&mut rig).await);
        let best = |phase: usize| rounds.iter().map(|round: &[_; 2]| round[phase]).min();
        if best(0).max(best(1)) < Some(STALL) {
            return;
        }
    }
    panic!("the slowest pings: {rounds:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_do_not_stall_other_users_of_the_server() {
    let _alone = alone().await;
    assert_no_other_user_stalls(Rig::new(builder()).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_claims_over_a_long_link_do_not_stall_other_users_of_the_server() {
    let _alone = alone().await;
    let mut rig = Rig::new(builder()).await;
    let delay = Duration::from_millis(50);
    rig.proxy.delay(delay, delay);
    // This store has never seen a shorter round trip.
    let store = builder().connect(rig.proxy.url()).await;
    rig.store = store.expect("it connects");
    warm(&rig.store).await;
    assert_no_other_user_stalls(rig).await;
}

/// A script is slow if it takes longer than this, in microseconds. This leaves slack for a busy machine.
const SLOW: &str = "200000";

/// A longer stall of the machine may have made any script slow, so slow scripts are then not counted.
const CALM: Duration = Duration::from_millis(100);

/// Makes the server log slow scripts from now on, and watches for stalls of the machine.
async fn log_slow_scripts(raw: &mut Raw) -> StallWatch {
    let set = ["CONFIG", "SET", "slowlog-log-slower-than", SLOW];
    assert_eq!(raw.cmd(&set).await.text(), "OK");
    assert_eq!(raw.cmd(&["SLOWLOG", "RESET"]).await.text(), "OK");
    StallWatch::start()
}

/// Fails if a script was slow, unless the machine stalled.
async fn check_slow_scripts(raw: &mut Raw, watch: StallWatch) -> Result<(), String> {
    let slow = raw.cmd(&["SLOWLOG", "LEN"]).await.int();
    let stalled = watch.longest();
    if slow == 0 || stalled > CALM {
        Ok(())
    } else {
        Err(format!("{slow} slow scripts; longest stall {stalled:?}"))
    }
}

/// The most arguments of a command. ElastiCache Serverless refuses more.
const MOST_ARGS: usize = 3_999;

/// The largest number of arguments of a logged script call. The log cuts long commands and appends the number of
/// arguments that it left out. It also contains the commands that scripts run, which do not count.
async fn longest_call(raw: &mut Raw) -> usize {
    let log = raw.cmd(&["SLOWLOG", "GET", "-1"]).await;
    let commands = log.array().iter().map(|entry| entry.array()[3].array());
    let calls = commands.filter(|args| args[0].text().starts_with("EVAL"));
    let longest = calls.map(|args| {
        let last = args.last().expect("the command's name").text();
        let left_out = last.strip_prefix("... (");
        let left_out = left_out.and_then(|rest| rest.split(' ').next()?.parse::<usize>().ok());
        left_out.map_or(args.len(), |left_out| args.len() - 1 + left_out)
    });
    longest.max().expect("a call is logged")
}

#[tokio::test(flavor = "multi_thread")]
async fn flushed_heavy_permits_are_acquired_again_in_calls_of_bounded_size() {
    let _alone = alone().await;
    let server = RedisServer::start();
    // The lease and the timeout tolerate a busy machine.
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    let builder = builder.timeout(Duration::from_secs(5));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut permits = Vec::new();
    for _ in 0..128 {
        let claim = Claim::new("heavy").with_limit(1_000_000).with_weight(1_000);
        permits.push(store.acquire(claim).await.expect("there is room"));
    }
    let mut raw = Raw::connect(server.port()).await;
    for (setting, value) in [
        ("slowlog-max-len", "10000"),
        ("slowlog-log-slower-than", "0"),
    ] {
        let set = raw.cmd(&["CONFIG", "SET", setting, value]).await;
        assert_eq!(set.text(), "OK");
    }
    raw.cmd(&["FLUSHALL"]).await;
    eventually("all are back", Duration::from_secs(40), async || {
        raw.zcard("semaphore:2:{concurrency:heavy}:held").await == 128_000
    })
    .await;
    assert!(
        !permits.iter().any(Permit::is_lost),
        "no holder is notified"
    );
    let longest = longest_call(&mut raw).await;
    // A call has at least one permit of 1,000 units.
    assert!((1_000..=MOST_ARGS).contains(&longest), "{longest}");
}

/// Makes 300 waiters with 1,000 units each behind a head that does not fit. Then drops the head, so that all are
/// granted at once. Fails if a script was slow.
async fn heavy_waiters(store: &RedisSemaphore, raw: &mut Raw, key: &str) -> Result<(), String> {
    let (wait, queue) = (
        Duration::from_secs(30),
        format!("semaphore:2:{{concurrency:{key}}}:queue"),
    );
    let claim = Claim::new(key.to_owned()).with_limit(1);
    let _holder = store.acquire(claim.clone()).await.expect("there is room");
    let head = tokio::spawn(store.acquire(claim.clone().with_wait(wait)));
    eventually("the head waits", wait, async || {
        raw.zcard(&queue).await == 1
    })
    .await;
    let claim = claim.with_limit(1_000_000).with_weight(1_000);
    let claim = claim.with_wait(wait).with_max_waiting(301);
    let waiters: Vec<_> = (0..300)
        .map(|_| tokio::spawn(store.acquire(claim.clone())))
        .collect();
    eventually("all wait", wait, async || raw.zcard(&queue).await == 301).await;
    let watch = log_slow_scripts(raw).await;
    head.abort();
    let granted = join_all(waiters).await;
    let is_failed = |granted: &&Result<_, _>| !matches!(granted, Ok(Ok(_)));
    let failed = granted.iter().filter(is_failed).count();
    assert_eq!(failed, 0, "{:?}", granted.iter().find(is_failed));
    check_slow_scripts(raw, watch).await
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_waiters_that_are_granted_together_stall_no_other_client() {
    let _alone = alone().await;
    let server = RedisServer::start();
    // The timeout tolerates a busy machine.
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(30));
    let builder = builder.timeout(Duration::from_secs(5));
    let store = builder.connect(server.url()).await.expect("it connects");
    let mut raw = Raw::connect(server.port()).await;
    let mut keys = ["first", "second", "third"].into_iter();
    one_round_passes("no script of heavy waiters is slow", 3, async || {
        let key = keys.next().expect("a key for each round");
        heavy_waiters(&store, &mut raw, key).await
    })
    .await;
}

/// Makes claims of several kinds, each a weight and a rate per second, over a link with this round trip. In one of
/// several tries, at least 60 % of the last kind must be granted: a busy machine refuses some. With an earlier bound on
/// the units in flight, more than half failed in each try.
async fn assert_most_are_granted(kinds: &[(u32, u64)], round_trip: Duration) {
    let _alone = alone().await;
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        // The timeout tolerates a busy machine.
        let rig = Rig::new(RedisSemaphore::builder().timeout(Duration::from_secs(1))).await;
        rig.proxy.delay(round_trip / 2, round_trip / 2);
        let offers = kinds.iter().map(|&(weight, rate)| {
            let store = rig.store.clone();
            offer((rate, TIME), move |number| {
                let claim = Claim::new(format!("{weight}-{number}"));
                let claim = claim.with_limit(weight).with_weight(weight);
                answer(store.clone(), claim)
            })
        });
        // Only the last kind is judged.
        let answers = join_all(offers).await.pop().unwrap_or_default();
        let granted = answers.iter().flatten().filter(|answer| answer.is_ok());
        tries.push((granted.count(), answers.len()));
        if tries
            .last()
            .is_some_and(|(granted, of)| granted * 10 >= of * 6)
        {
            return;
        }
    }
    panic!("{kinds:?}: (granted, made) in each try: {tries:?}");
}

/// In the last case the light claims are judged, beside heavy ones.
#[tokio::test(flavor = "multi_thread")]
async fn most_heavy_claims_over_a_slow_link_are_granted() {
    for (kinds, round_trip) in [
        (&[(1_000, 40)][..], Duration::from_millis(100)),
        (&[(100, 400)], Duration::from_millis(20)),
        (&[(300, 80), (1, 500)], Duration::from_millis(20)),
    ] {
        assert_most_are_granted(kinds, round_trip).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heavy_permits_of_one_key_are_refreshed_with_all_their_units() {
    let _alone = alone().await;
    // Long enough for a busy machine to refresh all units.
    let lease = Duration::from_secs(9);
    let builder = RedisSemaphore::builder().lease(lease).timeout(lease / 3);
    let mut rig = Rig::new(builder).await;
    let mut permits = Vec::new();
    for _ in 0..64 {
        let claim = Claim::new("heavy").with_limit(1_000_000).with_weight(1_000);
        permits.push(rig.store.acquire(claim).await.expect("there is room"));
    }
    // Without a refresh all leases end during this sleep.
    tokio::time::sleep(lease * 3 / 2).await;
    assert!(!permits.iter().any(Permit::is_lost));
    let held = rig.raw.zcard("semaphore:2:{concurrency:heavy}:held").await;
    assert_eq!(held, 64_000);
}

/// The server needs longer to release these units than a claim may take.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_granted_although_a_million_units_are_released_before_its_own() {
    let _alone = alone().await;
    // The timeout tolerates a busy machine.
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    let rig = Rig::new(builder.timeout(Duration::from_secs(1))).await;
    let claim = |key: String, weight| {
        let claim = Claim::new(key).with_limit(weight).with_weight(weight);
        rig.store.acquire(claim)
    };
    let (mut heavy, mut number) = (Vec::new(), 0);
    while heavy.len() < 1_000 {
        let claims = (0..4).map(|_| {
            number += 1;
            claim(format!("heavy-{number}"), 1_000)
        });
        // On a busy machine some claims fail.
        heavy.extend(join_all(claims).await.into_iter().flatten());
    }
    let light = claim("light".into(), 1).await.expect("there is room");
    drop(heavy);
    drop(light);
    let answer = claim("light".into(), 1).await;
    assert!(answer.is_ok(), "{answer:?}");
}
