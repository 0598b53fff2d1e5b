//! While the breaker is open nothing is sent but probes, and claims are decided at once.

use crate::server::{BOUND, builder, claim, granted, is_back, is_refused};
use std::time::{Duration, Instant};
use testing::{rig::Rig, wait::eventually};
use tokio::{runtime::Runtime, task::JoinSet};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore, redis::WhenUnavailable};

/// Far more than a decision takes, and less than any call that waits for an answer.
const AT_ONCE: Duration = Duration::from_millis(20);
const CLAIMS: usize = 5_000;

async fn rig(policy: WhenUnavailable) -> Rig {
    Rig::new(builder(policy)).await
}

/// A few claims that time out.
async fn opens(store: &RedisSemaphore) {
    eventually("claims are decided at once", BOUND, async || {
        let start = Instant::now();
        drop(store.acquire(claim(1_000)).await);
        start.elapsed() < AT_ONCE
    })
    .await;
}

/// How long decisions take: the median, the 99th percentile and the longest.
async fn decisions(store: &RedisSemaphore) -> [Duration; 3] {
    let mut took = Vec::with_capacity(CLAIMS);
    for at in 0..CLAIMS {
        let claim = Claim::new((at % 50) as u64).with_limit(20);
        let start = Instant::now();
        drop(store.acquire(claim).await);
        took.push(start.elapsed());
    }
    took.sort_unstable();
    [took[CLAIMS / 2], took[CLAIMS * 99 / 100], took[CLAIMS - 1]]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_breaker_decides_at_once_whatever_the_policy() {
    use WhenUnavailable::{Admit, Refuse, Share, ShareOf};
    for policy in [Refuse, Admit, Share, ShareOf(0.5)] {
        let rig = rig(policy).await;
        rig.proxy.black_hole();
        opens(&rig.store).await;
        let [p50, p99, longest] = decisions(&rig.store).await;
        println!("{policy:?}: p50 {p50:?}, p99 {p99:?}, longest {longest:?}");
        assert!(p99 < AT_ONCE, "{policy:?}: p99 {p99:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_opens_after_a_few_timeouts_in_a_row() {
    let rig = rig(WhenUnavailable::Refuse).await;
    rig.proxy.black_hole();
    let mut slow = 0;
    for _ in 0..20 {
        let start = Instant::now();
        is_refused(rig.store.acquire(claim(5)).await);
        slow += usize::from(start.elapsed() >= AT_ONCE);
    }
    assert!(
        (1..=6).contains(&slow),
        "{slow} claims have waited for a timeout"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_black_hole_it_sends_one_probe_at_a_time_and_keeps_few_connections() {
    let rig = rig(WhenUnavailable::Admit).await;
    rig.proxy.black_hole();
    opens(&rig.store).await;
    // What was on its way when it opened.
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.proxy.clear_log();
    let (start, span) = (Instant::now(), Duration::from_secs(3));
    let mut connections = 0;
    while start.elapsed() < span {
        drop(rig.store.acquire(claim(1_000)).await);
        connections = connections.max(rig.proxy.connections());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let log = rig.proxy.log();
    // Each tries to connect, and is given up before the next.
    assert!((1..=20).contains(&log.len()), "{} commands", log.len());
    assert!(connections <= 8, "{connections} connections");
    let other = log.iter().find(|seen| !is_of_a_probe(&seen.args));
    assert!(other.is_none(), "{other:?}");
}

/// Its script, or the start of a connection for it.
fn is_of_a_probe(args: &[Vec<u8>]) -> bool {
    let is_script = args[0].starts_with(b"EVAL");
    !is_script || args.contains(&b"semaphore:processes".to_vec())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_on_a_connection_of_the_callers_opens_it_too() {
    let server = testing::redis::RedisServer::start();
    let connection = testing::stores::connection(&server.url()).await;
    let store = builder(WhenUnavailable::Refuse)
        .with_connection(connection)
        .expect("it is built");
    drop(store.acquire(claim(5)).await.expect("there is room"));
    server.stop();
    opens(&store).await;
    server.cont();
    is_back(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_of_our_own_does_not_open_it() {
    // The crowd must not hold up the proxy, which would be an outage.
    let apart = Runtime::new().expect("there are threads");
    let rig = apart.spawn(rig(WhenUnavailable::Refuse));
    let rig = rig.await.expect("it connects");
    let delay = Duration::from_millis(60);
    rig.proxy.delay(delay, delay);
    let mut tasks = JoinSet::new();
    for at in 0..5_000_u64 {
        let store = rig.store.clone();
        tasks.spawn(async move {
            let start = Instant::now();
            let answer = store.acquire(Claim::new(at % 500).with_limit(1_000)).await;
            let took = start.elapsed();
            (format!("{:?}", answer.err()), took)
        });
    }
    let answers = tasks.join_all().await;
    let (congested, others): (Vec<_>, Vec<_>) = answers
        .into_iter()
        .filter(|(error, _)| error != "None")
        .partition(|(error, _)| error.contains("Congested"));
    println!("{} were not sent, {} failed", congested.len(), others.len());
    let failed = congested.len() + others.len();
    assert!(failed > 0, "the crowd was too small");
    // On a busy machine some time out, but an open breaker would refuse at once.
    let at_once = others.iter().find(|(_, took)| *took < 2 * delay);
    assert!(at_once.is_none(), "{at_once:?}");
    apart.shutdown_background();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_it_is_open_no_permit_grows() {
    let lease = Duration::from_secs(30);
    let rig = Rig::new(builder(WhenUnavailable::Admit).lease(lease)).await;
    let permit = granted(&rig.store, 5).await;
    rig.proxy.black_hole();
    opens(&rig.store).await;
    assert!(!permit.is_degraded(), "its lease has not ended");
    let start = Instant::now();
    let answer = permit.resize(3).await;
    let took = start.elapsed();
    assert!(
        matches!(answer, Err(AcquireError::Store { .. })),
        "{answer:?}"
    );
    assert!(took < 10 * AT_ONCE, "{took:?}");
}
