//! The breaker of a store opens when the server fails. While it is open, the store sends only probes and decides claims
//! at once.
//!
//! Promises: P18.

use crate::server::{builder, claim, wait_until_open};
use std::time::{Duration, Instant};
use testing::rig::Rig;
use tokio::time::sleep;
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable};

/// Far longer than a decision without a call, and shorter than any call.
const AT_ONCE: Duration = Duration::from_millis(20);
const CLAIMS: usize = 5_000;

async fn rig(policy: WhenUnavailable) -> Rig {
    Rig::new(builder(policy)).await
}

/// The median, 90th percentile and maximum of the times that decisions take. On a busy machine some wait for a core.
async fn decisions(store: &RedisSemaphore) -> [Duration; 3] {
    let mut took = Vec::with_capacity(CLAIMS);
    for number in 0..CLAIMS {
        let claim = Claim::new((number % 50) as u64).with_limit(20);
        let start = Instant::now();
        drop(store.acquire(claim).await);
        took.push(start.elapsed());
    }
    took.sort_unstable();
    [took[CLAIMS / 2], took[CLAIMS * 9 / 10], took[CLAIMS - 1]]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_decides_at_once_whatever_the_policy() {
    use WhenUnavailable::{Admit, Refuse, Share, ShareOf};
    for policy in [Refuse, Admit, Share, ShareOf { fraction: 0.5 }] {
        let rig = rig(policy).await;
        rig.proxy.black_hole();
        wait_until_open(&rig.store).await;
        let [p50, p90, longest] = decisions(&rig.store).await;
        println!("{policy:?}: p50 {p50:?}, p90 {p90:?}, longest {longest:?}");
        assert!(p90 < AT_ONCE, "{policy:?}: p90 {p90:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_sends_one_probe_at_a_time_and_keeps_few_connections() {
    let rig = rig(WhenUnavailable::Admit).await;
    rig.proxy.black_hole();
    wait_until_open(&rig.store).await;
    // During this sleep, calls end that were in flight when the breaker opened.
    sleep(Duration::from_secs(1)).await;
    rig.proxy.clear_log();
    let (start, span) = (Instant::now(), Duration::from_secs(3));
    let mut connections = 0;
    while start.elapsed() < span {
        drop(rig.store.acquire(claim(1_000)).await);
        connections = connections.max(rig.proxy.connections());
        sleep(Duration::from_millis(1)).await;
    }
    let log = rig.proxy.log();
    // Each probe tries to connect, and is abandoned before the next one. The claims were hundreds.
    assert!((1..=20).contains(&log.len()), "{} commands", log.len());
    assert!(connections <= 8, "{connections} connections");
    let other = log.iter().find(|seen| !is_of_a_probe(&seen.args));
    assert!(other.is_none(), "{other:?}");
}

/// True for the script of a probe and for the first commands of a connection.
fn is_of_a_probe(args: &[Vec<u8>]) -> bool {
    let is_script = args[0].starts_with(b"EVAL");
    !is_script || args.contains(&b"semaphore:2:processes".to_vec())
}

/// The server accepts connections, and closes each at its first script.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_each_connection_opens_the_breaker() {
    let rig = Rig::new(builder(WhenUnavailable::Admit)).await;
    let permit = rig.store.acquire(claim(5)).await.expect("there is room");
    rig.proxy
        .drop_replies_to(usize::MAX, |args| args[0].starts_with(b"EVAL"));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        drop(rig.store.acquire(claim(1_000)).await);
        sleep(Duration::from_millis(5)).await;
    }
    // Without a breaker, each of the hundreds of claims would make a connection.
    let connects = rig.proxy.count(b"CLIENT");
    assert!(
        (1..200).contains(&connects),
        "{connects} commands to set up connections"
    );
    assert!(!permit.is_lost());
    wait_until_open(&rig.store).await;
}
