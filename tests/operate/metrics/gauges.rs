//! The gauges return to zero, whatever ends a permit or a wait.

use super::exposition::{gauges, install, until_gauges, value};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use std::{convert::Infallible, panic::AssertUnwindSafe, time::Duration};
use testing::stubs::Fickle;
use tower::{ServiceExt, service_fn};
use tower_semaphore::{
    Claim, Claims, ConcurrencyLimit, ConcurrencyLimitLayer, MemorySemaphore, OnLost, Permit,
    Semaphore, key,
};

fn claim(policy: &str) -> Claim {
    Claim::new("a").with_limit(1).with_policy(policy)
}

fn waiting(policy: &str) -> Claim {
    claim(policy).with_wait(Duration::from_secs(60))
}

async fn acquire(store: &MemorySemaphore, claim: Claim) -> Permit {
    store.acquire(claim).await.expect("there is room")
}

#[tokio::test]
async fn a_permit_counts_once_whatever_ends_it_and_how_often() {
    install();
    let (store, policy) = (MemorySemaphore::new(), "ends");
    let permit = acquire(&store, claim(policy)).await;
    let clone = permit.clone();
    assert_eq!(gauges(policy), (1.0, 0.0));
    drop(permit);
    assert_eq!(gauges(policy), (1.0, 0.0), "a clone holds it");
    assert!(clone.release().await && !clone.release().await);
    assert_eq!(gauges(policy), (0.0, 0.0));
    drop(clone);
    assert_eq!(gauges(policy), (0.0, 0.0));
    let held = [("policy", policy), ("store", "memory")];
    assert_eq!(
        value("tower_semaphore_permit_duration_seconds_count", &held),
        1.0
    );
}

#[tokio::test]
async fn a_permit_that_a_bound_ends_counts_as_lost_and_not_as_held() {
    install();
    let (store, policy) = (MemorySemaphore::new(), "bound");
    let permit = acquire(&store, claim(policy)).await;
    permit.end_after(Duration::from_millis(5));
    permit.lost().await;
    until_gauges(policy, (0.0, 0.0)).await;
    let lost = [("policy", policy), ("by", "bound")];
    assert_eq!(value("tower_semaphore_lost_permits_total", &lost), 1.0);
    drop(permit);
    assert_eq!(gauges(policy), (0.0, 0.0));
}

#[tokio::test]
async fn a_permit_that_was_released_before_its_bound_counts_as_not_lost() {
    install();
    let (store, policy) = (MemorySemaphore::new(), "released");
    let permit = acquire(&store, claim(policy)).await;
    assert!(permit.release().await);
    permit.end_after(Duration::ZERO);
    permit.lost().await;
    let lost = [("policy", policy), ("by", "bound")];
    assert_eq!(value("tower_semaphore_lost_permits_total", &lost), 0.0);
}

#[tokio::test]
async fn a_waiter_counts_until_it_is_granted_cancelled_or_its_time_is_over() {
    install();
    let (store, policy) = (MemorySemaphore::new(), "waits");
    let held = acquire(&store, claim(policy)).await;
    let granted = store.acquire(waiting(policy));
    let cancelled = store.acquire(waiting(policy));
    let late = store.acquire(claim(policy).with_wait(Duration::from_millis(5)));
    assert_eq!(gauges(policy), (1.0, 3.0));
    drop(cancelled);
    assert_eq!(gauges(policy), (1.0, 2.0));
    assert!(late.await.is_err());
    assert_eq!(gauges(policy), (1.0, 1.0));
    drop(held);
    drop(granted.await);
    assert_eq!(gauges(policy), (0.0, 0.0));
    for outcome in ["admitted", "timed_out", "cancelled"] {
        let labels = [("policy", policy), ("outcome", outcome)];
        let waits = value("tower_semaphore_claim_time_in_queue_seconds_count", &labels);
        assert_eq!(waits, 1.0, "{outcome}");
    }
}

