//! Clusters and Sentinels over TLS.
//!
//! Promises: P20.

use super::{BOUND, assert_works, claim};
use std::time::{Duration, Instant};
use testing::{
    redis::{ANY_PORT, Cluster, RedisServer, Sentinels, secure::Files, sentinel_with},
    wait::eventually,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore};

/// The arguments of servers that use TLS for clients and among themselves. `more` differs for clusters and replicas.
fn secure<'a>(files: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let own = ["--tls-port", ANY_PORT, "--tls-auth-clients", "no"];
    let files = files.iter().map(String::as_str);
    own.into_iter()
        .chain(more.iter().copied())
        .chain(files)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_served_over_tls_and_its_slots_move() {
    let files = Files::new("127.0.0.1");
    let paths = files.arguments();
    let args = secure(&paths, &["--tls-cluster", "yes"]);
    let cluster = Cluster::with(3, false, &args).await;
    let builder = RedisSemaphore::builder().root_certificate(files.authority.certificate());
    let builder = builder.timeout(Duration::from_secs(2));
    // The other nodes are found through the first.
    let store = builder
        .clone()
        .connect_cluster(cluster.tls_urls().into_iter().take(1))
        .await;
    let store = store.expect("the authority is trusted");
    for number in 0..20 {
        let claim = Claim::new(format!("key-{number}")).with_limit(1);
        let permit = store.acquire(claim).await.expect("there is room");
        assert!(permit.release().await);
    }
    let slot = cluster.slot("semaphore:2:{concurrency:ann}").await;
    let from = cluster.first_owner(slot);
    let held = store.acquire(claim()).await.expect("there is room");
    cluster.move_slot(slot, from, (from + 1) % 3).await;
    assert!(
        store.acquire(claim()).await.is_err(),
        "it was granted twice"
    );
    assert!(held.release().await);
    assert_works(&store).await;
    for node in 0..3 {
        let clients = cluster.raw(node).await.cmd(&["CLIENT", "LIST"]).await;
        let port = format!("laddr=127.0.0.1:{} ", cluster.node(node).tls_port());
        // Only the oracle uses the plain port.
        let plain = clients.text().lines().filter(|line| !line.contains(&port));
        assert_eq!(plain.count(), 1, "{}", clients.text());
    }
    let other = Files::new("127.0.0.1").authority.certificate();
    let builder = RedisSemaphore::builder().root_certificate(other);
    let refused = builder.connect_cluster(cluster.tls_urls()).await;
    assert!(refused.is_err(), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_is_found_and_served_over_tls() {
    let files = Files::new("127.0.0.1");
    let paths = files.arguments();
    let args = secure(&paths, &["--tls-replication", "yes"]);
    let server = RedisServer::with(&args);
    let sentinel = sentinel_with(&args, server.tls_port(), 1);
    let url = format!("rediss://127.0.0.1:{}/", sentinel.tls_port());
    let builder = RedisSemaphore::builder().root_certificate(files.authority.certificate());
    let builder = builder
        .lease(Duration::from_secs(60))
        .timeout(Duration::from_secs(2));
    let store = builder.connect_sentinel([url], Sentinels::NAME).await;
    let store = store.expect("the authority is trusted");
    let permit = store.acquire(claim()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    let mut raw = testing::resp::Raw::connect(server.port()).await;
    eventually("it waits, and the store is subscribed", BOUND, async || {
        let channels = raw.cmd(&["PUBSUB", "CHANNELS", "semaphore:*"]).await;
        let waits = raw.zcard("semaphore:2:{concurrency:ann}:queue").await == 1;
        waits && !channels.array().is_empty()
    })
    .await;
    let start = Instant::now();
    assert!(permit.release().await);
    let waiter = waiting.await.expect("no panic").expect("it is granted");
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "a poll would be later"
    );
    assert!(waiter.release().await);
}
