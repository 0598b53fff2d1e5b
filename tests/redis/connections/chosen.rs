//! The server, the protocol and the transport are those that the environment chooses.

use super::{
    BOUND, claim,
    client_list::{Client, assert_all, clients_of_a_notified_waiter, others},
};
use futures_util::future::join_all;
use std::{path::Path, time::Duration};
use testing::{
    redis::{Cluster, RedisServer, Sentinels, chosen},
    resp::Raw,
    wait::eventually,
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::Builder};

/// A poll is later than any bound here.
fn builder() -> Builder {
    RedisSemaphore::builder().lease(Duration::from_secs(60))
}

/// What a server says of itself, as `executable`.
async fn own(raw: &mut Raw, name: &str) -> String {
    let info = raw.cmd(&["INFO", "server"]).await;
    let field = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
    info.text().lines().find_map(field).expect("it is told")
}

/// All clients but the oracle, replicas and Sentinels.
async fn users(raw: &mut Raw) -> Vec<Client> {
    let is_user = |client: &Client| {
        let is_replica = client["flags"].contains(['S', 'M']);
        !is_replica && !client["name"].starts_with("sentinel-")
    };
    others(raw).await.into_iter().filter(is_user).collect()
}

/// Judges all clients of a server but the oracle.
async fn assert_chosen(clients: &[Client], server: &RedisServer) {
    let address = format!("127.0.0.1:{}", server.client_port());
    assert_all(clients, &[("laddr", &address)]);
    let is_resp3 = chosen::protocol().is_some_and(|protocol| protocol == "resp3");
    // Redis 6.2 does not tell it, but nothing speaks RESP3 without HELLO.
    if clients.iter().any(|client| client.contains_key("resp")) {
        assert_all(clients, &[("resp", if is_resp3 { "3" } else { "2" })]);
    }
    let stats = Raw::connect(server.port()).await.commandstats().await;
    let hellos = stats.get("hello").copied().unwrap_or_default() as usize;
    let least = if is_resp3 { clients.len() } else { 0 };
    assert!(hellos >= least, "{hellos} HELLO by {clients:?}");
    assert!(is_resp3 || hellos == 0, "{hellos} HELLO by {clients:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_the_chosen_one() {
    let server = RedisServer::start();
    let executable = own(&mut Raw::connect(server.port()).await, "executable").await;
    // One that is found on the PATH has no folder.
    let is_chosen = Path::new(&executable).ends_with(chosen::binary());
    assert!(is_chosen, "{executable}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_to_one_server_are_made_in_the_chosen_way() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let store = builder().connect(server.url()).await.expect("it connects");
    let clients = clients_of_a_notified_waiter(&store, &mut raw).await;
    assert_chosen(&clients, &server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_to_a_cluster_are_made_in_the_chosen_way() {
    let cluster = Cluster::of_primaries(3).await;
    // The others are found through the first.
    let store = builder().connect_cluster([cluster.node(0).url()]).await;
    let store = store.expect("it connects");
    for number in 0..50 {
        let claim = Claim::new(format!("key-{number}")).with_limit(1);
        let permit = store.acquire(claim).await.expect("there is room");
        assert!(permit.release().await);
    }
    let mut raws = join_all((0..3).map(|node| cluster.raw(node))).await;
    let _held = store.acquire(claim()).await.expect("there is room");
    let _waiter = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    eventually("the store is subscribed", BOUND, async || {
        let lists = join_all(raws.iter_mut().map(users)).await;
        lists.iter().flatten().any(|client| client["sub"] == "1")
    })
    .await;
    for (number, raw) in raws.iter_mut().enumerate() {
        assert_chosen(&users(raw).await, cluster.node(number)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_connections_to_a_primary_of_sentinels_are_made_in_the_chosen_way() {
    let sentinels = Sentinels::start().await;
    let store = builder()
        .connect_sentinel(sentinels.urls(), Sentinels::NAME)
        .await;
    let store = store.expect("it connects");
    let mut raw = sentinels.raw(0).await;
    let _held = store.acquire(claim()).await.expect("there is room");
    let _waiter = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    eventually("the store is subscribed", BOUND, async || {
        let clients = users(&mut raw).await;
        clients.iter().any(|client| client["sub"] == "1")
    })
    .await;
    assert_chosen(&users(&mut raw).await, sentinels.server(0)).await;
}
