//! The example, run as separate processes.

use crate::fixture::{Client, ask, channel, soon, wait_until_admitted};
use grpc::{client::PricesClient, messages::Price};
use std::process::Stdio;
use testing::{example, redis::RedisServer};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};
use tonic::{Code, Streaming};

/// The example with these settings and no others. Dropping its process kills it.
fn command(arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_grpc"));
    for name in ["REDIS_URL", "PORT", "LIMIT", "WAIT_MS"] {
        command.env_remove(name);
    }
    command.args(arguments).envs(settings.iter().copied());
    command.stdout(Stdio::piped()).kill_on_drop(true);
    command
}

/// Starts a server. Returns it and its address.
async fn server(settings: &[(&str, &str)]) -> (Child, String) {
    let mut child = command(&[], settings).spawn().expect("it starts");
    let url = example::address(&mut child).await;
    (child, url)
}

async fn client(url: &str) -> Client {
    PricesClient::new(channel(url).await)
}

/// A stream that has sent its first price.
async fn followed(client: &mut Client) -> Streaming<Price> {
    let stream = client.follow(ask("ann", "carrot")).await;
    let mut stream = stream.expect("admitted");
    let price = stream.message().await.expect("no error");
    // Ten coins per letter of `carrot`.
    assert_eq!(price.expect("a price").coins, 60);
    stream
}

async fn assert_refused(client: &mut Client) {
    let refused = client.now(ask("ann", "carrot")).await;
    assert_eq!(
        refused.expect_err("refused").code(),
        Code::ResourceExhausted
    );
}

#[tokio::test]
async fn a_client_that_is_killed_frees_its_permit() {
    let (_server, url) = server(&[("LIMIT", "1")]).await;
    let mut follower = command(&[&url, "ann", "follow"], &[]);
    let mut follower = follower.spawn().expect("it starts");
    let stdout = follower.stdout.take().expect("stdout is piped");
    let mut lines = BufReader::new(stdout).lines();
    let first = soon(lines.next_line()).await.expect("text");
    assert_eq!(first.as_deref(), Some("60 coins"));

    let mut client = client(&url).await;
    assert_refused(&mut client).await;
    soon(follower.kill()).await.expect("it runs");
    wait_until_admitted(&mut client, "ann").await;
}

#[tokio::test]
async fn two_servers_on_one_redis_share_an_account_s_permits() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", &*redis.url()), ("LIMIT", "2")];
    let (_one, here) = server(&settings).await;
    let (_two, there) = server(&settings).await;
    let (mut here, mut there) = (client(&here).await, client(&there).await);
    let _held = followed(&mut here).await;
    let held_there = followed(&mut there).await;
    assert_refused(&mut here).await;
    assert_refused(&mut there).await;
    drop(held_there);
    wait_until_admitted(&mut here, "ann").await;
}

#[tokio::test]
async fn clients_wait_for_each_other_and_none_is_refused() {
    let redis = RedisServer::start();
    let settings = [("REDIS_URL", &*redis.url())];
    // Without the limit, two clients with a dozen calls each would have 24 in flight.
    let (_server, url) = server(&[("LIMIT", "3")]).await;
    let asking = [(); 2].map(|()| {
        let client = command(&[&url, "ann"], &settings).spawn();
        client.expect("it starts").wait_with_output()
    });
    for client in asking {
        let output = soon(client).await.expect("it ends");
        assert!(output.status.success());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.starts_with("12 prices in "), "{text}");
    }
}
