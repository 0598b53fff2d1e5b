//! A connection of the caller's to several nodes, of which one is silent.

use crate::{
    nodes::Nodes,
    server::{all, builder, claim, know_each_other, opens_for},
};
use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::redis::{RedisServer, slot};
use tokio::time::sleep;
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::WhenUnavailable::{Admit, Refuse, Share},
};

/// Those of the first of four nodes.
const DEAD: std::ops::Range<u16> = 0..4_096;

/// Keys on the dead node, or on the others.
fn keys(are_dead: bool) -> impl Iterator<Item = String> {
    let keys = (0..).map(|number| format!("key-{number}"));
    keys.filter(move |key| {
        DEAD.contains(&slot(format!("{{concurrency:{key}}}").as_bytes())) == are_dead
    })
}

async fn claims(store: &RedisSemaphore, keys: Vec<String>) {
    for key in keys.iter().cycle() {
        drop(store.acquire(Claim::new(key).with_limit(9)).await);
        sleep(Duration::from_millis(2)).await;
    }
}

/// A store whose first node is silent, and claims for that all the time.
async fn with_a_dead_node(
    builder: tower_semaphore::redis::Builder,
) -> (RedisServer, RedisSemaphore) {
    let server = RedisServer::start();
    let nodes = Nodes::connect(&server).await;
    // The keeper's calls are rare.
    let store = builder
        .lease(Duration::from_secs(30))
        .with_connection(nodes.clone())
        .expect("settings");
    drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    nodes.silence(DEAD);
    for task in 0..20 {
        let (store, keys) = (store.clone(), keys(true).skip(task * 5).take(5).collect());
        tokio::spawn(async move { claims(&store, keys).await });
    }
    (server, store)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_node_that_is_silent_refuses_no_claim_of_a_quiet_one() {
    let (_server, store) = with_a_dead_node(builder(Refuse)).await;
    let dead = keys(true).next().expect("there are many");
    opens_for(&store, &dead).await;
    let (mut refused, mut count) = (0, 0);
    for key in keys(false).take(20) {
        let answer = store.acquire(Claim::new(key).with_limit(9)).await;
        (count, refused) = (count + 1, refused + usize::from(answer.is_err()));
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(refused, 0, "of {count} claims of nodes that work");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_of_a_silent_node_are_decided_at_once_beside_busy_ones_that_work() {
    let (_server, store) = with_a_dead_node(builder(Admit)).await;
    for task in 0..4 {
        let (store, keys) = (store.clone(), keys(false).skip(task * 5).take(5).collect());
        tokio::spawn(async move { claims(&store, keys).await });
    }
    sleep(Duration::from_secs(3)).await;
    let (mut slow, mut count) = (0, 0);
    for key in keys(true).take(100) {
        let start = Instant::now();
        let permit = store.acquire(Claim::new(key).with_limit(9)).await;
        assert!(permit.expect("it is admitted").is_degraded());
        (count, slow) = (
            count + 1,
            slow + usize::from(start.elapsed().as_millis() >= 100),
        );
    }
    // One now and then tries the node.
    assert!(slow < 10, "{slow} of {count} claims of the silent node");
}

/// As most connections that are not to a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn claims_of_all_parts_are_decided_at_once_when_the_only_server_is_silent() {
    let server = RedisServer::start();
    let nodes = Nodes::connect(&server).await;
    let store = builder(Refuse).with_connection(nodes).expect("settings");
    drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    server.stop();
    for _ in 0..3 {
        // Of one part.
        drop(store.acquire(Claim::new("warm").with_limit(1)).await);
    }
    sleep(Duration::from_secs(3)).await;
    let mut slow = 0;
    for key in keys(false).take(100) {
        let start = Instant::now();
        drop(store.acquire(Claim::new(key).with_limit(9)).await);
        slow += usize::from(start.elapsed().as_millis() >= 100);
    }
    server.cont();
    // One now and then tries the server.
    assert!(slow < 10, "{slow} of 100 claims waited");
}

/// Its claims for other keys have shown that.
#[tokio::test(flavor = "multi_thread")]
async fn claims_need_a_place_for_all_keys_after_the_only_server_was_silent() {
    const LIMIT: u32 = 8;
    let server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..2 {
        let connection = testing::stores::connection(&server.url()).await;
        stores.push(
            builder(Share)
                .with_connection(connection)
                .expect("settings"),
        );
    }
    let [quiet, busy] = &stores[..] else {
        unreachable!()
    };
    for store in &stores {
        // The keeper starts.
        drop(store.acquire(claim(LIMIT)).await);
    }
    know_each_other(&server, 2).await;
    for pause in [600, 1_200] {
        server.stop();
        let (others, admitted) = tokio::join!(
            async {
                let start = Instant::now();
                while start.elapsed() < Duration::from_millis(pause) {
                    drop(quiet.acquire(Claim::new("b").with_limit(LIMIT)).await);
                    sleep(Duration::from_millis(20)).await;
                }
                server.cont();
                all(quiet, LIMIT).await
            },
            async {
                let claims = (0..LIMIT).map(|_| busy.acquire(claim(LIMIT)));
                let permits = join_all(claims).await;
                permits.into_iter().flatten().collect::<Vec<_>>()
            }
        );
        let sum = others.len() + admitted.len();
        assert!(
            sum <= LIMIT as usize,
            "{sum} in flight under a limit of {LIMIT} after {pause} ms: {} of a process with claims for \
             other keys only, and {} of the other",
            others.len(),
            admitted.len()
        );
        drop((others, admitted));
        sleep(Duration::from_secs(4)).await;
    }
}
