//! Five processes whose wall clocks differ by minutes: only the server's clock counts.

mod skewed;

use skewed::{LEASE, Skewed};
use std::time::Instant;
use testing::{redis::RedisServer, resp::Raw};

const LIMIT: u32 = 3;
const HELD: &str = "semaphore:{concurrency:a}:held";

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
