//! When a claim is refused, the service becomes ready for one call, which returns the refusal.
//!
//! Promises: P14, P21.

use super::inner::{call, is_ready, limited, one, read};
use crate::layer::rig::error;
use serde_json::Value;
use std::time::Duration;
use testing::stubs::{Broken, Uncalled};
use tokio::time::advance;
use tower_semaphore::{AcquireError, GlobalConcurrencyLimitLayer, MemorySemaphore};

const WAIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_store_that_fails_is_refused_with_503() {
    let mut service = limited(&one(Broken));
    let answer = call(&mut service).await;
    assert_eq!(answer.status(), 503);
    assert_eq!(answer.headers()["retry-after"], "1");
    assert!(matches!(error(&answer), AcquireError::Store { .. }));
    let problem: Value = serde_json::from_slice(&read(answer).await).expect("JSON");
    assert_eq!(problem["status"], 503);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_over_is_refused_once_with_429() {
    let memory = MemorySemaphore::new();
    let layer = one(memory.clone()).with_wait(WAIT);
    let (mut first, mut second) = (limited(&layer), limited(&layer));
    let held = call(&mut first).await;
    assert!(!is_ready(&mut second));
    // Tokio's timers fire up to a millisecond late.
    advance(WAIT - Duration::from_millis(2)).await;
    assert!(!second.is_woken());
    advance(Duration::from_millis(4)).await;
    assert!(second.is_woken());
    let refused = call(&mut second).await;
    assert_eq!(refused.status(), 429);
    let wait = &refused.headers()["retry-after"];
    assert_eq!(wait, "11", "from the 5 s of the held permit, with a margin");
    assert!(matches!(error(&refused), AcquireError::TimedOut { .. }));
    assert!(!is_ready(&mut second), "it refuses more than once");
    drop(held);
    assert_eq!(call(&mut second).await.status(), 200);
    assert_eq!(memory.busy_keys(), 0, "the refusal left something behind");
}

#[tokio::test(start_paused = true)]
async fn without_a_bound_it_waits_for_ever() {
    let layer = one(MemorySemaphore::new());
    let (mut first, mut second) = (limited(&layer), limited(&layer));
    let held = call(&mut first).await;
    assert!(!is_ready(&mut second));
    advance(Duration::from_secs(365 * 24 * 60 * 60)).await;
    assert!(!second.is_woken());
    drop(held);
    assert_eq!(call(&mut second).await.status(), 200);
}

#[tokio::test]
async fn a_full_queue_is_refused_with_429_at_once() {
    let layer = one(MemorySemaphore::new()).with_max_waiting(1);
    let mut services = [(); 3].map(|()| limited(&layer));
    assert_eq!(services.each_mut().map(is_ready), [true, false, true]);
    let refused = call(&mut services[2]).await;
    assert_eq!(refused.status(), 429);
    assert!(matches!(error(&refused), AcquireError::QueueFull { .. }));
}

#[tokio::test]
async fn a_limit_of_0_and_an_empty_key_are_refused_without_a_call_to_the_store() {
    let closed = GlobalConcurrencyLimitLayer::new(0, "host", Uncalled);
    assert_eq!(call(&mut limited(&closed)).await.status(), 429);
    let nameless = GlobalConcurrencyLimitLayer::new(1, "", Uncalled);
    let answer = call(&mut limited(&nameless)).await;
    assert!(matches!(error(&answer), AcquireError::Invalid { .. }));
}
