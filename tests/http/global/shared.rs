//! Services in several processes that share one limit.
//!
//! Promises: P1.

use super::inner::{BOUND, read};
use http::{Request, Response};
use std::{
    convert::Infallible,
    future::{Ready, ready},
};
use testing::{
    redis::RedisServer,
    resp::Raw,
    script::{Script, Step::Data},
    wait::eventually,
};
use tokio::{task::JoinHandle, time::timeout};
use tower::{
    Layer, Service, ServiceBuilder, ServiceExt, load_shed::error::Overloaded, service_fn,
    util::ServiceFn,
};
use tower_semaphore::{
    GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer, RedisSemaphore, ResponseBody,
};

const QUEUE: &str = "semaphore:2:{concurrency:host}:queue";

/// A response that holds its permit until its body is read or dropped. The body reports its end only after its first
/// frame, so the permit is not released before the head.
type Answer = Response<ResponseBody<Script>>;

type Answered = Ready<Result<Response<Script>, Infallible>>;
type OkService = ServiceFn<fn(Request<String>) -> Answered>;

/// Answers every request with the same two bytes.
fn ok() -> OkService {
    service_fn(|_| ready(Ok(Response::new(Script::stream([Data("ok")])))))
}

/// A layer over a separate store, as in another process.
async fn layer(limit: u32, server: &RedisServer) -> GlobalConcurrencyLimitLayer {
    let store = RedisSemaphore::connect(server.url()).await;
    GlobalConcurrencyLimitLayer::new(limit, "host", store.expect("it connects"))
}

async fn call(mut service: GlobalConcurrencyLimit<OkService>) -> Answer {
    let ready = timeout(BOUND, service.ready()).await;
    let Ok(service) = ready.expect("it is ready in time");
    let Ok(answer) = service.call(Request::new(String::new())).await;
    answer
}

/// Spawns a request and returns once it waits in the queue.
async fn waiter(
    service: &GlobalConcurrencyLimit<OkService>,
    server: &RedisServer,
) -> JoinHandle<Answer> {
    let waiter = tokio::spawn(call(service.clone()));
    let mut raw = Raw::connect(server.port()).await;
    eventually("it waits", BOUND, async || {
        raw.zmembers(QUEUE).await.len() == 1
    })
    .await;
    waiter
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_here_makes_a_service_ready_there() {
    let server = RedisServer::start();
    let here = layer(1, &server).await.layer(ok());
    let there = layer(1, &server).await.layer(ok());
    let held = call(here.clone()).await;
    let waiter = waiter(&there, &server).await;
    assert!(!waiter.is_finished());
    assert_eq!(read(held).await, "ok");
    assert_eq!(waiter.await.unwrap().status(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_makes_waiting_services_ready_to_refuse() {
    let mut server = RedisServer::start();
    let service = layer(1, &server).await.layer(ok());
    let _held = call(service.clone()).await;
    let waiter = waiter(&service, &server).await;
    server.kill();
    let refused = timeout(BOUND, waiter).await.expect("the waiter is refused");
    assert_eq!(refused.unwrap().status(), 503);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_poll_is_shed_because_an_acquire_takes_a_round_trip() {
    let server = RedisServer::start();
    let limit = layer(1, &server).await;
    let mut service = ServiceBuilder::new().load_shed().layer(limit).service(ok());
    // Stops the server so that the round trip outlasts the poll, however busy the machine is.
    server.stop();
    let shed = service.clone().oneshot(Request::new(String::new())).await;
    server.cont();
    assert!(shed.expect_err("no answer has come").is::<Overloaded>());
    eventually("the same service is ready later", BOUND, async || {
        let service = service.ready().await.expect("it never fails");
        service.call(Request::new(String::new())).await.is_ok()
    })
    .await;
}
