//! What becomes of requests and of claims.

use super::exposition::{by_outcome, install, value};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::Full;
use std::{collections::BTreeMap, convert::Infallible, time::Duration};
use testing::stubs::Failing;
use tower::{ServiceExt, service_fn, util::BoxCloneService};
use tower_semaphore::{
    Claim, Claims, ConcurrencyLimit, ConcurrencyLimitLayer, GlobalConcurrencyLimit, KeyExtractor,
    Lock, MemorySemaphore, ResponseBody, Semaphore, key,
};

const REQUESTS: &str = "tower_semaphore_requests_total";
const CLAIMS: &str = "tower_semaphore_claims_total";
const WAIT: Duration = Duration::from_millis(20);

type Answer = Response<ResponseBody<Full<Bytes>>>;

async fn ok(_: Request<()>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new("ok".into()))
}

fn limited<K: KeyExtractor + Send + Sync + 'static>(
    layer: ConcurrencyLimitLayer<K>,
) -> BoxCloneService<Request<()>, Answer, Infallible> {
    BoxCloneService::new(
        tower::ServiceBuilder::new()
            .layer(layer)
            .service(service_fn(ok)),
    )
}

fn counts(expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let own = |(outcome, count): &(&str, f64)| ((*outcome).to_owned(), *count);
    expected.iter().map(own).collect()
}

fn request(account: &str) -> Request<()> {
    let request = Request::builder().header("account", account);
    request.body(()).expect("it is a request")
}

#[tokio::test]
async fn requests_count_by_what_becomes_of_them() {
    install();
    let optional = key::from_fn(|parts| {
        let account = parts.headers.get("account");
        account.map(Claim::new)
    });
    let layer = ConcurrencyLimitLayer::new(1, optional, MemorySemaphore::new());
    let service = limited(
        layer
            .with_policy("by outcome")
            .with_wait(WAIT)
            .with_max_waiting(1),
    );
    let held = service.clone().oneshot(request("ann")).await;
    let waits = tokio::spawn(service.clone().oneshot(request("ann")));
    tokio::task::yield_now().await;
    for _ in 0..2 {
        let refused = service.clone().oneshot(request("ann")).await;
        assert_eq!(refused.expect("a response").status(), 429);
    }
    assert_eq!(
        waits.await.expect("no panic").expect("a response").status(),
        429
    );
    drop(service.clone().oneshot(request("ann")).now_or_never());
    service
        .clone()
        .oneshot(Request::new(()))
        .await
        .expect("it is exempt");
    let empty = service.oneshot(request("")).await;
    assert_eq!(empty.expect("a response").status(), 400);
    drop(held);
    let expected = [
        ("admitted", 1.0),
        ("queue_full", 2.0),
        ("timed_out", 1.0),
        ("cancelled", 1.0),
        ("exempt", 1.0),
        ("invalid", 1.0),
    ];
    assert_eq!(by_outcome(REQUESTS, "by outcome"), counts(&expected));
    let expected = [
        ("admitted", 1.0),
        ("queue_full", 2.0),
        ("timed_out", 1.0),
        ("cancelled", 1.0),
    ];
    assert_eq!(by_outcome(CLAIMS, "by outcome"), counts(&expected));
}

#[tokio::test]
async fn a_store_that_fails_is_no_refusal() {
    install();
    let service = ConcurrencyLimitLayer::new(1, key::fixed("all"), Failing);
    let service = limited(service.with_policy("failing"));
    let answer = service.oneshot(Request::new(())).await;
    assert_eq!(answer.expect("a response").status(), 503);
    assert_eq!(
        by_outcome(REQUESTS, "failing"),
        counts(&[("unavailable", 1.0)])
    );
}

/// Of an account and of the fleet: the fleet is full.
#[tokio::test]
async fn a_request_counts_under_the_limit_that_refuses_it() {
    install();
    let limits = key::from_fn(|_: &http::request::Parts| {
        let narrow = Claim::new("a").with_limit(5).with_policy("narrow");
        Claims::from([narrow, Claim::new("b").with_limit(1).with_policy("wide")])
    });
    let service = limited(ConcurrencyLimitLayer::new(
        1,
        limits,
        MemorySemaphore::new(),
    ));
    let held = service.clone().oneshot(Request::new(())).await;
    drop(service.oneshot(Request::new(())).await);
    for name in [REQUESTS, CLAIMS] {
        assert_eq!(
            by_outcome(name, "narrow"),
            counts(&[("admitted", 1.0)]),
            "{name}"
        );
    }
    assert_eq!(by_outcome(REQUESTS, "wide"), counts(&[("full", 1.0)]));
    assert_eq!(
        by_outcome(CLAIMS, "wide"),
        counts(&[("admitted", 1.0), ("full", 1.0)])
    );
    drop(held);
}

#[tokio::test]
async fn calls_of_a_global_limit_count() {
    install();
    let store = MemorySemaphore::new();
    let service = GlobalConcurrencyLimit::new(service_fn(ok), 1, "all", store.clone());
    drop(service.oneshot(Request::new(())).await);
    // The policy of this program that no other test uses.
    assert_eq!(
        by_outcome(REQUESTS, "concurrency"),
        counts(&[("admitted", 1.0)])
    );
}

#[tokio::test]
async fn locks_and_jobs_without_a_layer_count() {
    install();
    let store = MemorySemaphore::new();
    let lock = Lock::new(store.clone(), "item");
    let guard = lock.try_acquire().await.expect("it is free");
    assert!(lock.try_acquire().await.is_err());
    assert_eq!(
        by_outcome(CLAIMS, "lock"),
        counts(&[("admitted", 1.0), ("full", 1.0)])
    );
    let labels = [("store", "memory"), ("policy", "lock")];
    assert_eq!(value("tower_semaphore_active_permits", &labels), 1.0);
    assert!(guard.release().await);
    assert_eq!(value("tower_semaphore_active_permits", &labels), 0.0);
    let invalid = Claim::new("job").with_policy("wrong");
    assert!(store.acquire(invalid).await.is_err());
    assert_eq!(by_outcome(CLAIMS, "wrong"), counts(&[("invalid", 1.0)]));
}

#[tokio::test]
async fn a_service_made_without_a_layer_counts() {
    install();
    let store = MemorySemaphore::new();
    let policy = |_: &http::request::Parts| Claim::new("all").with_policy("bare");
    let service = ConcurrencyLimit::new(service_fn(ok), 1, policy, store);
    drop(service.oneshot(Request::new(())).await);
    assert_eq!(by_outcome(REQUESTS, "bare"), counts(&[("admitted", 1.0)]));
}
