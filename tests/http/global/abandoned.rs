//! Unused readiness: outdated answers, lost permits, and idle services, which are alive but no longer polled.
//!
//! Promises: P1, P10, P11.

use super::inner::{BOUND, Limited, call, is_ready, limited, ok, one, read};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
    time::Duration,
};
use testing::{
    stubs::{Fickle, Flaky, Slow},
    wait::eventually,
};
use tokio::time::{advance, sleep, timeout};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, buffer::BufferLayer};
use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore, PermitLost};
use tower_test::mock;

/// Longer than a refusal stays valid.
const LATER: Duration = Duration::from_secs(5);

/// Longer than an abandoned service keeps a permit or a place in the queue. The layer probes its services by the real
/// clock.
const ABANDONED: Duration = Duration::from_millis(4_500);

/// Waits until the idle service has lost its permit.
async fn wait_until_free(memory: &MemorySemaphore) {
    eventually("it is free", BOUND, async || memory.busy_keys() == 0).await;
}

/// Polls a service until it is ready.
async fn poll_until_ready(service: Limited) -> Limited {
    let mut service = service.into_inner();
    let ready = timeout(BOUND, service.ready()).await;
    let Ok(_) = ready.expect("it is ready in time");
    mock::Spawn::new(service)
}

#[tokio::test(start_paused = true)]
async fn an_old_failure_is_not_returned_after_the_store_has_recovered() {
    let store = Flaky::default();
    let mut service = limited(&one(store.clone()));
    store.fail();
    assert!(is_ready(&mut service));
    store.recover();
    advance(LATER).await;
    assert_eq!(call(&mut service).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_failure_counts_for_a_service_that_is_polled_twice_before_its_call() {
    let store = Flaky::default();
    let mut service = limited(&one(store.clone()));
    store.fail();
    assert!(is_ready(&mut service));
    store.recover();
    assert_eq!(call(&mut service).await.status(), 503);
    assert_eq!(call(&mut service).await.status(), 200);
}

#[tokio::test]
async fn the_next_poll_replaces_a_lost_permit() {
    let store = Fickle::default();
    let mut service = limited(&one(store.clone()));
    assert!(is_ready(&mut service));
    let lost = store.token();
    store.lose();
    let answer = call(&mut service).await;
    assert_eq!(answer.status(), 200);
    assert!(store.token() > lost && store.is_held());
}

#[tokio::test]
async fn a_call_whose_permit_was_lost_since_the_poll_takes_another_if_there_is_room() {
    let store = Fickle::default();
    let mut service = limited(&one(store.clone()));
    assert!(is_ready(&mut service));
    let lost = store.token();
    store.lose();
    let Ok(answer) = service.call(Request::new(String::new())).await;
    assert_eq!(answer.status(), 200);
    assert!(store.token() > lost);
}

#[tokio::test]
async fn a_call_whose_permit_was_lost_since_the_poll_is_refused_with_503_without_room() {
    let store = Fickle::default();
    let mut service = limited(&one(store.clone()));
    assert!(is_ready(&mut service));
    store.lose();
    store.close();
    let Ok(answer) = service.call(Request::new(String::new())).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert!(answer.extensions().get::<PermitLost>().is_some());
}

/// A service under `load_shed` that has shed a call because the limit was reached.
async fn shed(layer: &GlobalConcurrencyLimitLayer) -> impl Sized + use<> {
    let mut service = ServiceBuilder::new()
        .load_shed()
        .layer(layer.clone())
        .service(ok());
    let ready = service.ready().await.expect("it sheds instead of waiting");
    let shed = ready.call(Request::new(String::new())).await;
    assert!(shed.is_err(), "there is no room");
    service
}

#[tokio::test]
async fn an_idle_service_that_was_shed_leaves_the_queue() {
    let store = Slow::default();
    let shedding = shed(&one(store.clone())).await;
    assert_eq!(store.waiting(), 1);
    eventually("it leaves the queue", BOUND, async || store.waiting() == 0).await;
    drop(shedding);
}

#[tokio::test]
async fn an_idle_service_that_was_shed_pins_no_permit() {
    let layer = one(MemorySemaphore::new());
    let mut holder = limited(&layer);
    let held = call(&mut holder).await;
    let _shedding = shed(&layer).await;
    drop(held);
    poll_until_ready(limited(&layer)).await;
}

#[tokio::test]
async fn a_service_that_is_ready_and_never_called_pins_no_permit() {
    let layer = one(MemorySemaphore::new());
    let mut idle = limited(&layer);
    assert!(is_ready(&mut idle));
    let mut other = poll_until_ready(limited(&layer)).await;
    let held = call(&mut other).await;

    let Ok(refused) = idle.call(Request::new(String::new())).await;
    assert_eq!(refused.status(), 503, "another service has its permit");
    assert!(refused.extensions().get::<PermitLost>().is_some());
    assert!(!is_ready(&mut idle), "the service has to wait again");
    drop(held);
    assert_eq!(call(&mut idle).await.status(), 200);
}

#[tokio::test]
async fn a_clone_whose_permit_was_reclaimed_is_served_if_there_is_room() {
    let memory = MemorySemaphore::new();
    let mut idle = mock::Spawn::new(one(memory.clone()).layer(ok()).clone());
    assert!(is_ready(&mut idle));
    wait_until_free(&memory).await;
    let Ok(answer) = idle.call(Request::new(String::new())).await;
    assert_eq!(read(answer).await, "ok");
}

#[tokio::test]
async fn a_task_that_waits_for_long_keeps_its_position() {
    let layer = one(MemorySemaphore::new());
    let mut holder = limited(&layer);
    let held = call(&mut holder).await;
    let first = tokio::spawn(poll_until_ready(limited(&layer)));
    // The first joins the queue.
    sleep(Duration::from_millis(1)).await;
    let second = tokio::spawn(async move {
        let service = limited(&layer).into_inner();
        service.oneshot(Request::new(String::new())).await
    });
    sleep(ABANDONED).await;
    assert!(!first.is_finished() && !second.is_finished());
    drop(held);
    let mut first = first.await.expect("the first is served first");
    assert!(!second.is_finished());
    drop(call(&mut first).await);
    second.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_request_in_a_buffer_keeps_its_position() {
    let store = Slow::default();
    let service = ServiceBuilder::new()
        .layer(BufferLayer::new(8))
        .layer(one(store.clone()))
        .service(ok());
    let request = tokio::spawn(service.oneshot(Request::new(String::new())));
    sleep(ABANDONED).await;
    assert_eq!((store.waiting(), store.acquires()), (1, 1));
    request.abort();
}

#[tokio::test]
async fn a_service_that_waits_for_the_inner_one_keeps_its_permit() {
    let memory = MemorySemaphore::new();
    let (service, mut handle) =
        mock::spawn_layer::<Request<String>, Response<Full<Bytes>>, _>(one(memory.clone()));
    handle.allow(0);
    let mut service = service.into_inner();
    let waiter = tokio::spawn(async move { service.ready().await.map(drop) });
    sleep(ABANDONED).await;
    assert_eq!(memory.busy_keys(), 1);
    handle.allow(1);
    waiter.await.unwrap().unwrap();
}

#[test]
fn an_idle_service_pins_no_permit_without_a_runtime_either() {
    let memory = MemorySemaphore::new();
    let mut idle = limited(&one(memory.clone()));
    assert!(is_ready(&mut idle));
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let waiting = builder.enable_time().build().expect("a runtime");
    waiting.block_on(wait_until_free(&memory));
}

/// The layer's probes end while it has no service.
#[tokio::test]
async fn a_layer_that_had_no_service_for_a_while_probes_again() {
    let memory = MemorySemaphore::new();
    let layer = one(memory.clone());
    assert!(is_ready(&mut limited(&layer)));
    // The layer probes once a second.
    sleep(Duration::from_millis(1_500)).await;
    let mut idle = limited(&layer);
    assert!(is_ready(&mut idle));
    wait_until_free(&memory).await;
}

#[tokio::test]
async fn a_waker_that_panics_ends_no_probes() {
    let store = Slow::default();
    let mut panicking = limited(&one(store.clone())).into_inner();
    let waker = Waker::from(Arc::new(Panicking));
    let polled =
        Service::<Request<String>>::poll_ready(&mut panicking, &mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    eventually("it leaves the queue", BOUND, async || store.waiting() == 0).await;
}

struct Panicking;

impl Wake for Panicking {
    fn wake(self: Arc<Self>) {
        panic!("planted: the waker panics");
    }
}

#[test]
fn it_works_without_a_runtime_too() {
    let memory = MemorySemaphore::new();
    let mut service = limited(&one(memory.clone()));
    let answer = futures_util::FutureExt::now_or_never(call(&mut service));
    assert_eq!(answer.expect("it is answered at once").status(), 200);
}
