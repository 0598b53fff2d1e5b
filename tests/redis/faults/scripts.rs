//! Scripts that the server keeps forgetting, and scripts that run in the millisecond in which a lease ends. They are
//! the library's own scripts, and each returns the time at which it ran.
//!
//! Promises: P1, P6.

use http::{Request, Response};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::{
    http_requests::{limit, request},
    ids::id,
    in_flight::InFlight,
    redis::RedisServer,
    resp::{Raw, Reply, member_and_score},
    rig::{BOUND, Rig},
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

const LIMIT: u32 = 3;

const CLIENTS: usize = 12;

/// The smallest numbers of flushes and of requests served while they run.
const FLUSHES: usize = 300;

const SERVED: usize = 200;

/// A timeout that tolerates a busy machine.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default, Clone)]
struct Load {
    in_flight: InFlight,
    is_over: Arc<AtomicBool>,
}

/// Sends requests until the flushes stop. Half of the clients wait for their permits. Returns how many were refused.
async fn client(store: RedisSemaphore, number: usize, load: Load) -> usize {
    let wait = Duration::from_millis([0, 300][number % 2]);
    let handler = service_fn(|_: Request<String>| {
        let in_flight = load.in_flight.clone();
        async move {
            let _one = in_flight.begin();
            sleep(Duration::from_millis(3)).await;
            Ok::<_, Infallible>(Response::new(String::new()))
        }
    });
    let mut service = limit(LIMIT, store).with_wait(wait).layer(handler);
    let mut refused = 0;
    while !load.is_over.load(SeqCst) {
        let ready = service.ready().await.expect("it is always ready");
        let answer = ready.call(request("a")).await.expect("infallible");
        match answer.status().as_u16() {
            200 => {}
            429 => refused += 1,
            status => panic!("{status}: {:?}", answer.extensions()),
        }
    }
    refused
}

/// Flushes the scripts as fast as the server can, until both counts are reached.
async fn flush(port: u16, load: &Load) {
    let (mut raw, start) = (Raw::connect(port).await, Instant::now());
    let mut flushes = 0;
    while flushes < FLUSHES || load.in_flight.begun() < SERVED {
        assert_eq!(raw.cmd(&["SCRIPT", "FLUSH"]).await.text(), "OK");
        flushes += 1;
        assert!(start.elapsed() < BOUND, "{:?} are served", load.in_flight);
    }
    load.is_over.store(true, SeqCst);
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_are_flushed_all_the_time_are_seen_by_no_client_and_grant_nothing_twice() {
    let mut rig = Rig::new(RedisSemaphore::builder().timeout(PATIENCE)).await;
    let other = RedisSemaphore::builder().timeout(PATIENCE);
    let other = other.connect(rig.server.url()).await.expect("it connects");
    let (mut clients, load) = (JoinSet::new(), Load::default());
    for number in 0..CLIENTS {
        let store = [&rig.store, &other][number / 2 % 2].clone();
        clients.spawn(client(store, number, load.clone()));
    }
    flush(rig.server.port(), &load).await;
    let refused: usize = clients.join_all().await.into_iter().sum();
    assert!(refused > 0, "there was room for all");
    assert_eq!(load.in_flight.most(), LIMIT as usize);
    eventually("nothing is held", PATIENCE, async || {
        rig.raw.keys("*:a}:held").await.is_empty()
    })
    .await;
    rig.nothing_is_left(PATIENCE).await;
}

const LEASE: i64 = 12;
/// The number of times that a refresh must hit each of the three milliseconds.
const TIMES: usize = 5;
const KEYS: [&str; 4] = ["{a}:held", "{a}:queue", "{a}:alive", "{a}:token"];
const REFRESH: &str = concat!(
    include_str!("../../../proto/src/verbs/common.lua"),
    include_str!("../../../proto/src/verbs/refresh.lua")
);
const ACQUIRE: &str = concat!(
    include_str!("../../../proto/src/verbs/common.lua"),
    include_str!("../../../proto/src/verbs/grant.lua"),
    include_str!("../../../proto/src/verbs/queue.lua"),
    include_str!("../../../proto/src/verbs/acquire.lua")
);

/// A call for one unit of `id`, under a limit of one.
fn acquire(id: &str) -> Vec<String> {
    let [held, queue, alive, token] = KEYS;
    let (lease, never) = (LEASE.to_string(), i64::MAX.to_string());
    let head = ["EVAL", ACQUIRE, "4", held, queue, alive, token];
    let claim = [&*lease, &never, "0", &lease, "1", "1", "1", "1", id];
    head.iter()
        .chain(&claim)
        .map(|word| (*word).to_owned())
        .collect()
}

fn refresh(id: &str) -> Vec<String> {
    let lease = LEASE.to_string();
    let words = ["EVAL", REFRESH, "2", KEYS[0], KEYS[3], &*lease, "1", id];
    words.map(str::to_owned).into()
}

/// The time at which an acquire ran, and true if its claim was granted.
fn granted(answer: &Reply) -> (i64, bool) {
    let answer = answer.array();
    (answer[0].int(), matches!(answer[1], Reply::Int(_)))
}

/// The time at which a refresh ran, and true if it found the lease. `None` if the lease had ended: the answer then has
/// no time.
fn held(answer: &Reply) -> Option<(i64, bool)> {
    match answer {
        Reply::Int(0) => None,
        Reply::Int(now) => Some((*now, true)),
        list => Some((list.array()[0].int(), list.array()[1].int() == 1)),
    }
}

/// The state of one round. Its ids have the form of the library's and contain the round's number.
struct Round<'a> {
    raw: &'a mut Raw,
    ids: [String; 2],
}

impl Round<'_> {
    /// Sends a refresh about `early` ms before the end of its lease, and a claim right behind it. Returns how many ms
    /// after the end the refresh ran.
    async fn run(&mut self, early: i64) -> i64 {
        let raw = &mut *self.raw;
        raw.cmd(&["DEL", KEYS[0]]).await;
        let (start, is_granted) = granted(&raw.cmd(&acquire(&self.ids[0])).await);
        assert!(is_granted);
        let end = start + LEASE;
        while raw.server_time_ms().await < end - early {}
        raw.send(&refresh(&self.ids[0])).await.expect("it is sent");
        raw.send(&acquire(&self.ids[1])).await.expect("it is sent");
        // This command follows right behind them: sent later on a busy machine, it might find that all leases have
        // ended.
        let units = ["ZRANGE", KEYS[0], "0", "-1", "WITHSCORES"];
        raw.send(&units).await.expect("it is sent");
        let refresh = held(&raw.next().await.expect("an answer"));
        let (claimed, is_granted) = granted(&raw.next().await.expect("an answer"));
        let units = raw.next().await.expect("an answer");
        let (refreshed, is_held) = refresh.unwrap_or((claimed, false));
        assert_eq!(
            is_held,
            refreshed < end,
            "{} ms after the end",
            refreshed - end
        );
        let is_free = !is_held || claimed >= refreshed + LEASE;
        assert_eq!(is_granted, is_free, "{} ms after the end", claimed - end);
        let units = units.array().chunks(2).map(member_and_score);
        let unexpired: Vec<_> = units.filter(|(_, end)| *end > claimed as f64).collect();
        assert_eq!(unexpired.len(), 1, "{unexpired:?}");
        refreshed - end
    }
}

