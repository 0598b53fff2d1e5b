//! An outage as a client and a handler see it.
//!
//! Promises: P18, P19.

use crate::server::store;
use http::{Request, Response, StatusCode};
use std::convert::Infallible;
use testing::{
    http_requests::{limit, request},
    redis::RedisServer,
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Permit, redis::WhenUnavailable};

/// Answers with a header that shows if the request's permit is degraded.
async fn handler(request: Request<String>) -> Result<Response<String>, Infallible> {
    let permit: &Permit = request.extensions().get().expect("the layer puts it there");
    let response = Response::builder().header("degraded", permit.is_degraded().to_string());
    Ok(response.body("body".to_owned()).expect("it is valid"))
}

/// The status codes of two requests during an outage, under a limit of two.
async fn answers(policy: WhenUnavailable) -> [StatusCode; 2] {
    let mut server = RedisServer::start();
    let layer = limit(2, store(&server, policy).await);
    let mut service = layer.layer(service_fn(handler));
    let mut call = async |is_degraded: bool| {
        let service = service.ready().await.expect("it is always ready");
        let Ok(response) = service.call(request("a")).await;
        let (is_admitted, fields) = (response.status() == 200, response.headers());
        assert_eq!(fields.contains_key("ratelimit"), is_admitted);
        let is_right = fields
            .get("degraded")
            .map(|value| value == &*is_degraded.to_string());
        assert_eq!(is_right, is_admitted.then_some(true));
        response
    };
    assert_eq!(call(false).await.status(), 200);
    server.kill();
    let (first, second) = (call(true).await, call(true).await);
    [first.status(), second.status()]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_request_is_answered_with_503_and_an_admitted_one_with_200() {
    assert_eq!(answers(WhenUnavailable::Refuse).await, [503, 503]);
    assert_eq!(answers(WhenUnavailable::Admit).await, [200, 200]);
    // The process's own share is one, and the first response holds it.
    assert_eq!(
        answers(WhenUnavailable::ShareOf { fraction: 0.5 }).await,
        [200, 503]
    );
}
