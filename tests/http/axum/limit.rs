//! Five requests of an account, and the sixth.

use super::{
    client::{BOTH, Client, read},
    server::Server,
};
use futures_util::future::join_all;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;
use std::time::Duration;
use testing::ledger::Page;
use tower_semaphore::{ConcurrencyLimitLayer, OnLost};

#[tokio::test]
async fn the_sixth_request_is_refused_with_the_fields_and_a_problem() {
    for http in BOTH {
        let server = Server::start().await;
        let client = Client::new(http, &server);
        let five = client.five().await;
        assert!(five.iter().all(|response| response.status() == 200));
        let sixth = client.get("/full").await;
        assert_eq!(sixth.status(), StatusCode::TOO_MANY_REQUESTS);
        let told = sixth.headers()["retry-after"].to_str().expect("digits");
        let left = format!(r#""concurrency";r=0;t={told}"#);
        assert_eq!(sixth.headers()["ratelimit"], left);
        let (body, _) = read(sixth).await;
        let problem: Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!(problem["status"], 429);
        assert_eq!(server.page().granted, 5);
    }
}

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

#[tokio::test]
async fn a_client_sees_that_a_response_was_aborted() {
    for http in BOTH {
        let max_hold = Duration::from_millis(50);
        let abort = |layer: ConcurrencyLimitLayer<_>| {
            layer.with_max_hold(max_hold).with_on_lost(OnLost::Abort)
        };
        let mut server = Server::start_with(abort).await;
        let response = Client::new(http, &server).get("/stream").await;
        let _feed = server.feed().await;
        assert!(response.into_body().collect().await.is_err());
        assert_eq!(server.held(), 0);
    }
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn items_of_one_route_share_its_limit() {
    use axum::{Router, routing::get};
    use tower::ServiceExt;
    use tower_semaphore::{MemorySemaphore, key};

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
