//! Refreshes that reach the server in the milliseconds around the end of their lease.
//!
//! The scripts are those that the library sends. Each says at which time it ran.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};
use testing::{
    redis::RedisServer,
    resp::{Raw, Reply},
};

const BOUND: Duration = Duration::from_secs(20);
const LEASE: i64 = 12;
/// So often each of the three milliseconds has to be met.
const TIMES: usize = 5;
const KEYS: [&str; 4] = ["{a}:held", "{a}:queue", "{a}:alive", "{a}:token"];
const REFRESH: &str = concat!(
    include_str!("../../../src/redis/protocol/common.lua"),
    include_str!("../../../src/redis/protocol/refresh.lua")
);
const ACQUIRE: &str = concat!(
    include_str!("../../../src/redis/protocol/common.lua"),
    include_str!("../../../src/redis/protocol/grant.lua"),
    include_str!("../../../src/redis/protocol/queue.lua"),
    include_str!("../../../src/redis/protocol/acquire.lua")
);

/// A call for one unit of `id`, under a limit of one.
fn acquire(id: &str) -> Vec<String> {
    let [held, queue, alive, token] = KEYS;
    let (lease, never) = (LEASE.to_string(), i64::MAX.to_string());
    let head = ["EVAL", ACQUIRE, "4", held, queue, alive, token];
    let claim = [&*lease, &never, "0", &lease, "1", "1", id, "1", ""];
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

/// When an acquire ran, and whether its claim is granted.
fn granted(answer: &Reply) -> (i64, bool) {
    let answer = answer.array();
    (answer[0].int(), matches!(answer[1], Reply::Int(_)))
}

/// When a refresh ran, and whether its unit is held.
fn held(answer: &Reply) -> (i64, bool) {
    match answer {
        Reply::Int(now) => (*now, true),
        list => (list.array()[0].int(), list.array()[1].int() == 1),
    }
}

/// The number of the round is part of its ids, which have the form of the library's.
struct Round<'a> {
    raw: &'a mut Raw,
    ids: [String; 2],
}

impl Round<'_> {
    /// A refresh about `early` ms before the end of its lease, and a claim right behind it. Returns
    /// how many ms after the end the refresh ran.
    async fn run(&mut self, early: i64) -> i64 {
        let raw = &mut *self.raw;
        raw.cmd(&["DEL", KEYS[0]]).await;
        let (start, is_granted) = granted(&raw.cmd(&acquire(&self.ids[0])).await);
        assert!(is_granted);
        let end = start + LEASE;
        while raw.server_time_ms().await < end - early {}
        raw.send(&refresh(&self.ids[0])).await.expect("it is sent");
        raw.send(&acquire(&self.ids[1])).await.expect("it is sent");
        let (refreshed, is_held) = held(&raw.next().await.expect("an answer"));
        let (claimed, is_granted) = granted(&raw.next().await.expect("an answer"));
        assert_eq!(
            is_held,
            refreshed < end,
            "{} ms after the end",
            refreshed - end
        );
        let is_free = !is_held || claimed >= refreshed + LEASE;
        assert_eq!(is_granted, is_free, "{} ms after the end", claimed - end);
        self.is_alone(claimed).await;
        refreshed - end
    }

    /// Only one unit ends after this time.
    async fn is_alone(&mut self, time: i64) {
        let units = self.raw.zmembers(KEYS[0]).await;
        let unexpired = units.iter().filter(|(_, end)| *end > time as f64);
        assert_eq!(unexpired.count(), 1, "{units:?}");
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
        let id = |process: &str| format!("{process}.{number}.1.1.{LEASE}");
        let ids = ["one", "two"].map(id);
        let late = Round { raw: &mut raw, ids }
            .run([1, 0, -1][number % 3])
            .await;
        *met.entry(late).or_default() += 1;
        if enough(&met) {
            return;
        }
        assert!(start.elapsed() < BOUND, "{met:?}");
    }
}

/// A connection that breaks may leave commands that its server runs after later ones.
#[tokio::test]
async fn a_call_that_runs_behind_a_later_one_moves_no_end_back() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let id = "one.1.1.1.60000";
    let [held, queue, alive, token] = KEYS;
    let acquire = |limit, lasts| {
        let head = ["EVAL", ACQUIRE, "4", held, queue, alive, token];
        let claim = [
            "60000",
            "9999999999999",
            "0",
            lasts,
            "1",
            "1",
            id,
            limit,
            "",
        ];
        [&head[..], &claim[..]].concat()
    };
    assert!(granted(&raw.cmd(&acquire("1", "60000")).await).1);
    let [(_, end)] = raw.zmembers(held).await[..] else {
        panic!("one unit is held");
    };
    let refresh = ["EVAL", REFRESH, "2", held, token, "30000", "1", id];
    assert!(self::held(&raw.cmd(&refresh).await).1);
    // With room for another unit, and without.
    for limit in ["2", "1"] {
        assert!(granted(&raw.cmd(&acquire(limit, "30000")).await).1);
    }
    assert_eq!(raw.zmembers(held).await, [(id.into(), end)]);
}
