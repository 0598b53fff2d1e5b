//! Unix sockets, users, passwords and database numbers.
//!
//! Promises: P20.

use super::{
    BOUND, assert_works, blamed, causes,
    chosen::{assert_all, clients_of_a_notified_waiter, others},
    claim,
};
use std::time::Duration;
use tempfile::TempDir;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tower_semaphore::{RedisSemaphore, Semaphore};

/// The rights that the module docs of `redis` ask for, and SELECT for a database number.
const RULES: &str = "~semaphore:* &semaphore:* +eval +evalsha +time +ping +subscribe +publish \
    +exists +get +hget +hgetall +incr +set +pexpire +pttl +zadd +zcard +zrange +zrangebyscore +zrem \
    +zremrangebyscore +zscore +select";

const PASSWORD: &str = "p@ss:w/rd?#";
const ENCODED: &str = "p%40ss%3Aw%2Frd%3F%23";

/// Creates a user with only the rights that the store needs.
async fn add_user(raw: &mut Raw) {
    let password = format!(">{PASSWORD}");
    let mut command = vec!["ACL", "SETUSER", "ann", "reset", "on", &password];
    command.extend(RULES.split_ascii_whitespace());
    assert_eq!(raw.cmd(&command).await.text(), "OK");
}

/// The number of semaphore keys in a database.
async fn keys(raw: &mut Raw, database: &str) -> usize {
    raw.cmd(&["SELECT", database]).await;
    raw.keys("semaphore:2:{*").await.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_a_password_and_a_database_number_are_taken_from_the_url() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    add_user(&mut raw).await;
    let url = format!("redis://ann:{ENCODED}@127.0.0.1:{}/3", server.port());
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    let store = builder.connect(url).await.expect("it is let in");
    let clients = clients_of_a_notified_waiter(&store, &mut raw).await;
    assert_all(&clients, &[("user", "ann"), ("db", "3")]);
    let _held = store.acquire(claim()).await.expect("there is room");
    assert_eq!(keys(&mut raw, "0").await, 0);
    assert!(keys(&mut raw, "3").await > 0);
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_serves_with_a_user_a_password_and_a_database_too() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let socket = folder.path().join("redis.sock");
    let socket = socket.to_str().expect("the path is text");
    let server = RedisServer::with(&["--unixsocket", socket]);
    let mut raw = Raw::connect(server.port()).await;
    let plain = RedisSemaphore::connect(format!("unix://{socket}")).await;
    assert_works(&plain.expect("every user is admitted")).await;
    eventually("the first store has disconnected", BOUND, async || {
        others(&mut raw).await.is_empty()
    })
    .await;
    add_user(&mut raw).await;
    let url = format!("unix://{socket}?user=ann&pass={ENCODED}&db=3");
    let builder = RedisSemaphore::builder().lease(Duration::from_secs(60));
    let store = builder.connect(url).await.expect("it is let in");
    let clients = clients_of_a_notified_waiter(&store, &mut raw).await;
    let local_address = format!("{socket}:0");
    assert_all(
        &clients,
        &[("user", "ann"), ("db", "3"), ("laddr", &local_address)],
    );
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_shown_nowhere() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    add_user(&mut raw).await;
    let url = |password| format!("redis://ann:{password}@127.0.0.1:{}/", server.port());
    let store = RedisSemaphore::connect(url(ENCODED)).await;
    let store = store.expect("it is let in");
    let wrong = RedisSemaphore::connect(url("battery-staple")).await;
    let wrong = wrong.expect_err("the password is wrong");
    let gone = RedisSemaphore::connect("redis://:battery-staple@127.0.0.1:1/").await;
    let shown = r#"RedisSemaphore { prefix: "semaphore:", lease: 10s, .. }"#;
    assert_eq!(format!("{store:?}"), shown);
    let text = format!("{store:?} {wrong:?} {} {gone:?}", causes(&wrong));
    for secret in [PASSWORD, ENCODED, "battery-staple"] {
        assert!(!text.contains(secret), "{text}");
    }
    assert_eq!(wrong.setting(), Some("url"));
}

#[tokio::test]
async fn a_url_that_cannot_work_is_blamed_without_its_password() {
    for url in [
        "mysql://ann:battery-staple@here/",
        "redis://ann:battery-staple@127.0.0.1:1/not-a-number",
        "redis://ann:battery-staple@0.0.0.0:1/",
        "redis://ann:battery-staple@127.0.0.1:1/?protocol=7",
        "redis://ann:battery-staple@:no:port/",
        "unix:///nowhere?pass=battery-staple&db=none",
    ] {
        let error = RedisSemaphore::connect(url).await.expect_err("it is wrong");
        let text = format!("{error:?} {}", causes(&error));
        assert!(!text.contains("battery-staple"), "{text}");
        assert_eq!(blamed(Err(error)), "url", "{url}");
    }
}

#[tokio::test]
async fn a_url_with_the_number_of_a_missing_database_is_blamed() {
    let server = RedisServer::with(&["--databases", "2"]);
    let mut raw = Raw::connect(server.port()).await;
    let outcome = RedisSemaphore::connect(server.url() + "2").await;
    assert_eq!(blamed(outcome), "url");
    eventually("no connection is left", BOUND, async || {
        others(&mut raw).await.is_empty()
    })
    .await;
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
#[tokio::test]
async fn a_tls_url_blames_the_url_and_names_the_missing_features() {
    let outcome = RedisSemaphore::connect("rediss://:secret@127.0.0.1:1/").await;
    let error = outcome.expect_err("there is no TLS");
    let text = causes(&error);
    assert!(
        text.contains("tls-rustls") && text.contains("tls-native-tls"),
        "{text}"
    );
    assert!(!format!("{text} {error:?}").contains("secret"), "{text}");
    assert_eq!(blamed(Err(error)), "url");
}

#[cfg(not(any(feature = "tls-rustls", feature = "tls-native-tls")))]
#[tokio::test]
async fn another_mistake_in_a_url_is_not_taken_for_missing_tls() {
    let outcome = RedisSemaphore::connect("redis://127.0.0.1:1/not-a-number").await;
    let error = outcome.expect_err("the URL cannot work");
    assert_eq!(error.setting(), Some("url"));
    assert!(!causes(&error).contains("tls-rustls"), "{error}");
}
