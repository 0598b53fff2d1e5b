//! A permit that outlives the runtime in which it was granted.
//!
//! Promises: P9, P11.

use super::rig::{is_refused, ok, send, stalled};
use http_body_util::BodyExt;
use std::time::Duration;
use testing::{
    http_requests::{limit, request},
    wait::eventually,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tower::Layer;
use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, OnLost, PermitLost, key};

const MAX_HOLD: Duration = Duration::from_millis(300);

/// Generous, because no test here measures how late a permit ends.
const BOUND: Duration = Duration::from_secs(20);

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime")
}

fn short(memory: &MemorySemaphore) -> ConcurrencyLimitLayer<key::Header> {
    limit(1, memory.clone()).with_max_hold(MAX_HOLD)
}

#[test]
fn a_permit_ends_after_its_longest_hold_although_its_runtime_has_ended() {
    let service = short(&MemorySemaphore::new()).layer(stalled());
    let first = runtime().block_on(send(&service, request("alice")));
    assert!(!is_refused(&first));
    let next = runtime();
    next.block_on(eventually("the permit ends", BOUND, async || {
        !is_refused(&send(&service, request("alice")).await)
    }));
    drop(first);
}

#[test]
fn a_body_that_moved_to_another_runtime_is_aborted_after_its_longest_hold() {
    let layer = short(&MemorySemaphore::new()).with_on_lost(OnLost::Abort);
    let service = layer.layer(stalled());
    let mut answer = runtime().block_on(send(&service, request("alice")));
    let next = runtime();
    let frame = next.block_on(async { timeout(BOUND, answer.body_mut().frame()).await });
    let frame = frame.expect("the body ends");
    let error = frame.expect("a frame").expect_err("it is aborted");
    assert!(error.is::<PermitLost>());
}

#[test]
fn a_permit_that_is_dropped_after_its_runtime_has_ended_is_released_once() {
    let memory = MemorySemaphore::new();
    let service = short(&memory).layer(ok());
    let first = runtime().block_on(send(&service, request("alice")));
    drop(first);
    let next = runtime();
    // A second release of the first permit, at the end of its longest hold, would free the second one.
    let second = next.block_on(async {
        let service = limit(1, memory.clone()).layer(stalled());
        let second = send(&service, request("alice")).await;
        assert!(!is_refused(&second), "the first is released");
        tokio::time::sleep(2 * MAX_HOLD).await;
        assert!(is_refused(&send(&service, request("alice")).await));
        second
    });
    drop(second);
    assert_eq!(memory.busy_keys(), 0);
}
