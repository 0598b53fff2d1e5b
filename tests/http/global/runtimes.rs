//! One layer in several runtimes.
//!
//! Promises: P1, P10.

use super::inner::{is_ready, limited, one};
use http::Request;
use std::time::Duration;
use testing::wait::eventually;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tower::ServiceExt;
use tower_semaphore::MemorySemaphore;

/// Longer than it takes to detect an abandoned service.
const BOUND: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime")
}

#[test]
fn a_service_that_waited_in_a_runtime_that_has_ended_goes_on_in_another() {
    let layer = one(MemorySemaphore::new()).with_wait(BOUND);
    let (mut holder, mut service) = (limited(&layer), limited(&layer));
    runtime().block_on(async {
        assert!(is_ready(&mut holder));
        assert!(!is_ready(&mut service));
    });
    runtime().block_on(async {
        assert!(!is_ready(&mut service), "there is no room");
        drop(holder);
        assert!(is_ready(&mut service));
        let Ok(answer) = service.call(Request::new(String::new())).await;
        assert_eq!(answer.status(), 200);
    });
}

#[test]
fn an_idle_service_pins_no_permit_while_its_runtime_is_not_driven() {
    let layer = one(MemorySemaphore::new());
    let first = runtime();
    let (mut idle, mut waiter) = (limited(&layer), limited(&layer));
    first.block_on(async { assert!(is_ready(&mut idle)) });
    runtime().block_on(eventually(
        "the idle service has lost its permit",
        BOUND,
        async || is_ready(&mut waiter),
    ));
    drop((first, idle));
}

#[test]
fn a_task_that_waits_goes_on_when_the_runtime_of_the_holder_has_ended() {
    let layer = one(MemorySemaphore::new());
    let (holding, waiting) = (runtime(), runtime());
    let (mut idle, service) = (limited(&layer), limited(&layer).into_inner());
    holding.block_on(async { assert!(is_ready(&mut idle)) });
    let waiter = waiting.spawn(async move {
        let mut service = service;
        service.ready().await.map(drop)
    });
    // The waiter joins the queue.
    waiting.block_on(async { tokio::task::yield_now().await });
    drop(holding);
    let ready = waiting.block_on(async { timeout(BOUND, waiter).await });
    let ready = ready.expect("the idle service loses its permit");
    assert!(ready.expect("no panic").is_ok());
}
