//! The outcomes of requests and claims are counted, and the gauges return to zero whatever ends a permit or a wait.
//!
//! `gauges` returns a policy's active permits and waiting claims, in this order.
//!
//! Promises: P25.

use super::exposition::{BOUND, Series, all, by_outcome, gauges, install, until_gauges, value};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt, Full};
use std::{convert::Infallible, time::Duration};
use testing::{
    stubs::{Failing, Fickle, Refusing},
    wait::within,
};
use tower::{Layer, ServiceExt, service_fn, util::BoxCloneService};
use tower_semaphore::{
    AcquireError, Claim, Claims, ConcurrencyLimit, ConcurrencyLimitLayer,
    GlobalConcurrencyLimitLayer, KeyError, KeyExtractor, Lock, MemorySemaphore, OnLost, Permit,
    ResponseBody, Semaphore, key,
};

const REQUESTS: &str = "tower_semaphore_requests_total";
const CLAIMS: &str = "tower_semaphore_claims_total";
const ACTIVE: &str = "tower_semaphore_active_permits";
const LOST: &str = "tower_semaphore_lost_permits_total";
const TIME_IN_QUEUE: &str = "tower_semaphore_claim_time_in_queue_seconds_count";
const WAIT: Duration = Duration::from_millis(20);

fn claim(policy: &'static str) -> Claim {
    Claim::new("a").with_limit(1).with_policy(policy)
}

fn waiting(policy: &'static str) -> Claim {
    claim(policy).with_wait(Duration::from_secs(60))
}

async fn acquire(store: &impl Semaphore, claim: Claim) -> Permit {
    store.acquire(claim).await.expect("there is room")
}

type Answer = Response<ResponseBody<Full<Bytes>>>;

async fn ok(_: Request<String>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new("ok".into()))
}

fn limited<K: KeyExtractor + Send + Sync + 'static>(
    layer: ConcurrencyLimitLayer<K>,
) -> BoxCloneService<Request<String>, Answer, Infallible> {
    let service = tower::ServiceBuilder::new().layer(layer);
    BoxCloneService::new(service.service_fn(ok))
}

fn fixed(store: impl Semaphore, policy: &'static str) -> ConcurrencyLimitLayer<key::Fixed> {
    ConcurrencyLimitLayer::new(1, key::fixed("all"), store).with_policy(policy)
}

#[track_caller]
fn assert_counts(name: &str, policy: &str, expected: &[(&str, f64)]) {
    let own = |(outcome, count): &(&str, f64)| ((*outcome).to_owned(), *count);
    let expected = expected.iter().map(own).collect();
    assert_eq!(by_outcome(name, policy), expected, "{name} {policy}");
}

fn request(account: &str) -> Request<String> {
    let request = Request::builder().header("account", account);
    request.body(String::new()).expect("it is a request")
}

#[tokio::test]
async fn requests_count_by_outcome() {
    install();
    let optional = key::from_fn(|parts| parts.headers.get("account").map(Claim::new));
    let layer = ConcurrencyLimitLayer::new(1, optional, MemorySemaphore::new());
    let layer = layer.with_policy("by outcome").with_wait(WAIT);
    let service = limited(layer.with_max_waiting(1));
    let send = |request| service.clone().oneshot(request);
    let held = send(request("ann")).await;
    // One claim waits. Two find the queue full before its wait is over.
    let waits = tokio::spawn(send(request("ann")));
    tokio::task::yield_now().await;
    for _ in 0..2 {
        let Ok(refused) = send(request("ann")).await;
        assert_eq!(refused.status(), 429);
    }
    let Ok(late) = waits.await.expect("no panic");
    assert_eq!(late.status(), 429);
    // Cancelled, exempt and invalid.
    drop(send(request("ann")).now_or_never());
    let Ok(_) = send(Request::new(String::new())).await;
    let Ok(empty) = send(request("")).await;
    assert_eq!(empty.status(), 400);
    drop(held);
    let claims = [
        ("admitted", 1.0),
        ("queue_full", 2.0),
        ("timed_out", 1.0),
        ("cancelled", 1.0),
    ];
    let requests = [&claims[..], &[("exempt", 1.0), ("invalid", 1.0)]].concat();
    assert_counts(REQUESTS, "by outcome", &requests);
    assert_counts(CLAIMS, "by outcome", &claims);
}

