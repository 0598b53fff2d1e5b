//! Over TLS everything works as it does without.

use super::{
    BOUND, claim,
    client_list::{assert_all, clients_of_a_notified_waiter, others},
    secure_server::SecureServer,
    works,
};
use std::time::Duration;
use testing::{stores::connected, wait::eventually};
use tower_semaphore::{RedisSemaphore, Semaphore, redis::Builder};

fn builder(server: &SecureServer) -> Builder {
    RedisSemaphore::builder().root_certificate(server.authority.certificate())
}

async fn store(server: &SecureServer) -> RedisSemaphore {
    connected(async || builder(server).connect(server.url()).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_acquired_refreshed_and_released_over_tls() {
    let mut server = SecureServer::start().await;
    let builder = builder(&server).lease(Duration::from_secs(2));
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    let permit = store.acquire(claim()).await.expect("there is room");
    server.raw.reset_stats().await;
    eventually("it is refreshed", BOUND, async || {
        let stats = server.raw.commandstats().await;
        stats.get("evalsha").is_some_and(|calls| *calls >= 2)
    })
    .await;
    let clients = others(&mut server.raw).await;
    assert_all(&clients, &[("laddr", &server.address)]);
    assert!(permit.release().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_notified_over_tls() {
    let mut server = SecureServer::start().await;
    let builder = builder(&server).lease(Duration::from_secs(60));
    let store = connected(async || builder.clone().connect(server.url()).await).await;
    let clients = clients_of_a_notified_waiter(&store, &mut server.raw).await;
    assert_all(&clients, &[("laddr", &server.address)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_reconnects_over_tls() {
    let mut server = SecureServer::start().await;
    let store = store(&server).await;
    works(&store).await;
    for client in others(&mut server.raw).await {
        server
            .raw
            .cmd(&["CLIENT", "KILL", "ID", &client["id"]])
            .await;
    }
    eventually("it serves again", BOUND, async || {
        store.acquire(claim()).await.is_ok()
    })
    .await;
    let clients = others(&mut server.raw).await;
    assert_all(&clients, &[("laddr", &server.address)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_only_tls_1_2_is_served() {
    let args = ["--tls-auth-clients", "no", "--tls-protocols", "TLSv1.2"];
    let server = SecureServer::with("127.0.0.1", &args).await;
    works(&store(&server).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_a_password_and_a_database_work_over_tls() {
    let mut server = SecureServer::start().await;
    let rule = [
        "ACL", "SETUSER", "ann", "on", ">secret", "~*", "&*", "+@all",
    ];
    server.raw.cmd(&rule).await;
    let url = format!("rediss://ann:secret@{}/3", server.address);
    let store = connected(async || builder(&server).connect(&*url).await).await;
    works(&store).await;
    let clients = others(&mut server.raw).await;
    assert_all(&clients, &[("user", "ann"), ("db", "3")]);
}
