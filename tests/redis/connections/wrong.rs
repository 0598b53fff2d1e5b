//! Mistakes in setups, as new users make them. The error alone explains each mistake, and only temporary conditions are
//! reported as unavailable.
//!
//! Promises: P20.

use super::{BOUND, causes, claim};
use std::{future::ready, time::Duration};
use testing::{
    redis::{Cluster, RedisServer, Sentinels, sentinel},
    resp::Raw,
    wait::eventually,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tower_semaphore::{
    RedisSemaphore, Semaphore,
    redis::{Builder, ConnectError, Kind, Risk, WhenUnavailable, client::ErrorKind},
};

type Outcome = Result<RedisSemaphore, ConnectError>;

/// A timeout that tolerates late answers on a busy machine.
fn patient() -> Builder {
    RedisSemaphore::builder().timeout(Duration::from_secs(3))
}

/// Asserts that an outcome is an error that satisfies `is_it`, contains all of these words, and shows no password.
fn explained(outcome: Outcome, is_it: impl Fn(&ConnectError) -> bool, words: &[&str]) {
    let error = outcome.expect_err("it cannot work");
    let text = causes(&error);
    assert!(is_it(&error), "{error:?}");
    let is_in_text = |word: &&str| text.contains(*word);
    assert!(words.iter().all(is_in_text), "{text}");
    assert!(!format!("{text} {error:?}").contains("staple"), "{text}");
}

/// True for an error about a user or a password, which are parts of the URL.
fn is_credentials(error: &ConnectError) -> bool {
    is_setting("url")(error)
}

fn is_unavailable(error: &ConnectError) -> bool {
    error.kind() == Kind::Unavailable
}

fn is_setting(setting: &str) -> impl Fn(&ConnectError) -> bool {
    move |error| error.kind() == Kind::Misconfigured && error.setting() == Some(setting)
}

/// A server that requires a password.
async fn protected() -> RedisServer {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "battery-staple"])
        .await;
    server
}

#[tokio::test]
async fn a_password_that_is_wrong_missing_or_needless_is_reported() {
    let (closed, open) = (protected().await, RedisServer::start());
    let connect = async |url: String| patient().connect(url).await;
    let refuses = ["refuses the user or the password", "WRONGPASS"];
    for protocol in ["", "?protocol=3"] {
        let wrong = closed.url_of(":wrong-staple") + protocol;
        explained(connect(wrong).await, is_credentials, &refuses);
        let unknown = closed.url_of("nobody:battery-staple") + protocol;
        explained(connect(unknown).await, is_credentials, &refuses);
        let none = closed.url() + protocol;
        explained(
            connect(none).await,
            is_credentials,
            &["requires a password"],
        );
    }
    let none = connect(closed.url() + "3").await;
    explained(none, is_credentials, &["requires a password"]);
    let needless = connect(open.url_of(":battery-staple")).await;
    explained(needless, is_credentials, &["has no password"]);
}

#[tokio::test]
async fn a_password_that_is_too_long_for_redis_to_read_is_reported() {
    let (closed, open) = (protected().await, RedisServer::start());
    let connect = async |url: String| {
        let builder = patient().when_unavailable(WhenUnavailable::Admit);
        builder.connect(url).await
    };
    // Before a login, Redis reads arguments of up to 16 KiB.
    for length in [16 << 10, (16 << 10) + 1, 20_000, 1 << 20] {
        let long = "x".repeat(length);
        let refuses = ["refuses the user or the password"];
        let wrong = connect(closed.url_of(&format!(":{long}"))).await;
        explained(wrong, is_credentials, &refuses);
        let unknown = connect(closed.url_of(&format!("{long}:x"))).await;
        explained(unknown, is_credentials, &refuses);
        let needless = connect(open.url_of(&format!(":{long}"))).await;
        explained(needless, is_credentials, &["has no password"]);
    }
}

#[tokio::test]
async fn a_wrong_password_is_reported_whatever_words_it_contains() {
    let (closed, open) = (protected().await, RedisServer::start());
    let connect = async |url: String| patient().connect(url).await;
    for word in ["password", "user", "a", "default", "sure", "WRONGPASS"] {
        let wrong = connect(closed.url_of(&format!(":{word}"))).await;
        explained(wrong, is_credentials, &["refuses the user or the password"]);
        let needless = connect(open.url_of(&format!(":{word}"))).await;
        explained(needless, is_credentials, &["has no password"]);
    }
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_reported() {
    let server = RedisServer::start();
    let words = ["no such database", "DB index is out of range"];
    let outcome = patient().connect(server.url() + "99").await;
    explained(outcome, is_setting("url"), &words);
    let sentinel = sentinel(server.client_port(), 1);
    let urls = [sentinel.url() + "99"];
    let outcome = patient().connect_sentinel(urls, Sentinels::NAME).await;
    explained(outcome, is_setting("url"), &words);
}

#[tokio::test]
async fn a_command_that_an_access_control_list_lacks_is_named_while_connecting_too() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let lacks = |command: &'static str| {
        move |error: &ConnectError| {
            let text = format!("the server does not permit {command}: allow `+");
            error.kind() == Kind::Misconfigured && error.to_string().starts_with(&text)
        }
    };
    let user = "ACL SETUSER ann on >battery-staple ~* &* +@all -select -role";
    raw.cmd(&user.split(' ').collect::<Vec<_>>()).await;
    let url = server.url_of("ann:battery-staple") + "1";
    explained(patient().connect(url).await, lacks("SELECT"), &["SELECT"]);
    let sentinel = sentinel(server.client_port(), 1);
    let mut watcher = Raw::connect(sentinel.port()).await;
    let rights = ["auth-user", "ann", "auth-pass", "battery-staple"];
    for pair in rights.chunks(2) {
        watcher
            .cmd(&[&["SENTINEL", "SET", Sentinels::NAME], pair].concat())
            .await;
    }
    let builder = patient().fixed_credentials("ann", "battery-staple");
    let outcome = builder
        .connect_sentinel([sentinel.url()], Sentinels::NAME)
        .await;
    explained(outcome, lacks("ROLE"), &["ROLE"]);
}

