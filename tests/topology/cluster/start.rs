//! Problems that connecting to a cluster finds.
//!
//! Promises: P20.

use super::{BOUND, connect, patient};
use testing::{
    redis::{Cluster, RedisServer},
    wait::eventually,
};
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::{Builder, Kind},
};

/// The text of an error that blames `connect_cluster`.
async fn blamed(builder: Builder, urls: &[String]) -> String {
    match builder.connect_cluster(urls.to_vec()).await {
        Err(error) if error.setting() == Some("connect_cluster") => error.to_string(),
        other => panic!("no setting is blamed: {other:?}"),
    }
}

/// Asserts that permits of 20 keys, some on each node, are granted and released.
async fn assert_works(store: &RedisSemaphore) {
    for number in 0..20 {
        let claim = Claim::new(format!("key-{number}")).with_limit(1);
        let permit = store.acquire(claim).await.expect("there is room");
        assert!(permit.release().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_no_node_of_a_cluster_is_blamed() {
    let server = RedisServer::start();
    // The database is inserted after the address, not appended, because with TLS the URL ends with a fragment.
    let address = format!(":{}/", server.client_port());
    let database_three = server.url().replacen(&address, &format!("{address}3"), 1);
    for (urls, reason) in [
        (vec![server.url()], "the server is not a node of a cluster"),
        (vec![], "it names no server"),
        (vec![database_three], "a cluster has only the database 0"),
        (
            vec!["unix:///nowhere".to_owned()],
            "the nodes of a cluster have no Unix sockets",
        ),
    ] {
        let outcome = blamed(patient(), &urls).await;
        assert!(outcome.contains(reason), "{outcome}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_cannot_be_reached_are_reported() {
    let mut server = RedisServer::with(&["--cluster-enabled", "yes"]);
    let url = server.url();
    // The server has no slots, and knows no node that has any.
    let outcome = blamed(patient(), std::slice::from_ref(&url)).await;
    assert!(outcome.contains("no node has any slots"), "{outcome}");
    server.kill();
    let outcome = patient().connect_cluster([url]).await;
    assert!(
        outcome
            .as_ref()
            .is_err_and(|error| error.kind() == Kind::Unavailable),
        "{outcome:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_living_node_among_the_urls_is_enough() {
    let cluster = Cluster::of_primaries(3).await;
    let mut dead = RedisServer::start();
    let silent = RedisServer::start();
    let urls = [dead.url(), silent.url(), cluster.node(1).url()];
    dead.kill();
    silent.stop();
    let store = patient().connect_cluster(urls).await.expect("one answers");
    assert_works(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_connects_and_checks_while_any_one_node_is_silent() {
    let cluster = Cluster::of_primaries(3).await;
    for silent in 0..3 {
        cluster.node(silent).stop();
        let store = connect(patient(), &cluster).await;
        let risks = store.check().await.expect("the others work");
        assert_eq!(risks, []);
        cluster.node(silent).cont();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_at_any_node_is_named() {
    let cluster = Cluster::of_primaries(3).await;
    for node in 0..3 {
        let mut raw = cluster.raw(node).await;
        raw.cmd(&["ACL", "SETUSER", "default", "-zadd"]).await;
        let outcome = patient().connect_cluster(cluster.urls()).await;
        assert!(
            outcome
                .as_ref()
                .is_err_and(|error| error.to_string().contains("`+zadd`")),
            "{outcome:?}"
        );
        raw.cmd(&["ACL", "SETUSER", "default", "+zadd"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_user_and_password_of_a_url_are_used_for_all_nodes() {
    let cluster = Cluster::of_primaries(3).await;
    for node in 0..3 {
        let mut raw = cluster.raw(node).await;
        let rule = "ACL SETUSER ann on >battery-staple ~* &* +@all";
        let rule: Vec<_> = rule.split(' ').collect();
        assert_eq!(raw.cmd(&rule).await.text(), "OK");
        raw.cmd(&["ACL", "SETUSER", "default", "off"]).await;
    }
    let port = cluster.node(0).port();
    let url = |password| format!("redis://ann:{password}@127.0.0.1:{port}/");
    let store = patient().connect_cluster([url("battery-staple")]).await;
    assert_works(&store.expect("it is let in")).await;
    let wrong = patient().connect_cluster([url("wrong-staple")]).await;
    assert!(
        wrong.as_ref().is_err_and(|error| error
            .to_string()
            .starts_with("url: the server refuses the user")),
        "{wrong:?}"
    );
    assert!(!format!("{wrong:?}").contains("staple"), "{wrong:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_for_one_node_are_sent_together() {
    const CLAIMS: usize = 400;
    let cluster = Cluster::of_primaries(3).await;
    // Long enough that no refresh is due during the test.
    let store = connect(patient().lease(BOUND * 20), &cluster).await;
    assert_works(&store).await;
    let keys = cluster.keys_of(1, CLAIMS, super::name).await;
    let mut raw = cluster.raw(1).await;
    raw.reset_stats().await;
    let claims = keys
        .iter()
        .map(|key| store.acquire(Claim::new(key.as_str()).with_limit(1)));
    let permits = futures_util::future::join_all(claims).await;
    let reads = raw.stat("total_reads_processed").await as usize;
    let calls = raw.commandstats().await["evalsha"] as usize;
    assert!(permits.iter().all(Result::is_ok));
    // The store also announces its process from time to time.
    assert!((CLAIMS..CLAIMS + 8).contains(&calls), "{calls} calls");
    // The first eight calls are sent alone, and the others 64 at a time. The rest is the cluster's own traffic.
    assert!(reads < CLAIMS / 4, "{calls} calls in {reads} reads");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_announce_wrong_addresses_are_unavailable() {
    let cluster = Cluster::of_primaries(1).await;
    let mut raw = cluster.raw(0).await;
    // A documentation address (RFC 5737), where no server listens.
    let announce = ["CONFIG", "SET", "cluster-announce-ip", "192.0.2.1"];
    assert_eq!(raw.cmd(&announce).await.text(), "OK");
    eventually("it is announced", BOUND, async || {
        let nodes = raw.cmd(&["CLUSTER", "NODES"]).await;
        nodes.text().contains("192.0.2.1:")
    })
    .await;
    let outcome = patient().connect_cluster(cluster.urls()).await;
    assert!(
        outcome
            .as_ref()
            .is_err_and(|error| error.kind() == Kind::Unavailable),
        "{outcome:?}"
    );
}
