//! Client certificates.

use super::{
    BOUND,
    authority::{Authority, Signed},
    blamed,
    client_list::{assert_all, clients_of_a_notified_waiter},
    refusal,
    secure_server::SecureServer,
};
use std::time::Duration;
use testing::{redis::RedisServer, wait::eventually};
use tower_semaphore::{
    RedisSemaphore,
    redis::{Builder, ConnectError, client::Client},
};

async fn strict_server() -> SecureServer {
    SecureServer::with("127.0.0.1", &["--tls-auth-clients", "yes"]).await
}

fn builder(server: &SecureServer) -> Builder {
    RedisSemaphore::builder().root_certificate(server.authority.certificate())
}

async fn connect(server: &SecureServer, own: Signed) -> Result<RedisSemaphore, ConnectError> {
    let builder = builder(server).lease(Duration::from_secs(60));
    let builder = builder.client_certificate(own.certificate, own.key);
    builder.connect(server.url()).await
}

/// A connection may end before the reason is read.
async fn refused(connect: impl AsyncFn() -> Result<RedisSemaphore, ConnectError>) {
    eventually("the reason is read", BOUND, async || {
        match connect().await {
            Err(ConnectError::Unavailable { .. }) => false,
            outcome => !refusal(outcome).is_empty(),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_connection_shows_the_client_certificate() {
    let mut server = strict_server().await;
    let own = server.authority.sign("client.example");
    let store = connect(&server, own).await.expect("it is let in");
    let clients = clients_of_a_notified_waiter(&store, &mut server.raw).await;
    assert_all(&clients, &[("laddr", &server.address)]);
}

#[tokio::test]
async fn without_a_client_certificate_a_server_that_requires_one_refuses() {
    let server = strict_server().await;
    refused(async || builder(&server).connect(server.url()).await).await;
}

#[tokio::test]
async fn a_client_certificate_of_another_authority_is_refused() {
    let server = strict_server().await;
    let own = Authority::new().sign("client.example");
    refused(async || connect(&server, own.clone()).await).await;
}

#[tokio::test]
async fn client_certificates_that_cannot_work_are_named() {
    let authority = Authority::new();
    let own = authority.sign("client.example");
    let key_of_another = authority.sign("client.example").key;
    for (certificate, key) in [
        (own.certificate.as_str(), key_of_another.as_str()),
        (&own.certificate, "not PEM"),
        ("not PEM", &own.key),
        (&own.key, &own.certificate),
    ] {
        let builder = RedisSemaphore::builder().client_certificate(certificate, key);
        let outcome = builder.connect("rediss://127.0.0.1:1/").await;
        assert_eq!(blamed(outcome), "client_certificate");
    }
}

#[tokio::test]
async fn a_supplied_connection_has_its_own_certificates() {
    let server = RedisServer::start();
    let client = Client::open(server.url()).expect("the URL is right");
    let connection = client.get_multiplexed_async_connection().await;
    let own = Authority::new().sign("client.example");
    let builder = RedisSemaphore::builder().client_certificate(own.certificate, own.key);
    let outcome = builder.with_connection(connection.expect("it connects"));
    assert_eq!(blamed(outcome), "client_certificate");
}

#[tokio::test]
async fn a_private_key_is_in_no_error_and_in_no_debug_output() {
    let server = SecureServer::start().await;
    let own = server.authority.sign("client.example");
    let secret = own.key.lines().nth(1).expect("it has lines").to_owned();
    let key_of_another = server.authority.sign("client.example").key;
    let builder = RedisSemaphore::builder().client_certificate(own.certificate, own.key.as_str());
    let wrong = RedisSemaphore::builder().client_certificate(key_of_another, own.key);
    let wrong = wrong.connect(server.url()).await.expect_err("they differ");
    let said = format!("{builder:?} {wrong:?} {}", super::causes(&wrong));
    assert!(
        !said.contains(&secret) && !said.contains("PRIVATE"),
        "{said}"
    );
}