/// Of an account and of the fleet: it waits at one after the other.
#[tokio::test]
async fn a_claim_of_several_limits_waits_in_one_queue_at_a_time() {
    install();
    let (store, narrow, wide) = (MemorySemaphore::new(), "first", "second");
    let first = acquire(&store, claim(narrow)).await;
    let second = acquire(&store, claim(wide)).await;
    let mut both = store.acquire_all(Claims::from([waiting(narrow), waiting(wide)]));
    assert!((&mut both).now_or_never().is_none());
    assert_eq!((gauges(narrow), gauges(wide)), ((1.0, 1.0), (1.0, 0.0)));
    drop(first);
    assert!((&mut both).now_or_never().is_none());
    // Its permit counts when it is whole.
    assert_eq!((gauges(narrow), gauges(wide)), ((0.0, 0.0), (1.0, 1.0)));
    drop(second);
    let permit = both.await.expect("both are free");
    assert_eq!((gauges(narrow), gauges(wide)), ((1.0, 0.0), (1.0, 0.0)));
    drop(permit);
    assert_eq!((gauges(narrow), gauges(wide)), ((0.0, 0.0), (0.0, 0.0)));
}

#[tokio::test]
async fn a_body_holds_its_permit_to_the_last_frame() {
    install();
    let policy = "body";
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("all"), MemorySemaphore::new());
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("ok"))))
    });
    let service = tower::ServiceBuilder::new()
        .layer(layer.with_policy(policy))
        .service(inner);
    let answer = service.oneshot(Request::new(())).await.expect("a response");
    assert_eq!(gauges(policy), (1.0, 0.0));
    let mut body = answer.into_body();
    body.frame().await.expect("a frame").expect("no error");
    assert_eq!(gauges(policy), (0.0, 0.0));
    drop(body);
}

#[tokio::test]
async fn a_handler_that_panics_holds_nothing() {
    install();
    let policy = "panic";
    let claims = |_: &http::request::Parts| Claim::new("all").with_policy("panic");
    let inner = service_fn(
        async |_: Request<()>| -> Result<Response<Full<Bytes>>, Infallible> {
            assert_eq!(gauges("panic"), (1.0, 0.0));
            panic!("a handler's own")
        },
    );
    let service = ConcurrencyLimit::new(inner, 1, claims, MemorySemaphore::new());
    let call = AssertUnwindSafe(service.oneshot(Request::new(()))).catch_unwind();
    assert!(call.await.is_err());
    assert_eq!(gauges(policy), (0.0, 0.0));
}

/// Its store cannot say that it holds nothing any more.
#[tokio::test]
async fn a_permit_of_a_custom_store_that_was_released_is_not_lost_by_a_bound() {
    install();
    let permit = Fickle::default().acquire(claim("unknown to it")).await;
    let permit = permit.expect("it is granted");
    permit.release().await;
    permit.end_after(Duration::ZERO);
    permit.lost().await;
    let lost = [("store", "custom"), ("by", "bound")];
    assert_eq!(value("tower_semaphore_lost_permits_total", &lost), 0.0);
}

/// A store of a user's own knows no policy of its permits; the layer does.
#[tokio::test]
async fn the_permits_of_a_custom_store_count_under_the_policy_of_their_layer() {
    install();
    let policy = "custom store";
    let store = Fickle::default();
    let layer = ConcurrencyLimitLayer::new(1, key::fixed("all"), store.clone());
    let layer = layer.with_policy(policy).with_on_lost(OnLost::Abort);
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("ok"))))
    });
    let service = tower::ServiceBuilder::new().layer(layer).service(inner);
    let answer = service.oneshot(Request::new(())).await.expect("a response");
    let labels = [("policy", policy), ("store", "custom")];
    assert_eq!(value("tower_semaphore_active_permits", &labels), 1.0);
    store.lose();
    assert!(answer.into_body().collect().await.is_err());
    assert_eq!(value("tower_semaphore_active_permits", &labels), 0.0);
    let before = [("store", "custom"), ("policy", "concurrency")];
    assert_eq!(value("tower_semaphore_active_permits", &before), 0.0);
}