#[tokio::test]
async fn a_server_of_another_kind_is_reported() {
    let server = RedisServer::start();
    let urls = || [server.url()];
    let outcome = patient().connect_sentinel(urls(), Sentinels::NAME).await;
    explained(outcome, is_setting("connect_sentinel"), &["not a Sentinel"]);
    let outcome = patient().connect_cluster(urls()).await;
    explained(
        outcome,
        is_setting("connect_cluster"),
        &["not a node of a cluster"],
    );
    let sentinel = sentinel(server.client_port(), 1);
    let outcome = patient().connect_sentinel([sentinel.url()], "nobody").await;
    explained(
        outcome,
        is_setting("connect_sentinel"),
        &["no primary of this name"],
    );
    let outcome = patient().connect(sentinel.url()).await;
    explained(
        outcome,
        is_setting("url"),
        &["is a Sentinel", "`connect_sentinel`"],
    );
}

#[tokio::test]
async fn one_sentinel_of_three_is_not_enough_if_the_other_servers_are_no_sentinels() {
    let server = RedisServer::start();
    let sentinel = sentinel(server.client_port(), 1);
    let urls = [sentinel.url(), server.url(), server.url()];
    let outcome = patient().connect_sentinel(urls, Sentinels::NAME).await;
    explained(outcome, is_setting("connect_sentinel"), &["not a Sentinel"]);
}

#[tokio::test]
async fn one_node_of_a_cluster_is_no_store_unless_it_has_all_keys() {
    let cluster = Cluster::of_primaries(2).await;
    for node in 0..2 {
        let outcome = patient().connect(cluster.node(node).url()).await;
        explained(
            outcome,
            is_setting("url"),
            &["node of a cluster", "`connect_cluster`"],
        );
    }
    let alone = Cluster::of_primaries(1).await;
    let outcome = patient().connect(alone.node(0).url()).await;
    let risks = outcome.expect("it has all keys").check().await;
    assert!(
        matches!(risks.as_deref(), Ok([Risk::ClusterNode])),
        "{risks:?}"
    );
    let database = format!("{}1", alone.node(0).url());
    explained(
        patient().connect(database).await,
        is_setting("url"),
        &["no such database"],
    );
}

#[tokio::test]
async fn a_url_without_a_scheme_is_reported() {
    let outcome = RedisSemaphore::connect("localhost:6379").await;
    explained(outcome, is_setting("url"), &["(is \"redis://\" missing?)"]);
    let outcome = RedisSemaphore::builder()
        .connect_cluster(["localhost:6379"])
        .await;
    explained(outcome, is_setting("url"), &["(is \"redis://\" missing?)"]);
}

#[tokio::test]
async fn a_replica_is_reported() {
    let primary = RedisServer::start();
    let port = primary.client_port().to_string();
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &port]);
    let is_replica = is_setting("url");
    eventually("it has synchronised", BOUND, async || {
        let outcome = patient().connect(replica.url()).await;
        outcome.is_err_and(|error| is_replica(&error))
    })
    .await;
    let words = ["is a replica", "connect to its primary"];
    explained(patient().connect(replica.url()).await, is_replica, &words);
}

#[tokio::test]
async fn too_few_replicas_are_unavailable_and_named() {
    let server = RedisServer::start();
    let outcome = patient().min_replicas(1).connect(server.url()).await;
    explained(
        outcome,
        is_unavailable,
        &["min_replicas", "only 0 replicas"],
    );
}

#[tokio::test]
async fn a_server_that_is_down_or_has_too_many_clients_is_unavailable() {
    let mut server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    // `raw` is the only client that the server accepts.
    raw.cmd(&["CONFIG", "SET", "maxclients", "1"]).await;
    let outcome = patient().connect(server.url_of(":battery-staple")).await;
    explained(outcome, is_unavailable, &["max number of clients"]);
    server.kill();
    let outcome = patient().connect(server.url()).await;
    explained(outcome, is_unavailable, &["Connection refused"]);
}

/// The URL of a server that sends `answer` to each connection and closes it.
async fn declines(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            // The client may have closed the connection.
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    format!("redis://{address}/")
}