#[tokio::test]
async fn a_refresh_in_the_millisecond_of_its_leases_end_is_late_and_one_before_it_is_not() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let (mut met, start) = (BTreeMap::<i64, usize>::new(), Instant::now());
    let enough = |met: &BTreeMap<i64, usize>| {
        (-1..=1).all(|late| met.get(&late).is_some_and(|times| *times >= TIMES))
    };
    for number in 0.. {
        let ids = ["one", "two"].map(|process| id(process, number, [1, 1, LEASE as u64]));
        let late = Round { raw: &mut raw, ids }
            .run([1, 0, -1][number as usize % 3])
            .await;
        *met.entry(late).or_default() += 1;
        if enough(&met) {
            return;
        }
        assert!(start.elapsed() < BOUND, "{met:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_although_a_script_was_aborted_right_after_it_had_counted_one() {
    let server = RedisServer::start();
    let store = RedisSemaphore::connect(server.url()).await;
    let store = store.expect("it connects");
    let claim = Claim::new("a").with_limit(1);
    let first = store.acquire(claim.clone()).await.expect("there is room");
    assert!(first.release().await);
    let mut raw = Raw::connect(server.port()).await;
    // Delete the token, as eight leases without use would.
    raw.cmd(&["DEL", "semaphore:2:{concurrency:a}:token"]).await;
    for (right, works) in [("-zadd", false), ("+zadd", true)] {
        assert_eq!(
            raw.cmd(&["ACL", "SETUSER", "default", right]).await.text(),
            "OK"
        );
        let answer = store.acquire(claim.clone()).await;
        assert_eq!(answer.is_ok(), works, "{answer:?}");
        assert!(answer.is_err() || answer.is_ok_and(|permit| permit.token() > first.token()));
    }
}
