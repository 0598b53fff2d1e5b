//! The password of a URL appears nowhere: in no event, no span and no error.
//!
//! Promises: P20.

use crate::log::{listen, text};
use std::{error::Error, fmt::Debug, io, sync::Arc, time::Duration};
use testing::{
    redis::{Cluster, RedisServer, Sentinels, sentinel},
    resp::Raw,
    wait::eventually,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_semaphore::{Claim, RedisSemaphore, Semaphore, redis::Builder};

const RIGHT: &str = "correct-horse";
const WRONG: &str = "battery-staple";
/// The password as encoded in a URL, and decoded.
const ENCODED: [&str; 2] = ["sta%2Fple%20horse", "sta/ple horse"];
const BOUND: Duration = Duration::from_secs(20);

fn patient() -> Builder {
    RedisSemaphore::builder()
        .lease(Duration::from_millis(900))
        .timeout(Duration::from_millis(200))
}

/// Each text of an outcome: its debug output, and the texts of its error and of the causes.
fn texts<T: Debug, E: Error>(outcome: &Result<T, E>) -> String {
    let mut texts = format!("{outcome:?} {outcome:#?}");
    let mut cause = outcome.as_ref().err().map(|error| error as &dyn Error);
    while let Some(error) = cause {
        texts += &format!(" {error} {error:?}");
        cause = error.source();
    }
    texts
}

fn assert_no_secret(text: &str) {
    for secret in [RIGHT, WRONG].into_iter().chain(ENCODED) {
        assert!(!text.contains(secret), "{text}");
    }
}

fn url(password: &str, port: u16) -> String {
    format!("redis://ann:{password}@127.0.0.1:{port}/")
}

async fn protected() -> RedisServer {
    let server = RedisServer::start();
    protect(&mut Raw::connect(server.port()).await).await;
    server
}

async fn protect(raw: &mut Raw) {
    let password = format!(">{RIGHT}");
    let rule = [
        "ACL", "SETUSER", "ann", "on", &password, "~*", "&*", "+@all",
    ];
    assert_eq!(raw.cmd(&rule).await.text(), "OK");
}

/// URLs of rare forms, and URLs with mistakes.
fn odd_urls(password: &str) -> Vec<String> {
    [
        "redis+unix:///nowhere.sock?user=ann&pass=SECRET",
        "unix:///nowhere.sock?db=x&pass=SECRET",
        "redis://:SECRET@127.0.0.1:1/",
        "rediss://:SECRET@127.0.0.1:1/#insecure",
        "redis://ann:SECRET@127.0.0.1:1/x",
        "redis://ann:SECRET@127.0.0.1:99999/",
        "redis://ann:SECRET@[::1/",
        "redis://ann:SECRET@",
        "http://ann:SECRET@127.0.0.1/",
        "ann:SECRET@127.0.0.1:1",
    ]
    .map(|url| url.replace("SECRET", password))
    .into()
}

/// The texts of connections that fail, each in another way.
async fn failed_connections(port: u16) -> String {
    let mut all = String::new();
    for password in [WRONG, ENCODED[0]] {
        let at = |port| url(password, port);
        let bad = format!("redis://ann:{password}@127.0.0.1:port/");
        let elsewhere = format!("rediss://ann:{password}@127.0.0.1:{port}/");
        let nowhere = format!("redis://ann:{password}@no.such.host.invalid/");
        let mut urls = vec![at(port), at(1), bad, elsewhere, nowhere];
        urls.extend(odd_urls(password));
        for url in urls {
            all += &texts(&patient().connect(url.as_str()).await);
            all += &texts(&patient().connect_cluster([url.as_str()]).await);
            all += &texts(&patient().connect_sentinel([url.as_str()], "primary").await);
            let own = patient().fixed_credentials("ann", password);
            all += &format!("{own:?} {own:#?}");
            all += &texts(&own.clone().connect(url.as_str()).await);
            all += &texts(&own.clone().connect_cluster([url.as_str()]).await);
            all += &texts(&own.connect_sentinel([url.as_str()], "primary").await);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_no_connection_is_made() {
    listen();
    let server = protected().await;
    assert_no_secret(&failed_connections(server.port()).await);
    assert_no_secret(&text());
}

/// A server repeats an unknown command with its arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_a_server_repeats_an_unknown_command() {
    listen();
    let mut all = String::new();
    for command in ["HELLO", "AUTH"] {
        let server = RedisServer::with(&["--rename-command", command, ""]);
        for protocol in ["resp2", "resp3"] {
            let url = url(RIGHT, server.port()) + "?protocol=" + protocol;
            all += &texts(&patient().connect(url.as_str()).await);
            all += &texts(&patient().connect_cluster([url.as_str()]).await);
            all += &texts(&patient().connect_sentinel([url.as_str()], "primary").await);
            let url = server.url() + "?protocol=" + protocol;
            let own = patient().fixed_credentials("ann", RIGHT);
            all += &texts(&own.connect(url.as_str()).await);
        }
    }
    assert!(all.contains("unknown command"), "{all}");
    assert_no_secret(&all);
    assert_no_secret(&text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_a_server_dies_and_loses_its_users() {
    listen();
    let mut server = protected().await;
    let store = patient()
        .connect(url(RIGHT, server.port()))
        .await
        .expect("it connects");
    let claim = || Claim::new("a").with_limit(9);
    let mut all = format!("{store:?}") + &texts(&store.acquire(claim()).await);
    server.kill();
    for _ in 0..5 {
        all += &texts(&store.acquire(claim()).await);
    }
    server.restart();
    // The restarted server no longer knows the user.
    let is_refused = async || {
        let answer = texts(&store.acquire(claim()).await);
        all += &answer;
        answer.contains("WRONGPASS")
    };
    eventually("the user is refused", BOUND, is_refused).await;
    all += &texts(&store.check().await);
    all += &format!("{:?}", store.shutdown(Duration::from_millis(10)).await);
    assert_no_secret(&all);
    assert_no_secret(&text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_a_node_of_a_cluster_dies() {
    listen();
    let mut cluster = Cluster::of_primaries(3).await;
    for node in 0..3 {
        protect(&mut cluster.raw(node).await).await;
    }
    let urls = [0, 1, 2].map(|node| url(RIGHT, cluster.node(node).port()));
    let store = patient().connect_cluster(urls).await.expect("it connects");
    let claim = |key: u64| Claim::new(key).with_limit(1);
    cluster.node_mut(0).kill();
    let mut all = String::new();
    for key in 0..50 {
        all += &texts(&store.acquire(claim(key)).await);
    }
    assert!(all.contains("Err("), "a node is dead");
    assert_no_secret(&all);
    assert_no_secret(&text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_the_primary_of_a_sentinel_dies() {
    listen();
    let mut server = protected().await;
    let sentinel = sentinel(server.client_port(), 1);
    protect(&mut Raw::connect(sentinel.port()).await).await;
    let urls = [url(RIGHT, sentinel.port())];
    let own = |password| patient().fixed_credentials("ann", password);
    let wrong = own(WRONG)
        .connect_sentinel(urls.clone(), Sentinels::NAME)
        .await;
    assert!(wrong.is_err(), "{wrong:?}");
    let mut all = texts(&wrong);
    let store = own(RIGHT)
        .connect_sentinel(urls, Sentinels::NAME)
        .await
        .expect("it connects");
    server.kill();
    let claim = || Claim::new("a").with_limit(9);
    let fails = async || {
        let answer = store.acquire(claim()).await;
        all += &texts(&answer);
        answer.is_err()
    };
    eventually("the primary is dead", BOUND, fails).await;
    all += &texts(&store.check().await);
    assert_no_secret(&all);
    assert_no_secret(&text());
}

/// Any program may answer at a port, and it may send back the bytes that it received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_the_code_of_an_answer_contains_it() {
    listen();
    let mut all = String::new();
    for (answer, password) in [
        (format!("-{RIGHT}\r\n"), RIGHT),
        (format!("-{RIGHT} is wrong\r\n"), RIGHT),
        (format!("-{}\r\n", ENCODED[1]), ENCODED[0]),
        (format!("-{} is wrong\r\n", ENCODED[1]), ENCODED[0]),
        (format!("-ERR sent: {}\r\n", ENCODED[1]), ENCODED[0]),
    ] {
        let url = url(password, answers_with(answer).await);
        let outcome = patient().connect(url.as_str()).await;
        assert!(outcome.is_err());
        all += &texts(&outcome);
        all += &texts(&patient().connect_cluster([url.as_str()]).await);
        all += &texts(&patient().connect_sentinel([url.as_str()], "primary").await);
    }
    // An error's code ends at a space, so half of the password could appear.
    let mut parts = ENCODED[1].split(' ');
    assert!(!parts.any(|part| all.contains(part)), "{all}");
    assert_no_secret(&all);
    assert_no_secret(&text());
}

/// A server may repeat the password in any later answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_a_server_repeats_it_after_the_login() {
    listen();
    let answer = format!("-LOADING sent: {RIGHT}\r\n");
    let is_log_in = |sent: &str| sent.contains("AUTH") || sent.contains("SETINFO");
    let port = answers(move |sent| match is_log_in(sent) {
        // One OK for each command.
        true => "+OK\r\n".repeat(sent.matches('*').count()),
        false => answer.repeat(8),
    });
    let port = port.await;
    let store = patient().connect(url(RIGHT, port)).await;
    assert!(store.is_err());
    let texts = texts(&store);
    assert!(texts.contains("LOADING"), "{texts}");
    assert_no_secret(&texts);
    assert_no_secret(&text());
}

/// Messages use a separate connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_if_a_server_repeats_it_to_a_subscription() {
    listen();
    let server = protected().await;
    let port = repeats_password_at("SUBSCRIBE", server.port()).await;
    let store = patient().connect(url(RIGHT, port)).await;
    let texts = texts(&store);
    assert!(texts.contains("SUBSCRIBE"), "{texts}");
    assert_no_secret(&texts);
    assert_no_secret(&text());
}

/// The port of a proxy for the server at `port`. It answers this command itself, with the password.
async fn repeats_password_at(command: &'static str, port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let own = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await;
            tokio::spawn(forward(client, server.expect("it is there"), command));
        }
    });
    own
}

/// Forwards data until one of the two connections has ended.
async fn forward(mut client: TcpStream, mut server: TcpStream, command: &str) -> io::Result<()> {
    let (mut request, mut answer) = ([0; 65_536], [0; 65_536]);
    loop {
        let (read, is_answer) = tokio::select! {
            read = client.read(&mut request) => (read?, false),
            read = server.read(&mut answer) => (read?, true),
        };
        let request = &request[..read];
        match is_answer {
            _ if read == 0 => return Ok(()),
            true => client.write_all(&answer[..read]).await?,
            false if String::from_utf8_lossy(request).contains(command) => {
                let answer = format!("-ERR sent: {RIGHT}\r\n");
                client.write_all(answer.as_bytes()).await?;
            }
            false => server.write_all(request).await?,
        }
    }
}

/// The port of a server that answers everything with this text, several times, because a client may send several
/// commands together.
async fn answers_with(answer: String) -> u16 {
    answers(move |_| answer.repeat(8)).await
}

/// The port of a server whose answers this function computes from the received bytes.
async fn answers(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> u16 {
    let answer = Arc::new(answer);
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let mut sent = [0; 4096];
                while let Ok(read @ 1..) = socket.read(&mut sent).await {
                    let answer = answer(&String::from_utf8_lossy(&sent[..read]));
                    let _ = socket.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    port
}
