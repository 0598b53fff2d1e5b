//! Five processes whose wall clocks differ by minutes: only the server's clock counts.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod skewed;

use skewed::{LEASE, SKEWS, Skewed};
use std::time::Instant;
use testing::{fleet, redis::RedisServer, resp::Raw, wait::granted_at};

const LIMIT: u32 = 3;
const HELD: &str = "semaphore:{concurrency:a}:held";

#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_of_the_fleet() {
    fleet::serve();
}

/// Only one process acts at a time, so the test always knows how many permits are held.
#[tokio::test(flavor = "multi_thread")]
async fn processes_with_clocks_minutes_apart_hold_the_limit_and_never_more() {
    let server = RedisServer::start();
    let mut fleet = Skewed::fleet(&server);
    let mut raw = Raw::connect(server.port()).await;
    let start = Instant::now();
    while start.elapsed() < LEASE * 6 {
        for i in 0..fleet.len() {
            let held = holders(&fleet);
            match fleet[i].since {
                Some(since) => fleet[i].keep(since, LEASE * 4 / 3),
                None => fleet[i].try_acquire(LIMIT, held),
            }
            assert_eq!(raw.zmembers(HELD).await.len(), holders(&fleet));
        }
    }
    for process in fleet {
        let outcomes = (process.grants, process.refusals);
        assert!(
            outcomes.0 > 0 && outcomes.1 > 0,
            "{:+} s: {outcomes:?}",
            process.skew
        );
    }
}

fn holders(fleet: &[Skewed]) -> usize {
    fleet
        .iter()
        .filter(|process| process.since.is_some())
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_grow_across_processes_whatever_their_clocks_say() {
    let server = RedisServer::start();
    let mut fleet = Skewed::fleet(&server);
    let mut last = 0;
    for round in 0..20 {
        let process = &mut fleet[round * 2 % SKEWS.len()].process;
        let token = process.acquire("p", "a", 1).expect("it is the only one");
        assert!(token > last, "{token} after {last}");
        assert!(process.release("p"));
        last = token;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_holds_its_permit_for_a_lease_whatever_its_clock_says() {
    let server = RedisServer::start();
    let mut judge = Skewed::start(&server, 0).process;
    let mut raw = Raw::connect(server.port()).await;
    for skew in SKEWS {
        let mut process = Skewed::start(&server, skew).process;
        process.acquire("p", "a", 1).expect("there is room");
        process.kill();
        let end = raw.zmembers(HELD).await[0].1 as i64;
        let left = end - raw.server_time_ms().await;
        assert!(
            left <= LEASE.as_millis() as i64,
            "{skew:+} s: a lease of {left} ms"
        );
        granted_at(end, &mut raw, async || judge.acquire("p", "a", 1).is_some()).await;
        assert!(judge.release("p"));
    }
}
