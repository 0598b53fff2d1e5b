//! Unused readiness: answers that are out of date, permits that were lost, and services that are
//! idle: alive, but not polled any more.

use super::inner::{BOUND, Limited, call, is_ready, limited, ok, one, read};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use std::time::Duration;
use testing::stubs::{Fickle, Flaky, Slow};
use tokio::time::{advance, sleep, timeout};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, buffer::BufferLayer};
use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore, PermitLost};
use tower_test::mock;

/// Longer than a refusal counts.
const LATER: Duration = Duration::from_secs(5);

/// Longer than an abandoned service holds anything.
const ABANDONED: Duration = Duration::from_secs(10);

/// Polls a service in a task of its own until it is ready.
async fn becomes_ready(service: Limited) -> Limited {
    let mut service = service.into_inner();
    let ready = timeout(BOUND, service.ready()).await;
    let Ok(_) = ready.expect("it is ready in time");
    mock::Spawn::new(service)
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_over_is_not_answered_later() {
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
async fn a_permit_that_was_lost_is_acquired_anew_by_the_next_poll() {
    let store = Fickle::default();
    let mut service = limited(&one(store.clone()));
    assert!(is_ready(&mut service));
    let lost = store.token();
    store.lose();
    let answer = call(&mut service).await;
    assert_eq!(answer.status(), 200);
    assert!(store.token() > lost && store.is_out());
}

#[tokio::test]
async fn a_call_whose_permit_was_lost_since_the_poll_takes_another_if_there_is_room() {
    let store = Fickle::default();
    let mut service = limited(&one(store.clone()));
    assert!(is_ready(&mut service));
    let lost = store.token();
    store.lose();
    let Ok(answer) = service.call(Request::new(())).await;
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
    let Ok(answer) = service.call(Request::new(())).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert!(answer.extensions().get::<PermitLost>().is_some());
}

/// A service under `load_shed` that has shed a call, because there was no room.
async fn shed(layer: &GlobalConcurrencyLimitLayer) -> impl Sized + use<> {
    let mut service = ServiceBuilder::new()
        .load_shed()
        .layer(layer.clone())
        .service(ok());
    let ready = service.ready().await.expect("it sheds instead of waiting");
    let shed = ready.call(Request::new(())).await;
    assert!(shed.is_err(), "there is no room");
    service
}

#[tokio::test(start_paused = true)]
async fn an_idle_service_that_was_shed_leaves_the_queue() {
    let memory = MemorySemaphore::new();
    let layer = one(memory.clone());
    let mut holder = limited(&layer);
    let held = call(&mut holder).await;
    let shedding = shed(&layer).await;

    sleep(ABANDONED).await;
    drop(held);
    let next = limited(&layer).into_inner().oneshot(Request::new(()));
    let Ok(next) = timeout(BOUND, next)
        .await
        .expect("it is at the head of the queue");
    assert_eq!(next.status(), 200);
    drop(next);
    assert_eq!(memory.busy_keys(), 0);
    drop(shedding);
}

#[tokio::test(start_paused = true)]
async fn an_idle_service_that_was_shed_pins_no_permit() {
    let layer = one(MemorySemaphore::new());
    let mut holder = limited(&layer);
    let held = call(&mut holder).await;
    let _shedding = shed(&layer).await;
    drop(held);
    becomes_ready(limited(&layer)).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_ready_and_never_called_pins_no_permit() {
    let layer = one(MemorySemaphore::new());
    let mut idle = limited(&layer);
    assert!(is_ready(&mut idle));
    let mut other = becomes_ready(limited(&layer)).await;
    let held = call(&mut other).await;

    let Ok(refused) = idle.call(Request::new(())).await;
    assert_eq!(refused.status(), 503, "its permit is another's by now");
    assert!(refused.extensions().get::<PermitLost>().is_some());
    assert!(!is_ready(&mut idle), "the service has to wait again");
    drop(held);
    assert_eq!(call(&mut idle).await.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_permit_was_reclaimed_is_served_if_there_is_room() {
    let memory = MemorySemaphore::new();
    let mut idle = limited(&one(memory.clone()));
    assert!(is_ready(&mut idle));
    sleep(ABANDONED).await;
    assert_eq!(memory.busy_keys(), 0);
    let Ok(answer) = idle.call(Request::new(())).await;
    assert_eq!(read(answer).await, "ok");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_long_keeps_its_position() {
    let layer = one(MemorySemaphore::new());
    let mut holder = limited(&layer);
    let held = call(&mut holder).await;
    let first = tokio::spawn(becomes_ready(limited(&layer)));
    sleep(Duration::from_millis(1)).await;
    let second = tokio::spawn(async move {
        let service = limited(&layer).into_inner();
        service.oneshot(Request::new(())).await
    });
    // Shorter than the bound of the first.
    sleep(BOUND - Duration::from_secs(1)).await;
    assert!(!first.is_finished() && !second.is_finished());
    drop(held);
    let mut first = first.await.expect("the first is served first");
    assert!(!second.is_finished());
    drop(call(&mut first).await);
    second.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_in_a_buffer_keeps_its_position_for_a_minute() {
    let store = Slow::default();
    let service = ServiceBuilder::new()
        .layer(BufferLayer::new(8))
        .layer(one(store.clone()))
        .service(ok());
    let request = tokio::spawn(service.oneshot(Request::new(())));
    sleep(Duration::from_secs(60)).await;
    assert_eq!((store.waiting(), store.acquires()), (1, 1));
    request.abort();
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_the_inner_one_keeps_its_permit() {
    let memory = MemorySemaphore::new();
    let (service, mut handle) =
        mock::spawn_layer::<Request<()>, Response<Full<Bytes>>, _>(one(memory.clone()));
    handle.allow(0);
    let mut service = service.into_inner();
    let waiter = tokio::spawn(async move { service.ready().await.map(drop) });
    for _ in 0..60 {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(memory.busy_keys(), 1);
    }
    handle.allow(1);
    waiter.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clone_is_probed_although_its_original_is_gone() {
    let memory = MemorySemaphore::new();
    let layer = GlobalConcurrencyLimitLayer::new(1, "host", memory.clone());
    let original = layer.layer(ok());
    let mut idle = mock::Spawn::new(original.clone());
    drop(original);
    assert!(is_ready(&mut idle));
    sleep(ABANDONED).await;
    assert_eq!(memory.busy_keys(), 0);
}

#[test]
fn probes_go_on_in_another_runtime_when_the_first_has_ended() {
    let memory = MemorySemaphore::new();
    let layer = one(memory.clone());
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build();
        runtime.expect("a runtime")
    };
    let mut idle = limited(&layer);
    runtime().block_on(async { assert!(is_ready(&mut limited(&layer))) });
    runtime().block_on(async {
        assert!(is_ready(&mut idle));
        sleep(ABANDONED).await;
    });
    assert_eq!(memory.busy_keys(), 0);
}

#[test]
fn it_works_without_a_runtime_too() {
    let memory = MemorySemaphore::new();
    let mut service = limited(&one(memory.clone()));
    let answer = futures_util::FutureExt::now_or_never(call(&mut service));
    assert_eq!(answer.expect("it is answered at once").status(), 200);
}
