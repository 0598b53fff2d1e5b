//! Proxies that close a connection when they receive a command that they do not know, as twemproxy does.
//!
//! Promises: P20.

use super::{BOUND, assert_works, causes};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
use testing::{
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tower_semaphore::{
    Claim, RedisSemaphore, Semaphore,
    redis::{Builder, ConnectError, Kind, Risk, client::Client},
};

/// A timeout that tolerates late answers on a busy machine.
fn patient() -> Builder {
    RedisSemaphore::builder().timeout(Duration::from_secs(3))
}

/// A proxy that closes each connection at one of these commands.
async fn closes_at(commands: &'static [&str], server: &RedisServer) -> Proxy {
    let proxy = Proxy::start(server).await;
    proxy.cut_before(move |args| {
        let mut names = commands.iter();
        names.any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()))
    });
    proxy
}

/// The outcome of connecting, retried while this machine is too busy for an answer in time.
async fn connected(url: &str) -> Result<RedisSemaphore, ConnectError> {
    connected_by(&patient(), url).await
}

async fn connected_by(builder: &Builder, url: &str) -> Result<RedisSemaphore, ConnectError> {
    for _ in 0..10 {
        match builder.clone().connect(url).await {
            Err(error) if error.kind() == Kind::Unavailable => {}
            outcome => return outcome,
        }
    }
    builder.clone().connect(url).await
}

/// Asserts that the store works through the proxy, and that a store whose connection has ended at an optional command
/// leaves out all of them on later connections.
async fn assert_optional_commands_left_out(proxy: &Proxy, builder: &Builder, optional: &[&str]) {
    let store = connected_by(builder, &proxy.url()).await;
    let store = store.expect("they are optional");
    assert_works(&store).await;
    assert_eq!(store.check().await.expect("it works"), [Risk::NoInfo]);
    proxy.clear_log();
    proxy.kill(End::Close);
    eventually("it is connected again", BOUND, async || {
        store.check().await.is_ok() && store.acquire(Claim::new("b").with_limit(9)).await.is_ok()
    })
    .await;
    for name in optional {
        assert_eq!(proxy.count(name.as_bytes()), 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_closes_at_optional_commands_serves_claims_and_gets_none_again() {
    let server = RedisServer::start();
    for commands in [&["CLIENT"][..], &["INFO"], &["CLIENT", "HELLO", "INFO"]] {
        let proxy = closes_at(commands, &server).await;
        assert_optional_commands_left_out(&proxy, &patient(), &["CLIENT", "HELLO", "INFO"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_notified_through_a_proxy_that_closes_at_client_setinfo() {
    let server = RedisServer::start();
    let proxy = closes_at(&["CLIENT"], &server).await;
    let store = connected(&proxy.url()).await.expect("it is optional");
    let claim = || Claim::new("a").with_limit(1).with_wait(BOUND);
    let held = store.acquire(claim()).await.expect("there is room");
    let waiting = tokio::spawn(store.acquire(claim()));
    let mut raw = Raw::connect(server.port()).await;
    eventually("it waits", BOUND, async || {
        raw.zcard("semaphore:2:{concurrency:a}:queue").await == 1
    })
    .await;
    assert!(held.release().await);
    let granted = waiting.await.expect("no panic").expect("it is granted");
    assert!(granted.release().await);
    assert!(proxy.count(b"SUBSCRIBE") > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_closes_at_hello_gets_auth_instead() {
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    raw.cmd(&["CONFIG", "SET", "requirepass", "battery-staple"])
        .await;
    let proxy = closes_at(&["HELLO"], &server).await;
    let url = |password: &str| {
        let host = proxy.url().replacen("redis://", "", 1);
        format!("redis://:{password}@{host}?protocol=3")
    };
    let store = connected(&url("battery-staple")).await;
    assert_works(&store.expect("the password is right")).await;
    let wrong = connected(&url("wrong-staple")).await;
    let error = wrong.expect_err("the password is wrong");
    assert!(
        error.to_string().starts_with("url: the server refuses"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_closes_at_a_needed_command_is_a_mistake_that_names_it() {
    let server = RedisServer::start();
    for (commands, named) in [
        (&["EVALSHA"][..], "EVALSHA"),
        (&["EVAL"], "EVAL"),
        (&["SUBSCRIBE"], "SUBSCRIBE"),
        (&["CLIENT", "HELLO", "INFO", "EVAL", "EVALSHA"], "EVALSHA"),
        (&["CLIENT", "INFO", "SUBSCRIBE"], "SUBSCRIBE"),
    ] {
        let proxy = closes_at(commands, &server).await;
        let error = connected(&proxy.url()).await.expect_err("it cannot work");
        assert_eq!(
            (error.kind(), error.setting()),
            (Kind::Misconfigured, Some("url")),
            "{commands:?}: {}",
            causes(&error)
        );
        let text = error.to_string();
        let is_named = text.contains(&format!("ends the connection at {named},"));
        assert!(
            is_named && text.contains("connect to Redis itself"),
            "{text}"
        );
    }
}

/// Every connection ends, so no single command can be the reason.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_that_closes_at_every_command_is_unavailable() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    proxy.cut_before(|_| true);
    let outcome = patient().connect(proxy.url()).await;
    let error = outcome.expect_err("nothing is answered");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
}

/// The connection may have ended at that moment for another reason, such as a restart.
#[tokio::test(flavor = "multi_thread")]
async fn an_optional_command_is_still_sent_after_one_connection_ended_at_it() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let is_first = AtomicBool::new(true);
    proxy.cut_before(move |args| args[0] == b"CLIENT" && is_first.swap(false, Relaxed));
    let store = connected(&proxy.url()).await.expect("it is there");
    // Without INFO, the check would report `Risk::NoInfo`.
    assert_eq!(store.check().await.expect("it works"), []);
}

/// A builder whose connector connects to the URL's address, as redis-rs would.
fn with_connector() -> Builder {
    patient().connector(async |info, config| {
        let client = Client::open(info)?;
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    })
}

/// With a connector, only the connection for messages sends `HELLO`.
#[tokio::test(flavor = "multi_thread")]
async fn a_connector_leaves_out_optional_commands_too() {
    let server = RedisServer::start();
    let proxy = closes_at(&["CLIENT", "INFO"], &server).await;
    assert_optional_commands_left_out(&proxy, &with_connector(), &["CLIENT", "INFO"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_behind_a_connector_is_blamed_for_closing_at_hello() {
    let server = RedisServer::start();
    let proxy = closes_at(&["HELLO"], &server).await;
    let outcome = connected_by(&with_connector(), &proxy.url()).await;
    let error = outcome.expect_err("no messages can come");
    assert_eq!(error.setting(), Some("url"), "{}", causes(&error));
    let text = error.to_string();
    assert!(text.contains("ends the connection at HELLO,"), "{text}");
}
