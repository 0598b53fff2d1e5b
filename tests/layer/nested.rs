//! Limits within limits: the permit in a request's extensions stands for all of them.

use crate::{
    http_requests::{limit, request},
    rig::{is_refused, send},
    stores::Fickle,
};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, StatusCode};
use http_body_util::Empty;
use std::{
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex},
};
use tokio::time::{Duration, timeout};
use tower::{Layer, Service, service_fn};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, MemorySemaphore, Permit, Semaphore,
    key,
};

const BOUND: Duration = Duration::from_secs(20);

/// The permit that the handler keeps.
type Kept = Arc<Mutex<Option<Permit>>>;

/// Upgrades every request, so that the body ends at once, and keeps the permit.
fn upgrading(
    kept: &Kept,
) -> impl Service<Request<()>, Response = Response<Empty<Bytes>>, Error = Infallible, Future: Send>
+ Clone
+ use<> {
    let kept = Arc::clone(kept);
    service_fn(move |request: Request<()>| {
        *kept.lock().expect("no panic") = request.extensions().get().cloned();
        let mut response = Response::new(Empty::new());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        ready(Ok(response))
    })
}

/// A limit of all accounts together.
fn all(semaphore: impl Semaphore) -> ConcurrencyLimitLayer<key::Fixed> {
    ConcurrencyLimitLayer::new(9, key::fixed("all"), semaphore).with_policy("all")
}

fn take(kept: &Kept) -> Permit {
    let permit = kept.lock().expect("no panic").take();
    permit.expect("a permit in the request")
}

#[tokio::test]
async fn a_kept_permit_keeps_the_permits_of_all_layers() {
    let (memory, kept) = (MemorySemaphore::new(), Kept::default());
    let service = limit(1, memory.clone()).layer(all(memory.clone()).layer(upgrading(&kept)));
    drop(send(&service, request("alice")).await);
    let permit = take(&kept);
    assert!(is_refused(&send(&service, request("alice")).await));
    assert_eq!(memory.keys(), 2);
    drop(permit);
    assert_eq!(memory.keys(), 0);
}

#[tokio::test]
async fn a_kept_permit_keeps_the_permit_outside_of_a_limit_of_one_key_too() {
    let (memory, kept) = (MemorySemaphore::new(), Kept::default());
    let global = GlobalConcurrencyLimitLayer::new(9, "all", memory.clone());
    let handler = upgrading(&kept);
    let service = limit(1, memory.clone()).layer(global.layer(handler));
    drop(send(&service, request("alice")).await);
    let permit = take(&kept);
    assert!(is_refused(&send(&service, request("alice")).await));
    drop(permit);
    assert_eq!(memory.keys(), 0);
}

#[tokio::test]
async fn a_kept_permit_is_lost_with_any_of_those_that_it_stands_for() {
    for outer_is_lost in [true, false] {
        let (outer, inner, kept) = (Fickle::default(), Fickle::default(), Kept::default());
        let nested = all(inner.clone()).layer(upgrading(&kept));
        let service = limit(1, outer.clone()).layer(nested);
        drop(send(&service, request("alice")).await);
        let permit = take(&kept);
        assert!(!permit.is_lost() && permit.lost().now_or_never().is_none());
        let (told, ()) = tokio::join!(timeout(BOUND, permit.lost()), async {
            let lost = if outer_is_lost { &outer } else { &inner };
            lost.lose();
        });
        told.expect("the loss is told");
        assert!(permit.is_lost() && permit.lost().now_or_never().is_some());
    }
}

#[tokio::test]
async fn a_kept_permit_gives_all_of_them_back_at_once() {
    let (memory, kept) = (MemorySemaphore::new(), Kept::default());
    let service = limit(1, memory.clone()).layer(all(memory.clone()).layer(upgrading(&kept)));
    drop(send(&service, request("alice")).await);
    let permit = take(&kept);
    let clone = permit.clone();
    assert_eq!(memory.keys(), 2);
    assert!(permit.release().await);
    assert_eq!(memory.keys(), 0);
    assert!(!clone.release().await, "it was released before");
}

#[tokio::test]
async fn the_token_of_a_kept_permit_is_that_of_the_innermost_layer() {
    let (memory, kept) = (MemorySemaphore::new(), Kept::default());
    let claim = Claim::new("all").with_policy("all").with_limit(9);
    for _ in 0..3 {
        drop(memory.acquire(claim.clone()).await);
    }
    let service = limit(1, memory.clone()).layer(all(memory.clone()).layer(upgrading(&kept)));
    drop(send(&service, request("alice")).await);
    let permit = take(&kept);
    assert_eq!(
        (permit.token(), permit.limit(), permit.remaining()),
        (4, 9, 8)
    );
}

#[tokio::test(start_paused = true)]
async fn a_kept_permit_is_lost_when_an_outer_permit_has_been_held_for_too_long() {
    let (memory, kept) = (MemorySemaphore::new(), Kept::default());
    let outer = limit(1, memory.clone()).with_max_hold(Duration::from_secs(30));
    let service = outer.layer(all(memory.clone()).layer(upgrading(&kept)));
    drop(send(&service, request("alice")).await);
    let permit = take(&kept);
    let told = timeout(Duration::from_secs(60), permit.lost()).await;
    told.expect("the loss is told");
    assert_eq!(memory.keys(), 1, "the inner permit is still held");
    drop(permit);
    assert_eq!(memory.keys(), 0);
}
