//! The example `market` over TLS, with a private authority.

use super::secure_server::SecureServer;
use std::process::Stdio;
use testing::example::{address, command};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The first line of the answer to a request of `ann`.
async fn status(url: &str) -> String {
    let address = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    let request = "GET /market HTTP/1.1\r\nhost: market\r\nx-account-id: ann\r\n\
                   connection: close\r\n\r\n";
    socket
        .write_all(request.as_bytes())
        .await
        .expect("it is sent");
    let mut answer = String::new();
    socket
        .read_to_string(&mut answer)
        .await
        .expect("it is text");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_market_trusts_the_authority_that_it_is_told() {
    let mut server = SecureServer::start().await;
    let authority = server.authority_file();
    let authority = authority.to_str().expect("it is text");
    let url = server.url();
    let settings = [("REDIS_URL", &*url), ("REDIS_CA", authority), ("PORT", "0")];
    let mut market = command("market", &settings);
    let mut market = market.stdout(Stdio::piped()).spawn().expect("it starts");
    let market_url = address(&mut market).await;
    assert_eq!(status(&market_url).await, "HTTP/1.1 200 OK");
    let clients = server.raw.cmd(&["KEYS", "semaphore:*"]).await;
    assert!(!clients.array().is_empty(), "the permits are elsewhere");
}

#[tokio::test]
async fn a_market_trusts_no_authority_that_it_was_not_told() {
    let server = SecureServer::start().await;
    let url = server.url();
    let mut market = command("market", &[("REDIS_URL", &*url), ("PORT", "0")]);
    let output = market.output().await.expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.starts_with("REDIS_URL: "),
        "{said}"
    );
}
