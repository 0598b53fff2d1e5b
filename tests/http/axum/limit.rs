//! Five requests of an account are admitted and the sixth is refused.
//!
//! Promises: P1.

use super::{
    client::{BOTH, Client, read},
    server::Server,
};
use futures_util::future::join_all;
use http::StatusCode;
use testing::ledger::Page;

#[tokio::test]
async fn forty_clients_that_try_again_are_all_served_and_five_at_a_time() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        join_all((0..40).map(|_| insist(client.clone()))).await;
        let all = Page {
            granted: 40,
            returned: 40,
            most: 5,
        };
        assert_eq!(server.page(), all);
        assert_eq!(server.witness.most(), 5);
    }
}

/// Sends requests until one is admitted.
async fn insist(client: Client) {
    loop {
        let response = client.get("/witnessed").await;
        let status = response.status();
        let (body, _) = read(response).await;
        if status == StatusCode::OK {
            return assert_eq!(body, "frame".repeat(5));
        }
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn items_of_one_route_share_its_limit() {
    use axum::{Router, routing::get};
    use tower::ServiceExt;
    use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

    let item = || async {
        axum::body::Body::from_stream(futures_util::stream::pending::<
            Result<bytes::Bytes, std::io::Error>,
        >())
    };
    let limit = ConcurrencyLimitLayer::new(1, key::matched_path(), MemorySemaphore::new());
    let routes: Router = Router::new()
        .route("/items/{id}", get(item))
        .route("/all", get(item));
    let app = routes.layer(limit);
    let get = async |path: &str| {
        let request = http::Request::get(path).body(axum::body::Body::empty());
        let Ok(response) = app.clone().oneshot(request.expect("a path")).await;
        response
    };
    let held = [get("/items/1").await, get("/all").await];
    assert!(held.iter().all(|response| response.status() == 200));
    assert_eq!(get("/items/2").await.status(), 429);
    assert_eq!(get("/nowhere").await.status(), 404);
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn a_router_under_test_counts_by_the_address_that_is_mocked() {
    use axum::{Router, extract::connect_info::MockConnectInfo, routing::get};
    use std::net::SocketAddr;
    use tower::ServiceExt;
    use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};

    let memory = MemorySemaphore::new();
    let status = async |peer: [u8; 4]| {
        let limit = ConcurrencyLimitLayer::new(1, key::peer_ip(), memory.clone());
        let app: Router = Router::new().route("/", get(|| async { "items" }));
        let app = app
            .layer(limit)
            .layer(MockConnectInfo(SocketAddr::from((peer, 4_711))));
        let request = http::Request::get("/").body(axum::body::Body::empty());
        let Ok(response) = app.oneshot(request.expect("a path")).await;
        (response.status().as_u16(), response)
    };
    let (first, _held) = status([192, 0, 2, 7]).await;
    assert_eq!(first, 200);
    assert_eq!(status([192, 0, 2, 7]).await.0, 429);
    assert_eq!(status([192, 0, 2, 8]).await.0, 200);
}
