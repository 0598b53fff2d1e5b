//! What a client sees, and a handler.

use crate::server::store;
use http::{Request, Response, StatusCode};
use std::convert::Infallible;
use testing::{
    http_requests::{limit, request},
    redis::RedisServer,
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Permit, redis::WhenUnavailable};

/// Answers with the state of the request's permit.
async fn handler(request: Request<String>) -> Result<Response<String>, Infallible> {
    let permit: &Permit = request.extensions().get().expect("the layer puts it there");
    let state = if permit.is_degraded() {
        "degraded"
    } else {
        "granted"
    };
    Ok(Response::new(state.to_owned()))
}

async fn answers(policy: WhenUnavailable) -> [StatusCode; 2] {
    let mut server = RedisServer::start();
    let layer = limit(2, store(&server, policy).await);
    let mut service = layer.layer(service_fn(handler));
    let mut call = async || {
        let service = service.ready().await.expect("it is always ready");
        let Ok(response) = service.call(request("a")).await;
        response
    };
    let well = call().await;
    assert_eq!(well.status(), 200);
    drop(well);
    server.kill();
    let (first, second) = (call().await, call().await);
    let has_field = first.headers().contains_key("ratelimit");
    assert_eq!(has_field, first.status() == 200);
    [first.status(), second.status()]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_is_answered_with_503_and_an_admitted_one_with_200() {
    assert_eq!(answers(WhenUnavailable::Refuse).await, [503, 503]);
    assert_eq!(answers(WhenUnavailable::Admit).await, [200, 200]);
    // Its own share is one, and the first response holds it.
    assert_eq!(answers(WhenUnavailable::ShareOf(0.5)).await, [200, 503]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_finds_out_that_its_permit_is_degraded() {
    let mut server = RedisServer::start();
    let layer = limit(2, store(&server, WhenUnavailable::Admit).await);
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = seen.clone();
    let mut service = layer.layer(service_fn(move |request: Request<String>| {
        let permit = request.extensions().get::<Permit>().cloned();
        log.lock()
            .expect("no test panics")
            .push(permit.map(|permit| permit.is_degraded()));
        handler(request)
    }));
    let mut call = async || {
        let service = service.ready().await.expect("it is always ready");
        service.call(request("a")).await
    };
    drop(call().await);
    server.kill();
    drop(call().await);
    assert_eq!(
        *seen.lock().expect("no test panics"),
        [Some(false), Some(true)]
    );
}