#[tokio::test]
async fn a_request_for_a_paused_key_counts_as_paused() {
    install();
    let paused = AcquireError::paused(&claim("is paused"), WAIT);
    let service = limited(fixed(Refusing(paused), "is paused"));
    let Ok(refused) = service.oneshot(request("ann")).await;
    assert_eq!(refused.status(), 429);
    assert_counts(REQUESTS, "is paused", &[("paused", 1.0)]);
}

#[tokio::test]
async fn a_claim_under_an_outer_limit_counts_once() {
    install();
    let memory = MemorySemaphore::new();
    let layer = |key| {
        let layer = ConcurrencyLimitLayer::new(1, key::fixed(key), memory.clone());
        layer.with_policy("nested").with_wait(BOUND)
    };
    let nested = layer("a").layer(layer("a").layer(service_fn(ok)));
    let Ok(answer) = nested.oneshot(Request::new(String::new())).await;
    assert_eq!(answer.status(), 500);
    assert_counts(CLAIMS, "nested", &[("admitted", 1.0), ("full", 1.0)]);
    let requests = [("admitted", 1.0), ("invalid", 1.0)];
    assert_counts(REQUESTS, "nested", &requests);
    drop(answer);

    let waits = layer("b").layer(service_fn(ok));
    let held = acquire(&memory, Claim::new("b").with_limit(1).with_policy("nested")).await;
    let waits = tokio::spawn(layer("a").layer(waits).oneshot(Request::new(String::new())));
    until_gauges("nested", (2.0, 1.0)).await;
    drop(held);
    let Ok(answer) = within("it is granted", BOUND, waits)
        .await
        .expect("no panic");
    assert_eq!(answer.status(), 200);
    assert_counts(CLAIMS, "nested", &[("admitted", 4.0), ("full", 1.0)]);
}

#[tokio::test]
async fn a_store_that_fails_is_no_refusal() {
    install();
    let answer = limited(fixed(Failing, "failing"));
    let Ok(answer) = answer.oneshot(Request::new(String::new())).await;
    assert_eq!(answer.status(), 503);
    assert_counts(REQUESTS, "failing", &[("unavailable", 1.0)]);
}

/// A request claims a unit of its account and of the fleet, and the fleet is full.
#[tokio::test]
async fn a_request_counts_under_the_limit_that_refuses_it() {
    install();
    let limits =
        key::from_fn(|_: &Parts| Claims::from([claim("narrow").with_limit(5), claim("wide")]));
    let layer = ConcurrencyLimitLayer::new(1, limits, MemorySemaphore::new());
    let service = limited(layer);
    let held = service.clone().oneshot(Request::new(String::new())).await;
    drop(service.oneshot(Request::new(String::new())).await);
    for name in [REQUESTS, CLAIMS] {
        assert_counts(name, "narrow", &[("admitted", 1.0)]);
    }
    assert_counts(REQUESTS, "wide", &[("full", 1.0)]);
    assert_counts(CLAIMS, "wide", &[("admitted", 1.0), ("full", 1.0)]);
    drop(held);
}

#[tokio::test]
async fn services_that_are_made_without_a_layer_and_calls_of_a_global_limit_count() {
    install();
    let store = MemorySemaphore::new();
    let global = GlobalConcurrencyLimitLayer::new(1, "all", store.clone());
    let service = global.with_policy("global").layer(service_fn(ok));
    drop(service.oneshot(Request::new(String::new())).await);
    assert_counts(REQUESTS, "global", &[("admitted", 1.0)]);
    let service = ConcurrencyLimit::new(service_fn(ok), 1, |_: &Parts| claim("bare"), store);
    drop(service.oneshot(Request::new(String::new())).await);
    assert_counts(REQUESTS, "bare", &[("admitted", 1.0)]);
}

