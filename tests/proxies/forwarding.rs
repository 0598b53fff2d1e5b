//! The proxies of these tests forward complete requests.
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
async fn named(name: &'static str) -> Service {
    let name = HeaderValue::from_static(name);
    let add = map_response(move |mut response: Response| {
        response.headers_mut().insert("x-name", name.clone());
        ready(response)
    });
    Service::with(|routes| routes.layer(add)).await
}

async fn two() -> [Service; 2] {
    [named("one").await, named("two").await]
}

async fn forwards_to_one_and_two(proxy: &Proxy) {
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
    let services = two().await;
    let servers = services.each_ref().map(|service| service.address);
    let nginx = Nginx {
        servers: &servers,
        ..Nginx::default()
    };
    forwards_to_one_and_two(&nginx.start().await).await;
}

#[tokio::test]
#[ignore = "for the night"]
async fn haproxy_forwards_to_each_of_its_servers() {
    let services = two().await;
    let servers = services.each_ref().map(|service| service.address);
    let haproxy = HaProxy {
        servers: &servers,
        ..HaProxy::default()
    };
    forwards_to_one_and_two(&haproxy.start().await).await;
}
