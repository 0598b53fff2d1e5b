//! The proxies of these tests forward requests, whole.

use crate::{
    client::{get, upload},
    proxy::{HaProxy, Nginx, Proxy},
};
use axum::{Router, extract::DefaultBodyLimit, routing};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::net::TcpListener;

/// A server that answers with its address, and with the length of an upload.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
    let listener = listener.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let name = async move || address.to_string();
    let length = async |body: String| body.len().to_string();
    let app = Router::new().route("/", routing::get(name).post(length));
    let app = app.layer(DefaultBodyLimit::disable());
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

async fn forwards(proxy: &Proxy, servers: &[SocketAddr]) {
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let answer = get(proxy.address(), "ann").await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", proxy.log());
        seen.insert(answer.body);
    }
    let servers = servers.iter().map(ToString::to_string);
    assert_eq!(seen, servers.collect());
    let answer = upload(proxy.address(), "ann", 5_000_000).await;
    assert_eq!(answer.expect("an answer").body, "5000000");
}

#[tokio::test]
async fn nginx_forwards_to_each_of_its_servers() {
    let servers = [server().await, server().await];
    let nginx = Nginx {
        servers: &servers,
        ..Nginx::default()
    };
    forwards(&nginx.start().await, &servers).await;
}

#[tokio::test]
#[ignore = "HAProxy is installed for the night only"]
async fn haproxy_forwards_to_each_of_its_servers() {
    let servers = [server().await, server().await];
    let haproxy = HaProxy {
        servers: &servers,
        ..HaProxy::default()
    };
    forwards(&haproxy.start().await, &servers).await;
}
