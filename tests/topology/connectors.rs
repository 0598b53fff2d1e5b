//! A user's connector makes all connections: to a single server, to nodes, to Sentinels and to the primary.
//!
//! Promises: P20.

use super::{
    cluster::{self, BOUND},
    sentinel::works,
};
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisResult,
    aio::MultiplexedConnection, cmd,
};
use std::sync::Arc;
use testing::{
    redis::{Cluster, RedisServer, Sentinels},
    resp::Raw,
    stores::connected,
    wait::{eventually, within},
};
use tower_semaphore::{
    Claim, Semaphore,
    redis::{Builder, Credentials, Kind},
};

/// The name that the server shows for connections of the connector.
const MARK: &str = "made-by-the-connector";

async fn open(
    info: ConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let client = Client::open(info)?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// Opens a connection and names it, so that the server's list of clients shows it.
async fn marked(
    info: ConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<MultiplexedConnection> {
    let mut connection = open(info, config).await?;
    let name = cmd("CLIENT").arg("SETNAME").arg(MARK).take();
    name.exec_async(&mut connection).await?;
    Ok(connection)
}

fn marking() -> Builder {
    cluster::patient().connector(marked)
}

/// The clients of a server: the marked ones and the others. This function's connection, replicas and other Sentinels
/// are left out.
async fn clients(server: &RedisServer) -> [Vec<String>; 2] {
    let mut raw = Raw::connect(server.port()).await;
    let own = raw.cmd(&["CLIENT", "ID"]).await.int();
    let list = raw.cmd(&["CLIENT", "LIST"]).await;
    let is_store = |line: &&str| {
        let is_own = line.starts_with(&format!("id={own} "));
        let is_link = ["flags=S", "flags=M", "name=sentinel-"];
        !is_own && !is_link.iter().any(|link| line.contains(link))
    };
    let clients = list.text().lines().filter(is_store).map(str::to_owned);
    let (marked, others) = clients.partition(|line| line.contains(&format!("name={MARK} ")));
    [marked, others]
}

/// Waits until the connector has made at least `least` connections, and no other connection of the store exists.
async fn until_all_marked(server: &RedisServer, least: usize) {
    eventually("all are the connector's", BOUND, async || {
        let [marked, others] = clients(server).await;
        marked.len() >= least && others.is_empty()
    })
    .await;
}

async fn has_subscribed(server: &RedisServer) -> bool {
    let [marked, _] = clients(server).await;
    marked.iter().any(|line| line.contains(" sub=1 "))
}

/// The three connections are the keeper's, this runtime's, and one for messages.
#[tokio::test(flavor = "multi_thread")]
async fn the_connector_makes_all_connections_to_one_server() {
    let server = RedisServer::start();
    let store = connected(async || marking().connect(server.url()).await).await;
    assert!(works(&store).await);
    until_all_marked(&server, 3).await;
    assert!(has_subscribed(&server).await);
    // Killed connections are replaced through the connector as well.
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CLIENT", "KILL", "SKIPME", "yes"]).await;
    drop(raw);
    eventually("it serves and subscribes again", BOUND, async || {
        works(&store).await && has_subscribed(&server).await
    })
    .await;
    // At least one for claims and one for messages.
    until_all_marked(&server, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connector_makes_all_connections_to_the_nodes_of_a_cluster() {
    let nodes = Cluster::of_primaries(3).await;
    let store = cluster::connect(marking(), &nodes).await;
    // Sixty keys are enough for some on each node.
    for key in 0..60_u64 {
        let permit = store.acquire(Claim::new(key).with_limit(1)).await;
        assert!(permit.expect("there is room").release().await);
    }
    for node in 0..3 {
        until_all_marked(nodes.node(node), 1).await;
    }
    eventually("one has a subscription", BOUND, async || {
        let mut found = false;
        for node in 0..3 {
            found |= has_subscribed(nodes.node(node)).await;
        }
        found
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_connector_makes_all_connections_to_sentinels_and_their_primary() {
    let sentinels = Sentinels::start().await;
    let store = connected(async || {
        let urls = sentinels.urls();
        marking().connect_sentinel(urls, Sentinels::NAME).await
    })
    .await;
    assert!(works(&store).await);
    let mut primary = 0;
    if !sentinels.is_primary(primary).await {
        primary = 1;
    }
    until_all_marked(sentinels.server(primary), 3).await;
    assert!(has_subscribed(sentinels.server(primary)).await);
    // The store keeps a connection to one Sentinel.
    eventually("the connector has made it", BOUND, async || {
        let mut marked = 0;
        for number in 0..3 {
            let [own, others] = clients(sentinels.sentinel(number)).await;
            if !others.is_empty() {
                return false;
            }
            marked += own.len();
        }
        marked > 0
    })
    .await;
}

/// As a connector with a tunnel or a resolver does.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_may_connect_to_another_address_than_the_url() {
    let server = RedisServer::start();
    let port = server.client_port();
    let builder = cluster::patient().connector(move |info, config| {
        let elsewhere = ConnectionAddr::Tcp("127.0.0.1".to_owned(), port);
        open(info.set_addr(elsewhere), config)
    });
    let url = "redis://no.such.host.invalid/3";
    let store = connected(async || builder.clone().connect(url).await).await;
    let claim = || Claim::new("a").with_limit(1);
    let held = store.acquire(claim()).await.expect("there is room");
    // The waiter is woken by a message. A poll would come only after seconds.
    let waiter = tokio::spawn(store.acquire(claim().with_wait(BOUND)));
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(raw.cmd(&["SELECT", "3"]).await.text(), "OK");
    eventually("it waits", BOUND, async || {
        raw.zcard("semaphore:2:{concurrency:a}:queue").await == 1
    })
    .await;
    held.release().await;
    let granted = within("a grant", BOUND, waiter).await.expect("no panic");
    assert!(granted.is_ok());
}

/// Without the given config or protocol, answers arrive but messages do not.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_that_ignores_its_arguments_is_blamed() {
    let server = RedisServer::start();
    let without_config =
        cluster::patient().connector(|info, _| open(info, AsyncConnectionConfig::new()));
    let without_protocol = cluster::patient().connector(|info, config| {
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP2);
        open(info.set_redis_settings(settings), config)
    });
    let without_any = cluster::patient().connector(|info, _| {
        let settings = info.redis_settings().clone();
        let settings = settings.set_protocol(ProtocolVersion::RESP2);
        open(
            info.set_redis_settings(settings),
            AsyncConnectionConfig::new(),
        )
    });
    for builder in [without_config, without_protocol, without_any] {
        let outcome = builder.connect(server.url()).await;
        let error = outcome.expect_err("it brings no messages");
        let blamed = (error.kind(), error.setting());
        assert_eq!(
            blamed,
            (Kind::Misconfigured, Some("connector")),
            "{error:?}"
        );
        let text = error.to_string();
        assert!(text.contains("AsyncConnectionConfig"), "{text}");
    }
}

/// Creates a user with a password, and disables the default user.
async fn protect(raw: &mut Raw, user: &str) {
    let rule = format!("ACL SETUSER {user} on >battery-staple ~* &* +@all");
    let rule: Vec<_> = rule.split(' ').collect();
    assert_eq!(raw.cmd(&rule).await.text(), "OK");
    raw.cmd(&["ACL", "SETUSER", "default", "off"]).await;
}

fn logged_in() -> Builder {
    let own = Arc::new(Credentials::new("ann", "battery-staple"));
    cluster::patient().credentials(move || {
        let own = Credentials::clone(&own);
        async move { Ok::<_, std::io::Error>(own) }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_used_for_all_nodes() {
    let nodes = Cluster::of_primaries(3).await;
    for node in 0..3 {
        protect(&mut nodes.raw(node).await, "ann").await;
    }
    let store = cluster::connect(logged_in(), &nodes).await;
    for key in 0..60_u64 {
        let permit = store.acquire(Claim::new(key).with_limit(1)).await;
        assert!(permit.expect("there is room").release().await);
    }
    let wrong = cluster::patient().fixed_credentials("ann", "wrong-staple");
    let wrong = wrong.connect_cluster(nodes.urls()).await;
    let error = wrong.expect_err("the password is wrong");
    let blamed = (error.kind(), error.setting());
    assert_eq!(
        blamed,
        (Kind::Misconfigured, Some("credentials")),
        "{error:?}"
    );
}

/// The URL has the Sentinel's user, and the credentials are those of the primary.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_used_for_the_primary_and_urls_for_sentinels() {
    let server = RedisServer::start();
    let sentinel = testing::redis::sentinel(server.client_port(), 1);
    protect(&mut Raw::connect(server.port()).await, "ann").await;
    protect(&mut Raw::connect(sentinel.port()).await, "watcher").await;
    let urls = [sentinel.url_of("watcher:battery-staple")];
    let store = connected(async || {
        let urls = urls.clone();
        logged_in().connect_sentinel(urls, Sentinels::NAME).await
    })
    .await;
    assert!(works(&store).await);
}
