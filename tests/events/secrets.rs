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

/// The full text of an error and of its causes.
fn said<T: Debug, E: Error>(outcome: &Result<T, E>) -> String {
    let mut said = format!("{outcome:?} {outcome:#?}");
    let mut cause = outcome.as_ref().err().map(|error| error as &dyn Error);
    while let Some(error) = cause {
        said += &format!(" {error} {error:?}");
        cause = error.source();
    }
    said
}

fn assert_silent(said: &str) {
    for secret in [RIGHT, WRONG].into_iter().chain(ENCODED) {
        assert!(!said.contains(secret), "{said}");
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

/// Rare or wrong URLs.
fn odd(password: &str) -> Vec<String> {
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

/// Each of these connections fails differently.
async fn connecting(port: u16) -> String {
    let mut all = String::new();
    for password in [WRONG, ENCODED[0]] {
        let at = |port| url(password, port);
        let bad = format!("redis://ann:{password}@127.0.0.1:port/");
        let elsewhere = format!("rediss://ann:{password}@127.0.0.1:{port}/");
        let nowhere = format!("redis://ann:{password}@no.such.host.invalid/");
        let mut urls = vec![at(port), at(1), bad, elsewhere, nowhere];
        urls.extend(odd(password));
        for url in urls {
            all += &said(&patient().connect(url.as_str()).await);
            all += &said(&patient().connect_cluster([url.as_str()]).await);
            all += &said(&patient().connect_sentinel([url.as_str()], "primary").await);
            let own = patient().fixed_credentials("ann", password);
            all += &format!("{own:?} {own:#?}");
            all += &said(&own.clone().connect(url.as_str()).await);
            all += &said(&own.clone().connect_cluster([url.as_str()]).await);
            all += &said(&own.connect_sentinel([url.as_str()], "primary").await);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_no_connection_is_made() {
    listen();
    let server = protected().await;
    assert_silent(&connecting(server.port()).await);
    assert_silent(&text());
}

/// A server repeats an unknown command with its arguments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_a_server_repeats_what_it_does_not_know() {
    listen();
    let mut all = String::new();
    for command in ["HELLO", "AUTH"] {
        let server = RedisServer::with(&["--rename-command", command, ""]);
        for protocol in ["resp2", "resp3"] {
            let url = url(RIGHT, server.port()) + "?protocol=" + protocol;
            all += &said(&patient().connect(url.as_str()).await);
            all += &said(&patient().connect_cluster([url.as_str()]).await);
            all += &said(&patient().connect_sentinel([url.as_str()], "primary").await);
            let url = server.url() + "?protocol=" + protocol;
            let own = patient().fixed_credentials("ann", RIGHT);
            all += &said(&own.connect(url.as_str()).await);
        }
    }
    assert!(all.contains("unknown command"), "{all}");
    assert_silent(&all);
    assert_silent(&text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_a_server_dies_and_forgets_its_users() {
    listen();
    let mut server = protected().await;
    let store = patient()
        .connect(url(RIGHT, server.port()))
        .await
        .expect("it connects");
    let claim = || Claim::new("a").with_limit(9);
    let mut all = format!("{store:?}") + &said(&store.acquire(claim()).await);
    server.kill();
    for _ in 0..5 {
        all += &said(&store.acquire(claim()).await);
    }
    server.restart();
    // The restarted server no longer knows the user.
    let is_refused = async || {
        let answer = said(&store.acquire(claim()).await);
        all += &answer;
        answer.contains("WRONGPASS")
    };
    eventually("the user is refused", BOUND, is_refused).await;
    all += &said(&store.check().await);
    all += &format!("{:?}", store.shutdown(Duration::from_millis(10)).await);
    assert_silent(&all);
    assert_silent(&text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_a_node_of_a_cluster_dies() {
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
        all += &said(&store.acquire(claim(key)).await);
    }
    assert!(all.contains("Err("), "a node is dead");
    assert_silent(&all);
    assert_silent(&text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_the_primary_of_a_sentinel_dies() {
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
    let mut all = said(&wrong);
    let store = own(RIGHT)
        .connect_sentinel(urls, Sentinels::NAME)
        .await
        .expect("it connects");
    server.kill();
    let claim = || Claim::new("a").with_limit(9);
    let fails = async || {
        let answer = store.acquire(claim()).await;
        all += &said(&answer);
        answer.is_err()
    };
    eventually("the primary is dead", BOUND, fails).await;
    all += &said(&store.check().await);
    assert_silent(&all);
    assert_silent(&text());
}

/// Any program may answer at a port, and it may send back the bytes that it received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_the_code_of_an_answer_has_it() {
    listen();
    let mut all = String::new();
    for (answer, password) in [
        (format!("-{RIGHT}\r\n"), RIGHT),
        (format!("-{RIGHT} is wrong\r\n"), RIGHT),
        (format!("-{}\r\n", ENCODED[1]), ENCODED[0]),
        (format!("-{} is wrong\r\n", ENCODED[1]), ENCODED[0]),
        (format!("-ERR sent: {}\r\n", ENCODED[1]), ENCODED[0]),
    ] {
        let url = url(password, says(answer).await);
        let outcome = patient().connect(url.as_str()).await;
        assert!(outcome.is_err());
        all += &said(&outcome);
        all += &said(&patient().connect_cluster([url.as_str()]).await);
        all += &said(&patient().connect_sentinel([url.as_str()], "primary").await);
    }
    let parted: Vec<_> = ENCODED[1].split(' ').collect();
    assert!(!parted.iter().any(|part| all.contains(part)), "{all}");
    assert_silent(&all);
    assert_silent(&text());
}

/// A server that has received the password may repeat it at any time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_a_server_repeats_it_after_the_log_in() {
    listen();
    let answer = format!("-LOADING sent: {RIGHT}\r\n");
    let is_log_in = |sent: &str| sent.contains("AUTH") || sent.contains("SETINFO");
    let port = answers(move |sent| match is_log_in(sent) {
        true => "+OK\r\n".repeat(sent.matches('*').count()),
        false => answer.repeat(8),
    });
    let port = port.await;
    let store = patient().connect(url(RIGHT, port)).await;
    assert!(store.is_err());
    let said = said(&store);
    assert!(said.contains("LOADING"), "{said}");
    assert_silent(&said);
    assert_silent(&text());
}

/// Messages use a separate connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_password_appears_where_a_server_repeats_it_to_a_subscription() {
    listen();
    let server = protected().await;
    let port = repeats("SUBSCRIBE", server.port()).await;
    let store = patient().connect(url(RIGHT, port)).await;
    let said = said(&store);
    assert!(said.contains("SUBSCRIBE"), "{said}");
    assert_silent(&said);
    assert_silent(&text());
}

/// The port of a server that acts like another, but answers this command with the password.
async fn repeats(command: &'static str, port: u16) -> u16 {
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
    let (mut asked, mut said) = ([0; 65_536], [0; 65_536]);
    loop {
        let (read, answered) = tokio::select! {
            read = client.read(&mut asked) => (read?, false),
            read = server.read(&mut said) => (read?, true),
        };
        let asked = &asked[..read];
        match answered {
            _ if read == 0 => return Ok(()),
            true => client.write_all(&said[..read]).await?,
            false if String::from_utf8_lossy(asked).contains(command) => {
                let answer = format!("-ERR sent: {RIGHT}\r\n");
                client.write_all(answer.as_bytes()).await?;
            }
            false => server.write_all(asked).await?,
        }
    }
}

/// The port of a server that answers everything with this text.
async fn says(answer: String) -> u16 {
    answers(move |_| answer.repeat(8)).await
}

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
