//! Nested limits: the permit in a request's extensions covers all of them.
//!
//! Promises: P3, P9.

use super::rig::{Held, is_refused, send, take};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use std::{convert::Infallible, future::ready, sync::Arc};
use testing::{
    http_requests::{limit, request},
    stubs::Fickle,
};
use tokio::time::{Duration, timeout};
use tower::{Layer, Service, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore, Semaphore, key,
};

const BOUND: Duration = Duration::from_secs(20);

/// Answers every request with 101 and an empty body, and stores its permit in `held`.
fn upgrading(
    held: &Held,
) -> impl Service<Request<String>, Response = Response<Empty<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let held = Arc::clone(held);
    service_fn(move |request: Request<String>| {
        *held.lock().expect("no panic") = request.extensions().get().cloned();
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        ready(Ok(response))
    })
}

/// A limit that all accounts share.
fn all(semaphore: impl Semaphore) -> ConcurrencyLimitLayer<key::Fixed> {
    ConcurrencyLimitLayer::new(9, key::fixed("all"), semaphore).with_policy("all")
}

#[tokio::test]
async fn the_handler_s_permit_keeps_the_permits_of_all_layers() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let service = limit(1, memory.clone()).layer(all(memory.clone()).layer(upgrading(&held)));
    drop(send(&service, request("alice")).await);
    let permit = take(&held);
    assert!(is_refused(&send(&service, request("alice")).await));
    assert_eq!(memory.busy_keys(), 2);
    drop(permit);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn the_permit_of_a_global_limit_keeps_the_outer_permit_too() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let global = GlobalConcurrencyLimitLayer::new(9, "all", memory.clone());
    let service = limit(1, memory.clone()).layer(global.layer(upgrading(&held)));
    drop(send(&service, request("alice")).await);
    assert!(is_refused(&send(&service, request("alice")).await));
    drop(take(&held));
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn the_handler_s_permit_is_lost_with_the_outer_or_the_inner_permit() {
    for outer_is_lost in [true, false] {
        let (outer, inner, held) = (Fickle::default(), Fickle::default(), Held::default());
        let nested = all(inner.clone()).layer(upgrading(&held));
        let service = limit(1, outer.clone()).layer(nested);
        drop(send(&service, request("alice")).await);
        let permit = take(&held);
        assert!(!permit.is_lost() && permit.lost().now_or_never().is_none());
        let (lost, ()) = tokio::join!(timeout(BOUND, permit.lost()), async {
            let store = if outer_is_lost { &outer } else { &inner };
            store.lose();
        });
        lost.expect("the loss is reported");
        assert!(permit.is_lost() && permit.lost().now_or_never().is_some());
    }
}

#[tokio::test]
async fn the_handler_s_permit_releases_all_of_them_at_once() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let service = limit(1, memory.clone()).layer(all(memory.clone()).layer(upgrading(&held)));
    drop(send(&service, request("alice")).await);
    let permit = take(&held);
    let clone = permit.clone();
    assert_eq!(memory.busy_keys(), 2);
    assert!(permit.release().await);
    assert_eq!(memory.busy_keys(), 0);
    assert!(!clone.release().await, "it was released before");
}

#[tokio::test]
async fn the_token_of_the_handler_s_permit_is_that_of_the_innermost_layer() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let claim = Claim::new("all").with_policy("all").with_limit(9);
    let mut last = None;
    for _ in 0..3 {
        let permit = memory.acquire(claim.clone()).await;
        last = permit.expect("there is room").token();
    }
    let service = limit(1, memory.clone()).layer(all(memory.clone()).layer(upgrading(&held)));
    drop(send(&service, request("alice")).await);
    let permit = take(&held);
    assert_eq!((permit.limit(), permit.remaining()), (9, 8));
    assert!(
        permit.token() > last,
        "a token of the outer semaphore, which is new, would be lower"
    );
}

#[tokio::test(start_paused = true)]
async fn the_handler_s_permit_is_lost_when_an_outer_permit_has_been_held_for_too_long() {
    let (memory, held) = (MemorySemaphore::new(), Held::default());
    let outer = limit(1, memory.clone()).with_max_hold(Duration::from_secs(30));
    let service = outer.layer(all(memory.clone()).layer(upgrading(&held)));
    drop(send(&service, request("alice")).await);
    let permit = take(&held);
    let lost = timeout(Duration::from_secs(60), permit.lost()).await;
    lost.expect("the loss is reported");
    assert_eq!(memory.busy_keys(), 1, "the inner permit is still held");
    drop(permit);
    assert_eq!(memory.busy_keys(), 0);
}
