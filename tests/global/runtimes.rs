//! One layer in several runtimes.

use crate::inner::{is_ready, limited, one};
use http::Request;
use std::time::Duration;
use testing::wait::eventually;
use tokio::runtime::{Builder, Runtime};
use tower_semaphore::MemorySemaphore;

/// Longer than it takes to find that nobody probes, and then that a service is abandoned.
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
        let Ok(answer) = service.call(Request::new(())).await;
        assert_eq!(answer.status(), 200);
    });
}

#[test]
fn probes_go_on_in_another_runtime_when_the_first_is_not_driven() {
    let memory = MemorySemaphore::new();
    let layer = one(memory.clone());
    let first = runtime();
    first.block_on(async { assert!(is_ready(&mut limited(&layer))) });
    let (mut idle, mut waiter) = (limited(&layer), limited(&layer));
    runtime().block_on(async {
        assert!(is_ready(&mut idle));
        eventually("the idle service has lost its permit", BOUND, async || {
            is_ready(&mut waiter)
        })
        .await;
    });
    drop((first, idle));
}