#[tokio::test]
async fn the_message_of_a_server_that_declines_a_connection_is_reported() {
    let url = declines("-DENIED Redis is running in protected mode\r\n").await;
    let words = ["protected mode", "set a password", "DENIED"];
    explained(patient().connect(url).await, is_setting("url"), &words);
    // A truncated answer means that the server is gone.
    let url = declines("$100\r\nredis").await;
    explained(patient().connect(url).await, is_unavailable, &[]);
}

#[tokio::test]
async fn a_server_that_delays_writes_is_reported_as_silent() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CLIENT", "PAUSE", "9000", "WRITE"]).await;
    let outcome = RedisSemaphore::connect(server.url()).await;
    explained(outcome, is_unavailable, &["no answer from Redis within 1s"]);
}

#[tokio::test]
async fn a_wrong_server_among_silent_ones_is_no_reason_to_give_up() {
    let (plain, silent) = (RedisServer::start(), RedisServer::start());
    silent.stop();
    let outcome = patient().connect_cluster([plain.url(), silent.url()]).await;
    explained(outcome, is_unavailable, &[]);
    let urls = [silent.url(), silent.url(), plain.url()];
    let outcome = patient().connect_sentinel(urls, Sentinels::NAME).await;
    explained(outcome, is_unavailable, &[]);
    silent.cont();
}

#[tokio::test]
async fn a_claim_without_a_server_names_each_cause_once() {
    let mut server = RedisServer::start();
    let store = patient().connect(server.url()).await.expect("it connects");
    server.kill();
    eventually("the connection is refused", BOUND, async || {
        let answer = store.acquire(claim()).await;
        let text = causes(&answer.expect_err("no server is there"));
        text.contains("no connection to Redis: Connection refused")
    })
    .await;
}

/// The URL of a server that sends `answer` to each command.
async fn answers_with(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(answer_all(socket, answer));
        }
    });
    format!("redis://{address}/")
}

async fn answer_all(socket: TcpStream, answer: &'static str) -> std::io::Result<()> {
    let (reader, mut writer) = socket.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Some(line) = lines.next_line().await? {
        // A command begins with the number of its arguments.
        if line.starts_with('*') {
            writer.write_all(answer.as_bytes()).await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn temporary_errors_are_unavailable_and_a_server_other_than_redis_is_a_mistake() {
    for line in [
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-MISCONF Redis is configured to save snapshots\r\n",
        "-ERR Connection refused\r\n",
        "-ERR Host is down\r\n",
        "-upstream failure\r\n",
        "-NOMASTERLINK Can't serve\r\n",
    ] {
        let outcome = patient().connect(answers_with(line).await).await;
        // The message without its code.
        let text = line
            .trim_start_matches(|char: char| !char.is_whitespace())
            .trim();
        explained(outcome, is_unavailable, &[text]);
    }
    for line in ["HTTP/1.1 400 Bad Request\r\n", "+OK\r\n", ":1\r\n"] {
        let outcome = patient().connect(answers_with(line).await).await;
        let text = causes(outcome.as_ref().expect_err("it is not Redis"));
        assert!(!text.contains('\n'), "{text}");
        explained(outcome, is_setting("url"), &["no Redis"]);
    }
}

#[tokio::test]
async fn a_connector_that_refuses_its_arguments_is_blamed_and_one_that_reaches_no_server_is_not() {
    let server = RedisServer::start();
    let fails = |kind: ErrorKind| {
        let builder = patient().connector(move |_, _| ready(Err((kind, "it is mine").into())));
        builder.connect(server.url())
    };
    let is_connector = |error: &ConnectError| error.setting() == Some("connector");
    let words = ["it has failed", "it is mine"];
    let outcome = fails(ErrorKind::InvalidClientConfig).await;
    explained(outcome, is_connector, &words);
    let outcome = fails(ErrorKind::Io).await;
    explained(outcome, is_unavailable, &["it is mine"]);
}

#[tokio::test]
async fn an_old_server_is_reported() {
    let url = answers_with("$22\r\nredis_version:5.0.14\r\n\r\n").await;
    let words = ["5.0.14", "6.2", "use a newer one"];
    explained(patient().connect(url).await, is_setting("url"), &words);
}

#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
#[tokio::test(flavor = "multi_thread")]
async fn tls_on_one_side_only_is_reported() {
    let server = testing::redis::secure::SecureServer::start().await;
    let outcome = patient()
        .connect(server.url().replace("rediss", "redis"))
        .await;
    explained(outcome, is_setting("url"), &["needs `rediss://`"]);
    let plain = RedisServer::start();
    let builder = patient().root_certificate(server.authority.certificate());
    for _ in 0..5 {
        let url = plain.url().replace("redis:", "rediss:");
        let outcome = builder.clone().connect(url).await;
        explained(outcome, is_setting("url"), &["needs `redis://`"]);
    }
    let sentinel = sentinel(plain.port(), 1);
    let url = sentinel.url().replace("redis:", "rediss:");
    let outcome = builder.connect_sentinel([url], Sentinels::NAME).await;
    explained(outcome, is_setting("url"), &["needs `redis://`"]);
}
