//! A service is ready only while it holds a permit.
//!
//! Promises: P1, P12.

use super::inner::{call, is_ready, limited, one, read};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::task::Poll;
use tower::{Layer, Service};
use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore, Permit};
use tower_test::mock::{self, Spawn};

#[tokio::test]
async fn no_more_services_are_ready_than_the_limit_however_often_they_are_polled() {
    let layer = GlobalConcurrencyLimitLayer::new(3, "host", MemorySemaphore::new());
    let mut services = [(); 4].map(|()| limited(&layer));
    for _ in 0..3 {
        assert_eq!(services.each_mut().map(is_ready), [true, true, true, false]);
    }
}

#[tokio::test]
async fn it_is_ready_again_when_the_body_has_ended_and_not_before() {
    let layer = one(MemorySemaphore::new());
    let (mut first, mut second) = (limited(&layer), limited(&layer));
    let answer = call(&mut first).await;
    assert_eq!(answer.headers()["ratelimit"], r#""concurrency";r=0"#);
    assert!(!is_ready(&mut second) && !second.is_woken());

    let mut body = answer.into_body();
    body.frame().await.expect("a frame").expect("no error");
    assert!(second.is_woken(), "the last frame was read");
    assert_eq!(read(call(&mut second).await).await, "ok");
    drop(body);
}

#[tokio::test]
#[should_panic(expected = "called before it was ready")]
async fn a_second_call_without_a_poll_panics() {
    let mut service = limited(&one(MemorySemaphore::new()));
    let _answer = call(&mut service).await;
    drop(service.call(Request::new(String::new())));
}

#[tokio::test]
#[should_panic(expected = "called before it was ready")]
async fn a_call_of_a_service_that_waits_panics() {
    let layer = one(MemorySemaphore::new());
    let (mut first, mut second) = (limited(&layer), limited(&layer));
    assert!(is_ready(&mut first) && !is_ready(&mut second));
    drop(second.call(Request::new(String::new())));
}

#[tokio::test]
async fn a_dropped_service_releases_its_permit_or_leaves_the_queue() {
    let memory = MemorySemaphore::new();
    let layer = one(memory.clone());
    let mut services = [(); 3].map(|()| limited(&layer));
    assert_eq!(services.each_mut().map(is_ready), [true, false, false]);
    let [first, second, mut third] = services;
    drop(second);
    drop(first);
    assert!(is_ready(&mut third));
    drop(third);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_clone_holds_no_permit() {
    let memory = MemorySemaphore::new();
    let mut service = limited(&one(memory.clone()));
    assert!(is_ready(&mut service));
    let mut clone = Spawn::new(service.get_ref().clone());
    assert!(!is_ready(&mut clone));
    drop(clone);
    assert_eq!(
        memory.busy_keys(),
        1,
        "the clone has released the permit of its original"
    );
    call(&mut service).await;
}

#[tokio::test]
async fn services_become_ready_in_the_order_of_their_polls() {
    let layer = one(MemorySemaphore::new());
    let mut services = [(); 5].map(|()| limited(&layer));
    let mut answer = call(&mut services[0]).await;
    for service in &mut services[1..] {
        assert!(!is_ready(service));
    }
    for next in 1..5 {
        drop(answer);
        // Earlier services may have been woken before, but no later one.
        let woken = services.each_mut().map(|service| service.is_woken());
        assert_eq!(woken.iter().rposition(|woken| *woken), Some(next));
        answer = call(&mut services[next]).await;
    }
}

#[tokio::test]
async fn two_policies_and_two_keys_share_nothing() {
    let memory = MemorySemaphore::new();
    let other = GlobalConcurrencyLimitLayer::new(1, "other", memory.clone());
    let mut first = limited(&one(memory.clone()));
    let mut second = limited(&one(memory).with_policy("market"));
    assert!(is_ready(&mut first) && is_ready(&mut limited(&other)));
    let answer = call(&mut second).await;
    assert_eq!(answer.headers()["ratelimit"], r#""market";r=0"#);
}

#[tokio::test]
async fn it_is_not_ready_before_the_inner_service_is() {
    let (mut service, mut handle) =
        mock::spawn_layer::<Request<String>, Response<Full<Bytes>>, _>(one(MemorySemaphore::new()));
    handle.allow(0);
    assert!(service.poll_ready().is_pending());
    handle.allow(1);
    assert!(service.is_woken());
    assert!(service.poll_ready().is_ready());
    handle.send_error("on purpose");
    let Poll::Ready(Err(error)) = service.poll_ready() else {
        panic!("the inner service's error is held back");
    };
    assert_eq!(error.to_string(), "on purpose");
}

#[tokio::test]
async fn the_permit_is_in_the_request() {
    let seen = tower::service_fn(|request: Request<String>| {
        let permit: Option<Permit> = request.extensions().get().cloned();
        let token = permit.and_then(|permit| permit.token()).unwrap_or_default();
        async move { Ok::<_, std::convert::Infallible>(Response::new(Full::from(token.to_string()))) }
    });
    let mut service = one(MemorySemaphore::new()).layer(seen);
    tower::ServiceExt::ready(&mut service).await.unwrap();
    let answer = service.call(Request::new(String::new())).await.unwrap();
    assert_ne!(read(answer).await, "0");
}
