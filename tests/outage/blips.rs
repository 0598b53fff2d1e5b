//! Short failures, and those of a part: what the breaker makes of them.

use crate::server::{all, builder, claim, granted, know_each_other};
use std::time::{Duration, Instant};
use testing::{redis::RedisServer, resp::Raw, rig::Rig, wait::eventually};
use tokio::time::sleep;
use tower_semaphore::{
    Semaphore,
    redis::WhenUnavailable::{Admit, Share},
};

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
