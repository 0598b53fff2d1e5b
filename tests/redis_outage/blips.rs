//! Short failures, and those of a part: what the breaker makes of them.

use crate::{
    nodes::Nodes,
    server::{all, builder, claim, granted, know_each_other},
};
use std::time::{Duration, Instant};
use testing::{
    redis::{RedisServer, slot},
    resp::Raw,
    rig::Rig,
    wait::eventually,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{
    AcquireError, Claim, Semaphore,
    redis::WhenUnavailable::{Admit, Share},
};

/// How many slots a node has, as far as a store over a supplied connection knows: a sixteenth of all.
const PART: u16 = 1_024;

/// The longest timeout that the lease permits.
#[tokio::test(flavor = "multi_thread")]
async fn a_held_permit_is_kept_with_the_longest_timeout_too() {
    let mut lost = 0;
    for _ in 0..5 {
        let short = builder(Admit)
            .lease(Duration::from_millis(750))
            .timeout(Duration::from_millis(250));
        let rig = Rig::new(short).await;
        let permit = rig.store.acquire(claim(5)).await.expect("there is room");
        sleep(Duration::from_millis(400)).await;
        assert!(!permit.is_lost());
        rig.proxy.black_hole();
        lost += usize::from(timeout(Duration::from_secs(3), permit.lost()).await.is_ok());
    }
    assert_eq!(lost, 0, "of 5 permits were reported lost under Admit");
}

/// It accepts connections, and closes each at the first script.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_each_connection_opens_the_breaker() {
    let rig = Rig::new(builder(Admit)).await;
    let permit = rig.store.acquire(claim(5)).await.expect("there is room");
    rig.proxy
        .drop_replies_to(usize::MAX, |args| args[0].starts_with(b"EVAL"));
    let start = Instant::now();
    let mut slow = 0;
    while start.elapsed() < Duration::from_secs(4) {
        let at = Instant::now();
        drop(rig.store.acquire(claim(1_000)).await);
        slow += usize::from(start.elapsed().as_secs() >= 2 && at.elapsed().as_millis() >= 1);
        sleep(Duration::from_millis(5)).await;
    }
    let connects = rig.proxy.count(b"CLIENT");
    assert!(
        !permit.is_lost() && connects < 200,
        "after {:?}: held permit lost: {}, commands to set up connections: {connects}, claims \
         slower than 1 ms: {slow}",
        start.elapsed(),
        permit.is_lost()
    );
}

/// A claim that is tried again because of a blip: how long that takes, and its answer.
async fn blipped() -> (Duration, Option<AcquireError>) {
    let server = RedisServer::start();
    let nodes = Nodes::connect(&server).await;
    let store = builder(Share)
        .with_connection(nodes.clone())
        .expect("settings");
    let other = builder(Share).connect(server.url()).await.expect("server");
    drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    know_each_other(&server, 2).await;
    let part_of = |key| slot(format!("semaphore:{{concurrency:{key}}}").as_bytes()) / PART;
    let part = part_of("dead");
    assert_ne!(part, part_of("well"));
    nodes.breaks_after(part * PART..(part + 1) * PART, Duration::from_millis(220));
    let well = store.clone();
    let traffic = tokio::spawn(async move {
        loop {
            drop(well.acquire(Claim::new("well").with_limit(9)).await);
            sleep(Duration::from_millis(5)).await;
        }
    });
    let start = Instant::now();
    let answer = store.acquire(Claim::new("dead").with_limit(9)).await;
    let took = start.elapsed();
    traffic.abort();
    drop(other);
    (took, answer.err())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_decided_within_its_budget_whatever_blips() {
    let (took, answer) = blipped().await;
    assert!(
        took < Duration::from_millis(700),
        "a claim with a budget of 500 ms took {took:?}: {answer:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_admitted_while_the_share_is_free_whatever_blips() {
    let (took, answer) = blipped().await;
    assert!(
        answer.is_none(),
        "nothing is held of a share of 5, and after {took:?}: {answer:?}"
    );
}

/// All that it takes is one answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_ends_refuses_no_claim_beyond_the_share_while_the_server_answers() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let patient = || builder(Share).lease(Duration::from_secs(15));
    let slow = patient().timeout(Duration::from_secs(5));
    let store = slow.connect(server.url()).await.expect("a server");
    let _other = patient().connect(server.url()).await.expect("a server");
    know_each_other(&server, 2).await;
    drop(granted(&store, 8).await);
    let killed = raw.cmd(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    assert!(killed.error().is_none(), "{killed:?}");
    let second = Duration::from_secs(1);
    eventually("all is granted", second, async || {
        all(&store, 8).await.len() == 8
    })
    .await;
}