#[tokio::test]
async fn locks_and_jobs_without_a_layer_count() {
    install();
    let store = MemorySemaphore::new();
    let lock = Lock::new(store.clone(), "item");
    let guard = lock.try_acquire().await.expect("it is free");
    assert!(lock.try_acquire().await.is_err());
    assert_counts(CLAIMS, "lock", &[("admitted", 1.0), ("full", 1.0)]);
    let labels = [("store", "memory"), ("policy", "lock")];
    assert_eq!(value(ACTIVE, &labels), 1.0);
    assert!(guard.release().await);
    assert_eq!(value(ACTIVE, &labels), 0.0);
    let invalid = Claim::new("job").with_policy("wrong");
    assert!(store.acquire(invalid).await.is_err());
    assert_counts(CLAIMS, "wrong", &[("invalid", 1.0)]);
}

#[tokio::test]
async fn a_request_that_a_limit_in_shadow_would_refuse_counts_and_is_admitted() {
    install();
    let claims = |parts: &Parts| match parts.uri.path() {
        "/wrong" => Err(KeyError::Empty),
        "/heavy" => Ok(Claim::new("ann").with_weight(3)),
        _ => Ok(Claim::new("ann")),
    };
    let layer = ConcurrencyLimitLayer::new(2, claims, MemorySemaphore::new());
    let service = limited(layer.with_policy("in shadow").with_shadow(true));
    let mut in_flight = Vec::new();
    for path in ["/", "/", "/", "/wrong", "/heavy"] {
        let request = Request::get(path).body(String::new()).expect("a path");
        in_flight.push(service.clone().oneshot(request).await);
    }
    let refused = [("full", 1.0), ("invalid", 2.0)];
    assert_counts(
        "tower_semaphore_shadow_refusals_total",
        "in shadow",
        &refused,
    );
    assert_counts(REQUESTS, "in shadow", &[("admitted", 5.0)]);
}

#[tokio::test]
async fn a_permit_that_is_released_and_dropped_repeatedly_counts_once() {
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
    let counted = value("tower_semaphore_permit_duration_seconds_count", &held);
    assert_eq!(counted, 1.0);
}

/// Waits until a bound of this length has ended another permit, so that an earlier bound has passed too.
async fn bound_has_passed(max_hold: Duration) {
    let witness = acquire(&MemorySemaphore::new(), claim("witness")).await;
    witness.end_after(max_hold);
    within("the witness is lost", BOUND, witness.lost()).await;
}

#[tokio::test]
async fn a_bound_does_not_end_a_permit_that_was_released() {
    install();
    let permit = acquire(&MemorySemaphore::new(), claim("released")).await;
    assert!(permit.release().await);
    permit.end_after(Duration::from_millis(5));
    bound_has_passed(Duration::from_millis(5)).await;
    assert!(!permit.is_lost());
    assert_eq!(value(LOST, &[("policy", "released"), ("by", "bound")]), 0.0);
    assert_eq!(gauges("released"), (0.0, 0.0));
}

#[tokio::test]
async fn a_waiter_counts_until_it_is_granted_cancelled_or_timed_out() {
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
    let once = ["admitted", "timed_out", "cancelled"].map(|outcome| (outcome, 1.0));
    assert_counts(TIME_IN_QUEUE, policy, &once);
}

#[tokio::test]
async fn a_claim_that_finds_the_queue_full_has_not_waited() {
    install();
    let (store, policy) = (MemorySemaphore::new(), "full queue");
    let held = acquire(&store, claim(policy)).await;
    let refused = store.acquire(waiting(policy).with_max_waiting(0)).await;
    assert!(matches!(refused, Err(AcquireError::QueueFull { .. })));
    assert_counts(TIME_IN_QUEUE, policy, &[]);
    drop(held);
}

