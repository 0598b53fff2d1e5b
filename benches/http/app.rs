//! The apps under load: one handler, three ways to limit it, and an unlimited app that sends a limit's headers.

use axum::{Router, http::HeaderValue, response::Response, routing::get};
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;
use tower::{limit::GlobalConcurrencyLimitLayer, util::MapResponseLayer};
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, RedisSemaphore, Semaphore, key};

/// Higher than the number of requests in flight, so that none is refused.
const LIMIT: u32 = 1_000;

/// A running app.
pub(crate) struct App {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
}

/// Starts all apps. The first is axum alone, with which the others are compared.
pub(crate) async fn all(redis: &str) -> Vec<App> {
    let bare = || Router::new().route("/", get(|| async { "hello" }));
    let tower = GlobalConcurrencyLimitLayer::new(LIMIT as usize);
    // The two fields that our layer adds to a response.
    let fields = MapResponseLayer::new(|mut response: Response| {
        let quota = HeaderValue::from_static(r#""concurrency";q=1000;qu="concurrent-requests""#);
        let remaining = HeaderValue::from_static(r#""concurrency";r=999"#);
        response.headers_mut().append("ratelimit-policy", quota);
        response.headers_mut().append("ratelimit", remaining);
        response
    });
    let redis = RedisSemaphore::connect(redis)
        .await
        .expect("the server is there");
    vec![
        serve("axum alone", bare()).await,
        serve("tower::limit", bare().layer(tower)).await,
        serve("the two fields", bare().layer(fields)).await,
        serve("layer, memory", limited(bare(), MemorySemaphore::new())).await,
        serve("layer, Redis", limited(bare(), redis)).await,
    ]
}

fn limited(router: Router, semaphore: impl Semaphore) -> Router {
    let account = key::header("x-account-id");
    router.layer(ConcurrencyLimitLayer::new(LIMIT, account, semaphore))
}

async fn serve(name: &'static str, router: Router) -> App {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    App { name, address }
}
