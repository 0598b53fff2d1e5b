//! The proxies that the other tests use forward complete requests to all of their servers.
//!
//! Promises: none.

use crate::{
    client::{Client, Framing, get, head},
    proxy::{HaProxy, Nginx, Proxy},
    service::Service,
};
use axum::{middleware::map_response, response::Response};
use http::HeaderValue;
use std::{collections::BTreeSet, future::ready};

/// A service whose responses carry its name.
async fn start(name: &'static str) -> Service {
    let name = HeaderValue::from_static(name);
    let add = map_response(move |mut response: Response| {
        response.headers_mut().insert("x-name", name.clone());
        ready(response)
    });
    Service::with(|routes| routes.layer(add)).await
}

async fn start_two() -> [Service; 2] {
    [start("one").await, start("two").await]
}

/// Asserts that a proxy forwards requests to both services, and a large upload as a whole.
async fn assert_forwards(proxy: &Proxy) {
    // A proxy takes its servers in turns, so a few requests reach both.
    let mut seen = BTreeSet::new();
    for _ in 0..8 {
        let answer = get(proxy.address(), "ann").await.expect("an answer");
        assert_eq!(answer.status, 200, "{}", proxy.log());
        seen.insert(answer.header("x-name").map(str::to_owned));
    }
    let both = ["one", "two"].map(|name| Some(name.to_owned()));
    assert_eq!(seen, both.into());
    let mut client = Client::connect(proxy.address()).await;
    let sent = client.write(&head("POST", "/", "ann")).await;
    sent.expect("it is read");
    let sent = client.write_body(Framing::Length, 5_000_000).await;
    sent.expect("it is read");
    assert_eq!(client.read().await.expect("an answer").body, "5000000");
}

#[tokio::test]
#[ignore = "for the night"]
async fn nginx_forwards_to_each_of_its_servers() {
    let services = start_two().await;
    let servers = services.each_ref().map(|service| service.address);
    let nginx = Nginx {
        servers: &servers,
        ..Nginx::default()
    };
    assert_forwards(&nginx.start().await).await;
}

#[tokio::test]
#[ignore = "for the night"]
async fn haproxy_forwards_to_each_of_its_servers() {
    let services = start_two().await;
    let servers = services.each_ref().map(|service| service.address);
    let haproxy = HaProxy {
        servers: &servers,
        ..HaProxy::default()
    };
    assert_forwards(&haproxy.start().await).await;
}