/// A label for each flow would make the number of series unbounded.
#[tokio::test]
async fn a_flow_is_no_label() {
    install();
    let (store, policy, flow) = (MemorySemaphore::new(), "flows", "the-flow-of-ann");
    let held = acquire(&store, claim(policy).with_flow(flow)).await;
    let granted = store.acquire(waiting(policy).with_flow(flow));
    assert_eq!(gauges(policy), (1.0, 1.0));
    drop(held);
    drop(granted.await);
    let once = [("admitted", 1.0)];
    assert_counts(TIME_IN_QUEUE, policy, &once);
    let names_it = |series: &Series| series.labels.values().any(|value| value.contains(flow));
    assert!(!all().iter().any(names_it));
}

/// The claim waits for its narrow limit, and then for its wide one.
#[tokio::test]
async fn a_claim_of_several_limits_waits_in_one_queue_at_a_time() {
    install();
    let (store, narrow, wide) = (MemorySemaphore::new(), "narrow of two", "wide of two");
    let held_narrow = acquire(&store, claim(narrow)).await;
    let held_wide = acquire(&store, claim(wide)).await;
    let mut both = store.acquire_all(Claims::from([waiting(narrow), waiting(wide)]));
    assert!((&mut both).now_or_never().is_none());
    assert_eq!((gauges(narrow), gauges(wide)), ((1.0, 1.0), (1.0, 0.0)));
    drop(held_narrow);
    assert!((&mut both).now_or_never().is_none());
    // A permit counts once it is complete.
    assert_eq!((gauges(narrow), gauges(wide)), ((0.0, 0.0), (1.0, 1.0)));
    drop(held_wide);
    let permit = both.await.expect("both are free");
    assert_eq!((gauges(narrow), gauges(wide)), ((1.0, 0.0), (1.0, 0.0)));
    drop(permit);
    assert_eq!((gauges(narrow), gauges(wide)), ((0.0, 0.0), (0.0, 0.0)));
}

/// A custom store cannot report that a permit is over, so the permit itself must know.
#[tokio::test]
async fn a_bound_does_not_end_a_released_permit_of_a_custom_store() {
    install();
    let permit = acquire(&Fickle::default(), claim("unknown to it")).await;
    permit.release().await;
    permit.end_after(Duration::ZERO);
    bound_has_passed(Duration::ZERO).await;
    assert!(!permit.is_lost());
    let lost = [("store", "custom"), ("by", "bound")];
    assert_eq!(value(LOST, &lost), 0.0);
}

/// A custom store does not know the policies of its permits, but the layer does.
#[tokio::test]
async fn the_permits_of_a_custom_store_count_under_the_policy_of_their_layer() {
    install();
    let (store, policy) = (Fickle::default(), "custom store");
    let layer = fixed(store.clone(), policy).with_on_lost(OnLost::Abort);
    let Ok(answer) = limited(layer).oneshot(Request::new(String::new())).await;
    let labels = [("policy", policy), ("store", "custom")];
    assert_eq!(value(ACTIVE, &labels), 1.0);
    store.lose();
    assert!(answer.into_body().collect().await.is_err());
    assert_eq!(value(ACTIVE, &labels), 0.0);
    let before = [("store", "custom"), ("policy", "concurrency")];
    assert_eq!(value(ACTIVE, &before), 0.0);
}

#[tokio::test]
async fn a_request_that_ends_with_its_permit_was_admitted_and_its_permit_is_lost() {
    install();
    let policy = "aborted";
    let layer = fixed(MemorySemaphore::new(), policy).with_max_hold(WAIT);
    let endless = service_fn(async |_: Request<String>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>().await
    });
    let service = layer.with_on_lost(OnLost::Abort).layer(endless);
    let Ok(answer) = service.oneshot(Request::new(String::new())).await;
    assert_eq!(answer.status(), 503);
    assert_counts(REQUESTS, policy, &[("admitted", 1.0)]);
    assert_eq!(value(LOST, &[("policy", policy), ("by", "bound")]), 1.0);
    assert_eq!(value(ACTIVE, &[("policy", policy)]), 0.0);
}
