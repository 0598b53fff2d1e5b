//! A process that is frozen as soon as it has answered, as cloud functions are.
//!
//! Promises: P4, P8.

use super::{BOUND, HELD};
use axum::{
    Router,
    body::Body,
    extract::{Extension, Request},
    middleware::{Next, from_fn},
    response::Response,
    routing::get,
};
use http_body_util::BodyExt;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, waitpid};
use std::env;
use testing::{
    child::child,
    http_requests::{limit, request},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::process::Command;
use tower::ServiceExt;
use tower_semaphore::{OnLost, Permit, RedisSemaphore};

const URL: &str = "REDIS_URL";

#[tokio::test]
async fn a_permit_that_is_released_before_the_response_is_free_when_the_process_is_frozen() {
    let server = RedisServer::start();
    let mut command = Command::from(child(module_path!(), "a_process_that_is_frozen"));
    let command = command.env(URL, server.url()).kill_on_drop(true);
    let frozen = command.spawn().expect("it starts");
    let pid = frozen.id().and_then(|pid| pid.try_into().ok());
    let pid = pid.and_then(Pid::from_raw).expect("a pid");
    eventually("it is frozen", BOUND, async || {
        let status = waitpid(Some(pid), WaitOptions::UNTRACED | WaitOptions::NOHANG);
        let status = status.expect("a child");
        status.is_some_and(|(_, status)| status.stopped())
    })
    .await;
    let mut raw = Raw::connect(server.port()).await;
    assert!(raw.zmembers(HELD).await.is_empty());
}

#[tokio::test]
#[ignore = "a process of its own, which the test above starts"]
async fn a_process_that_is_frozen() {
    let store = RedisSemaphore::connect(env::var(URL).expect("a URL")).await;
    let app = Router::new()
        .route("/", get("page"))
        .layer(from_fn(release))
        .layer(limit(1, store.expect("a server")).with_on_lost(OnLost::Abort));
    let Ok(response) = app.oneshot(request::<Body>("a")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.collect().await.expect("a body").to_bytes(), "page");
    kill_process(getpid(), Signal::STOP).expect("it is this one");
}

async fn release(Extension(permit): Extension<Permit>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    permit.release().await;
    response
}
