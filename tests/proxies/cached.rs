//! A shared cache in front of a service stores no refusal.
//!
//! Promises: P21.

use crate::{
    client::{FULL, get, head, send},
    proxy::{Nginx, Proxy},
    service::{Service, layer},
};
use axum::response::IntoResponse;
use std::net::SocketAddr;

/// An nginx that caches each response with status 200, and any response that allows caching itself.
async fn caching(service: SocketAddr) -> Proxy {
    let nginx = Nginx {
        servers: &[service],
        http: "proxy_cache_path cache keys_zone=pages:1m;",
        location: "proxy_cache pages;
            proxy_cache_key $uri;
            proxy_cache_valid 200 10m;",
        ..Nginx::default()
    };
    nginx.start().await
}

#[tokio::test]
#[ignore = "for the night"]
async fn a_refused_get_that_looks_like_grpc_is_not_cached_for_others() {
    let service = Service::start().await;
    let nginx = caching(service.address).await;
    let full = head("GET", "/", FULL);
    let nameless = full.replace("x-account-id", "x-other");
    for kind in ["application/grpc", "application/grpc-web+proto"] {
        for (head, status) in [(&nameless, 400), (&full, 429)] {
            let call = format!("{head}content-type: {kind}\r\nte: trailers\r\n");
            let answer = send(nginx.address(), &call).await.expect("an answer");
            assert_eq!(answer.status, status);
            assert_eq!(answer.header("cache-control"), Some("no-store"));
        }
    }
    let page = get(nginx.address(), "ann").await.expect("an answer");
    assert_eq!((page.status, page.body.as_str()), (200, "page"));
    drop(service);
    let cached = get(nginx.address(), "ann").await.expect("an answer");
    assert_eq!(cached.body, "page", "the cache works");
}

#[tokio::test]
#[ignore = "for the night"]
async fn a_refusal_with_status_200_is_not_cached_for_others() {
    let service = Service::with(|routes| {
        let layer = layer().with_rejection(|_| "come back later".to_owned().into_response());
        routes.layer(layer)
    })
    .await;
    let nginx = caching(service.address).await;
    let refused = get(nginx.address(), FULL).await.expect("an answer");
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (200, "come back later")
    );
    let page = get(nginx.address(), "ann").await.expect("an answer");
    assert_eq!(page.body, "page");
}
