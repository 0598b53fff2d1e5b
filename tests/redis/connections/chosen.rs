//! Each connection of a store uses the server, the protocol and the transport that environment variables choose.
//!
//! Promises: P20.

use super::{BOUND, claim};
use futures_util::future::join_all;
use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};
use testing::{
    redis::{Cluster, RedisServer, Sentinels, chosen},
    resp::Raw,
    wait::{eventually, within},
};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore, redis::Builder};

/// The fields of one client in `CLIENT LIST`, by their names.
pub(crate) type Client = HashMap<String, String>;

/// All clients except `raw` itself.
pub(crate) async fn others(raw: &mut Raw) -> Vec<Client> {
    let own = raw.cmd(&["CLIENT", "ID"]).await.int().to_string();
    let list = raw.cmd(&["CLIENT", "LIST"]).await;
    let clients = list.text().lines().map(parse);
    clients.filter(|client| client["id"] != own).collect()
}

/// True if at least one client exists and all clients have these field values.
pub(crate) fn all_have(clients: &[Client], fields: &[(&str, &str)]) -> bool {
    let has = |client: &Client| fields.iter().all(|(name, value)| client[*name] == *value);
    !clients.is_empty() && clients.iter().all(has)
}

/// Asserts that at least one client exists and that all clients have these field values.
pub(crate) fn assert_all(clients: &[Client], fields: &[(&str, &str)]) {
    assert!(all_have(clients, fields), "{clients:?}");
}

fn parse(line: &str) -> Client {
    let fields = line.split(' ').filter_map(|field| field.split_once('='));
    fields
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Lets messages notify waiters of their grants. Returns the connections that the store had while the first one waited:
/// its runtime's, the keeper's and a subscribed one. The store's lease must be a minute, because then a waiter polls
/// only every five seconds.
pub(crate) async fn clients_of_a_notified_waiter(
    store: &RedisSemaphore,
    raw: &mut Raw,
) -> Vec<Client> {
    let mut held = store.acquire(claim()).await.expect("there is room");
    let mut clients = Vec::new();
    let mut fastest = BOUND;
    for round in 0..4 {
        let start = Instant::now();
        let waiter = tokio::spawn(store.acquire(claim().with_wait(Duration::from_secs(60))));
        until_one_waits(store).await;
        // The first round only makes the store subscribe, because a new subscription triggers a poll.
        if round == 0 {
            eventually("the store is subscribed", BOUND, async || {
                clients = others(raw).await;
                clients.iter().any(|client| client["sub"] == "1")
            })
            .await;
        }
        assert!(held.release().await);
        let granted = within("it is granted", BOUND, waiter).await;
        held = granted.expect("it did not panic").expect("it is granted");
        if round > 0 {
            fastest = fastest.min(start.elapsed());
        }
    }
    // A waiter would poll five seconds after the answer to its claim.
    assert!(fastest < Duration::from_secs(5), "{fastest:?}");
    assert!(held.release().await);
    assert!(clients.len() >= 3, "{clients:?}");
    clients
}

/// Waits until a claim waits. The store's user may lack the rights of operators.
async fn until_one_waits(store: &RedisSemaphore) {
    eventually("it waits", BOUND, async || {
        let claim = claim().with_wait(Duration::from_millis(1));
        let refused = store.acquire(claim.with_max_waiting(1)).await;
        matches!(refused, Err(AcquireError::QueueFull { .. }))
    })
    .await;
}

/// With this lease a waiter polls only every five seconds.
fn builder() -> Builder {
    RedisSemaphore::builder().lease(Duration::from_secs(60))
}

/// A field that the server reports about itself, such as `executable`.
async fn server_field(raw: &mut Raw, name: &str) -> String {
    let info = raw.cmd(&["INFO", "server"]).await;
    let field = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(':')?.to_owned());
    info.text().lines().find_map(field).expect("it is reported")
}

/// All clients except `raw` itself, replicas and Sentinels.
async fn users(raw: &mut Raw) -> Vec<Client> {
    let is_user = |client: &Client| {
        let is_replica = client["flags"].contains(['S', 'M']);
        !is_replica && !client["name"].starts_with("sentinel-")
    };
    others(raw).await.into_iter().filter(is_user).collect()
}

/// Asserts that these clients of a server use its client port and the chosen protocol.
async fn assert_chosen(clients: &[Client], server: &RedisServer) {
    let address = format!("127.0.0.1:{}", server.client_port());
    assert_all(clients, &[("laddr", &address)]);
    let is_resp3 = chosen::protocol().is_some_and(|protocol| protocol == "resp3");
    // Redis 6.2 does not report the protocol, but RESP3 cannot be used without HELLO.
    if clients.iter().any(|client| client.contains_key("resp")) {
        assert_all(clients, &[("resp", if is_resp3 { "3" } else { "2" })]);
    }
    // Each connection over RESP3 begins with HELLO, and none over RESP2.
    let stats = Raw::connect(server.port()).await.commandstats().await;
    let hellos = stats.get("hello").copied().unwrap_or_default() as usize;
    let least = if is_resp3 { clients.len() } else { 0 };
    assert!(hellos >= least, "{hellos} HELLO by {clients:?}");
    assert!(is_resp3 || hellos == 0, "{hellos} HELLO by {clients:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_the_chosen_one() {
    let server = RedisServer::start();
    let executable = server_field(&mut Raw::connect(server.port()).await, "executable").await;
    // A binary found on the PATH has no folder.
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
    // The other nodes are found through the first. Fifty keys are enough for some on each node.
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
