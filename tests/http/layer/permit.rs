//! How long a permit is held: until the head, until the end of the body, for a limited time, or as long as the handler
//! wants.
//!
//! Promises: P9, P23.

use super::rig::{Held, Stalled, is_refused, ok, send, stalled, take};
use futures_util::{FutureExt, stream};
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, StreamBody};
use std::{convert::Infallible, future::ready, pin::pin, sync::Arc, time::Duration};
use testing::{
    http_requests::{limit, request},
    stubs::Fickle,
};
use tokio::time::{advance, timeout};
use tower::{Layer, Service, service_fn};
use tower_semaphore::{
    Claim, MemorySemaphore, OnLost, Permit, PermitLost, ReleaseAt,
    semaphore::{
        BoxFuture, ClaimError, Grant, LevelState, Loss, Resize, Resizing, SemaphoreId, StoreError,
    },
};

const MAX_HOLD: Duration = Duration::from_secs(30);

/// Stores each request's permit in `held` and answers with a body that never ends.
fn keeping(
    held: &Held,
) -> impl Service<Request<String>, Response = Response<Stalled>, Error = Infallible> + Clone + use<>
{
    let held = Arc::clone(held);
    service_fn(move |request: Request<String>| {
        *held.lock().expect("no panic") = request.extensions().get().cloned();
        ready(Ok(Response::new(StreamBody::new(stream::pending()))))
    })
}

#[tokio::test]
async fn a_permit_may_end_with_the_head() {
    let layer = limit(1, MemorySemaphore::new()).with_release(ReleaseAt::Head);
    let service = layer.layer(ok());
    let first = send(&service, request("alice")).await;
    assert_eq!(first.headers()["ratelimit"], r#""concurrency";r=0"#);
    let second = send(&service, request("alice")).await;
    assert!(!is_refused(&second));
}

#[tokio::test]
async fn under_release_at_head_a_handler_holds_its_permit_until_the_head() {
    let memory = MemorySemaphore::new();
    let layer = limit(1, memory.clone()).with_release(ReleaseAt::Head);
    let mut service = layer.layer(service_fn(|_: Request<String>| async {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Response::new(String::new()))
    }));
    let mut response = pin!(service.call(request("alice")));
    assert!(response.as_mut().now_or_never().is_none());
    assert_eq!(memory.busy_keys(), 1);
    let _answer = response.await;
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_body_keeps_its_permit_although_the_handler_has_dropped_its_clone() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let service = limit(1, memory.clone()).layer(keeping(&held));
    let first = send(&service, request("alice")).await;
    drop(held.lock().unwrap().take());
    assert_eq!(memory.busy_keys(), 1);
    drop(first);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_handler_may_release_the_permit_before_its_body_ends() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let service = limit(1, memory.clone()).layer(keeping(&held));
    let first = send(&service, request("alice")).await;
    let permit = take(&held);
    assert!(permit.release().await);
    let second = send(&service, request("alice")).await;
    drop(first);
    assert_eq!(memory.busy_keys(), 1);
    drop((second, held.lock().unwrap().take()));
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn an_exempt_request_has_no_permit_in_its_extensions() {
    let held = Held::default();
    let exempt = |_: &http::request::Parts| None::<&str>;
    let memory = MemorySemaphore::new();
    let layer = tower_semaphore::ConcurrencyLimitLayer::new(1, exempt, memory);
    let _answer = send(&layer.layer(keeping(&held)), request("alice")).await;
    assert!(held.lock().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_permit_ends_after_its_longest_hold_and_the_body_goes_on() {
    let held = Held::default();
    let layer = limit(1, MemorySemaphore::new()).with_max_hold(MAX_HOLD);
    let service = layer.layer(keeping(&held));
    let mut first = send(&service, request("alice")).await;
    let permit = take(&held);
    advance(MAX_HOLD - Duration::from_millis(1)).await;
    assert!(is_refused(&send(&service, request("alice")).await));
    timeout(2 * MAX_HOLD, permit.lost()).await.unwrap();
    assert!(permit.is_lost());
    assert!(!is_refused(&send(&service, request("alice")).await));
    assert!(first.body_mut().frame().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_reached_its_longest_hold_is_released_once() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let layer = limit(1, memory.clone()).with_max_hold(MAX_HOLD);
    let service = layer.layer(keeping(&held));
    let first = send(&service, request("alice")).await;
    let permit = take(&held);
    timeout(2 * MAX_HOLD, permit.lost()).await.unwrap();
    let second = send(&service, request("alice")).await;
    drop((first, permit));
    assert!(is_refused(&send(&service, request("alice")).await));
    drop((second, held.lock().unwrap().take()));
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_permit_is_lost_may_be_aborted() {
    let memory = MemorySemaphore::new();
    let layer = limit(1, memory.clone()).with_max_hold(MAX_HOLD);
    let service = layer.with_on_lost(OnLost::Abort).layer(stalled());
    let mut body = send(&service, request("alice")).await.into_body();
    let frame = timeout(2 * MAX_HOLD, body.frame()).await.unwrap();
    let error = frame.unwrap().unwrap_err();
    assert!(error.is::<PermitLost>());
    assert_eq!(error.to_string(), "the permit was lost");
    assert!(body.is_end_stream());
    assert!(body.frame().await.is_none());
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_ends_in_time_is_not_aborted() {
    let layer = limit(1, MemorySemaphore::new()).with_max_hold(MAX_HOLD);
    let service = layer.with_on_lost(OnLost::Abort).layer(ok());
    let mut body = send(&service, request("alice")).await.into_body();
    let data = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(data, "ok");
    advance(2 * MAX_HOLD).await;
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn a_permit_that_was_lost_before_the_first_frame_aborts_the_body_at_once() {
    let store = Fickle::default();
    let layer = limit(1, store.clone()).with_on_lost(OnLost::Abort);
    let mut body = send(&layer.layer(ok()), request("alice")).await.into_body();
    store.lose();
    let frame = body.frame().now_or_never().unwrap();
    assert!(frame.unwrap().unwrap_err().is::<PermitLost>());
}

#[tokio::test]
async fn a_body_whose_permit_is_lost_finishes_by_default() {
    let store = Fickle::default();
    let service = limit(1, store.clone()).layer(ok());
    let body = send(&service, request("alice")).await.into_body();
    store.lose();
    assert!(store.is_held());
    assert_eq!(body.collect().await.unwrap().to_bytes(), "ok");
    assert!(!store.is_held());
}

/// A grant whose permit is regained while it is being released.
#[derive(Default)]
struct Regained(Loss);

impl Grant for Regained {
    fn level(&self, _: usize) -> LevelState {
        LevelState::new(1)
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        None
    }

    fn loss(&self) -> &Loss {
        &self.0
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        self.0.clear();
        Box::pin(ready(true))
    }

    fn pause(&self, _: usize, _: Duration, _: &str) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_regained_when_its_longest_hold_ends_is_lost() {
    let claim = Claim::new("alice").with_limit(1);
    let permit = Permit::new(Regained::default(), [(&claim, 1)]);
    permit.end_after(MAX_HOLD);
    permit.lost().await;
    assert!(permit.is_lost());
}
