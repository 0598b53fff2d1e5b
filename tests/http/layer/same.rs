//! Nested limits that count in one semaphore: a mistake that the first request reveals.
//!
//! Promises: P20.

use super::rig::{error, ok, send, stalled, values};
use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderValue, Method, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, combinators::UnsyncBoxBody};
use std::{
    convert::Infallible,
    fmt::Debug,
    future::pending,
    sync::{Arc, atomic::AtomicBool},
};
use testing::{
    http_requests::{ACCOUNT, limit, request},
    ledger::Ledger,
    stores::{Store, facts_of_two},
    wait::eventually,
    wrappers::{Delayed, Faulty, Split},
};
use tokio::time::{Duration, Instant, timeout};
use tower::{
    Layer, Service, ServiceExt, buffer::BufferLayer, service_fn, util::BoxCloneSyncService,
};
use tower_semaphore::{
    Acquire, AcquireError, Claim, Claims, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, Key,
    MemorySemaphore, Operate, Permit, Policy, Semaphore, key, semaphore::ClaimError,
};

const BOUND: Duration = Duration::from_secs(20);

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(600);

/// The number of units of `key` that are held.
pub(crate) async fn held(store: &impl Operate, key: &str) -> u32 {
    let usage = store.usage(&Policy::DEFAULT, &Key::from(key)).await;
    usage.expect("the store answers").units
}

pub(crate) async fn wait_until_free(store: &Store, key: &str) {
    eventually("nothing is held", BOUND, async || {
        held(store, key).await == 0
    })
    .await;
}

type Boxed =
    BoxCloneSyncService<Request<String>, Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible>;

/// Boxes any service that answers every request.
fn boxed<S, B, E>(service: S) -> Boxed
where
    S: Service<Request<String>, Response = Response<B>, Error = E, Future: Send>,
    S: Clone + Send + Sync + 'static,
    B: Body<Data = Bytes, Error: Debug> + Send + 'static,
    E: Debug,
{
    let whole = |error: B::Error| -> Infallible { unreachable!("{error:?}") };
    let erased = move |answer: S::Response| answer.map(|body| body.map_err(whole).boxed_unsync());
    let served = |error: E| -> Infallible { unreachable!("{error:?}") };
    BoxCloneSyncService::new(service.map_response(erased).map_err(served))
}

/// Asserts that the response reports the mistake of nested limits.
fn assert_nested<B>(answer: &Response<B>, case: &str) {
    let error = answer.extensions().get::<AcquireError>();
    assert!(
        matches!(
            error,
            Some(AcquireError::Invalid {
                source: ClaimError::Nested,
                ..
            })
        ),
        "{case}: {error:?}"
    );
    assert_eq!(answer.status(), 500, "{case}");
    assert!(values(answer, "retry-after").is_empty(), "{case}");
}

/// The store in each of the wrappers that users can build, with the wrapper's name. The split sends only keys that
/// begin with `ann` to it.
pub(crate) fn wrapped(store: &Store) -> Vec<(&'static str, Wrapped)> {
    let other = MemorySemaphore::new();
    let fails = Arc::<AtomicBool>::default();
    let faulty = Faulty {
        store: Arc::clone(store),
        fails,
    };
    let split = |prefix| Split {
        prefix,
        with: Arc::clone(store),
        without: other.clone(),
    };
    let delayed = Delayed {
        store: Arc::new(faulty.clone()),
        by: Duration::from_millis(1),
    };
    vec![
        ("the store", Arc::new(Arc::clone(store)) as Wrapped),
        ("a box", Arc::new(Box::new(Arc::clone(store)))),
        ("a faulty wrapper", Arc::new(faulty)),
        ("a split", Arc::new(split("ann"))),
        ("a delay around a faulty wrapper", Arc::new(delayed)),
    ]
}

/// A store as a layer sees it.
pub(crate) type Wrapped = Arc<dyn Semaphore>;

pub(crate) async fn the_first_request_is_refused_whatever_wraps_the_store(store: Store) {
    for (outer_name, outer) in wrapped(&store) {
        for (inner_name, inner) in wrapped(&store) {
            for (outer_limit, inner_limit) in [(5, 5), (9, 1), (1, 9)] {
                let case = format!("{inner_name}, {inner_limit}, in {outer_name}, {outer_limit}");
                let inner = limit(inner_limit, Arc::clone(&inner)).layer(ok());
                let service = limit(outer_limit, Arc::clone(&outer)).layer(inner);
                let answer = send(&service, request("ann")).await;
                assert_nested(&answer, &case);
                let free = format!("{case}: the inner permit is free");
                eventually(&free, BOUND, async || held(&store, "ann").await <= 1).await;
                drop(answer);
                wait_until_free(&store, "ann").await;
            }
        }
    }
}

pub(crate) async fn a_request_does_not_wait_for_its_own_permit(store: Store) {
    for (name, wrapped) in wrapped(&store) {
        let inner = limit(1, wrapped).with_wait(LONG).layer(ok());
        let service = limit(1, Arc::clone(&store)).layer(inner);
        let answer = timeout(BOUND, send(&service, request("ann"))).await;
        assert_nested(&answer.expect("it does not wait for itself"), name);
        wait_until_free(&store, "ann").await;
    }
}

/// The inner layer's claim for bob waits for another holder. It is refused because it would then wait for its own units
/// of the fleet.
pub(crate) async fn a_request_of_several_limits_does_not_wait_for_its_own_permit(store: Store) {
    let others = store.acquire(Claim::new("bob").with_limit(1)).await;
    let others = others.expect("there is room");
    for (name, wrapped) in wrapped(&store) {
        let own = Claim::new("bob").with_limit(1);
        let levels = key::from_fn(move |_| [own.clone(), fleet(1)]);
        let inner = ConcurrencyLimitLayer::new(1, levels, wrapped).with_wait(LONG);
        let whole = key::from_fn(|_| fleet(3));
        let outer = ConcurrencyLimitLayer::new(3, whole, Arc::clone(&store));
        let service = outer.layer(inner.layer(ok()));
        let answer = timeout(BOUND, send(&service, request("ann"))).await;
        match name {
            // This wrapper sends claims for bob and for the fleet to its other store.
            "a split" => assert_eq!(answer.expect("there is room").status(), 200),
            _ => assert_nested(&answer.expect("it does not wait for itself"), name),
        }
    }
    drop(others);
    wait_until_free(&store, "bob").await;
}

pub(crate) async fn another_key_of_the_same_policy_still_waits(store: Store) {
    let by_route = ConcurrencyLimitLayer::new(1, key::fixed("all"), Arc::clone(&store));
    let inner = by_route.with_wait(LONG).layer(ok());
    let service = limit(1, Arc::clone(&store)).layer(inner);
    let all = Claim::new("all").with_limit(1);
    let before = store.acquire(all.clone()).await.expect("there is room");
    let waits = tokio::spawn(async move { send(&service, request("ann")).await });
    eventually("it waits", BOUND, async || {
        let usage = store.usage(&Policy::DEFAULT, &"all".into()).await;
        usage.expect("the store answers").waiting.len() == 1
    })
    .await;
    assert!(before.release().await);
    let answer = timeout(BOUND, waits).await.expect("it is granted");
    assert_eq!(answer.expect("no panic").status(), 200);
    wait_until_free(&store, "all").await;
}

fn fleet(weight: u32) -> Claim {
    let all = Claim::new("all").with_policy("fleet").with_limit(3);
    all.with_weight(weight)
}

/// A layer with a limit per account and one for the fleet.
fn account_and_fleet(
    account: &'static str,
    store: &Store,
) -> ConcurrencyLimitLayer<impl tower_semaphore::KeyExtractor + Clone + use<>> {
    let claims = key::from_fn(move |_| [Claim::new(account).with_limit(3), fleet(1)]);
    ConcurrencyLimitLayer::new(3, claims, Arc::clone(store))
}

pub(crate) async fn each_level_of_both_limits_is_compared(store: Store) {
    let fleet_only = |weight| {
        let claim = key::from_fn(move |_| fleet(weight));
        ConcurrencyLimitLayer::new(3, claim, Arc::clone(&store))
    };
    let (ann, bob) = (
        account_and_fleet("ann", &store),
        account_and_fleet("bob", &store),
    );
    for (case, service) in [
        (
            "the second level of the inner limit",
            boxed(fleet_only(1).layer(bob.layer(ok()))),
        ),
        (
            "the second level of the outer limit",
            boxed(bob.layer(fleet_only(1).layer(ok()))),
        ),
        (
            "the second level of both",
            boxed(ann.layer(bob.layer(ok()))),
        ),
        (
            "a refusal at the second level",
            boxed(fleet_only(3).layer(bob.layer(ok()))),
        ),
    ] {
        assert_nested(&send(&service, request("ann")).await, case);
    }
    wait_until_free(&store, "ann").await;
    wait_until_free(&store, "bob").await;
}

pub(crate) async fn a_limit_between_does_not_hide_the_outermost_one(store: Store) {
    let between = limit(5, Arc::clone(&store)).with_policy("between");
    let inner = between.layer(limit(5, Arc::clone(&store)).layer(ok()));
    let answer = send(&limit(5, Arc::clone(&store)).layer(inner), request("ann")).await;
    assert_nested(&answer, "the outermost");
    drop(answer);
    wait_until_free(&store, "ann").await;
}

pub(crate) async fn a_global_limit_finds_the_mistake_at_the_call(store: Store) {
    let one = |most| GlobalConcurrencyLimitLayer::new(most, "ann", Arc::clone(&store));
    let refused = one(1).with_wait(Duration::from_millis(20));
    for (case, service) in [
        ("granted", boxed(one(5).layer(ok()))),
        ("refused", boxed(refused.layer(ok()))),
        (
            "a buffer",
            boxed(BufferLayer::new(1).layer(one(5).layer(ok()))),
        ),
    ] {
        let service = limit(5, Arc::clone(&store)).layer(service);
        assert_nested(&send(&service, request("ann")).await, case);
        wait_until_free(&store, "ann").await;
    }
    let service = boxed(one(5).layer(one(5).layer(ok())));
    assert_nested(&send(&service, request("ann")).await, "two of them");
    wait_until_free(&store, "ann").await;
}

pub(crate) async fn a_permit_that_was_released_before_does_not_count(store: Store) {
    let inner = limit(1, Arc::clone(&store)).layer(ok());
    let done = service_fn(move |request: Request<String>| {
        let inner = inner.clone();
        async move {
            let permit = request.extensions().get::<Permit>().cloned();
            assert!(permit.expect("a permit").release().await, "it was held");
            Ok::<_, Infallible>(send(&inner, request).await)
        }
    });
    let answer = send(&limit(1, store).layer(done), request("ann")).await;
    assert_eq!(answer.status(), 200);
}

/// Only the log reports that the request counts twice.
pub(crate) async fn a_limit_in_shadow_refuses_nothing_inside_or_outside(store: Store) {
    for shadows in [[true, false], [false, true], [true, true]] {
        let [outer, inner] = shadows.map(|shadow| limit(5, Arc::clone(&store)).with_shadow(shadow));
        let service = outer.layer(inner.layer(ok()));
        let answer = send(&service, request("ann")).await;
        assert_eq!(answer.status(), 200, "{shadows:?}");
        drop(answer);
        wait_until_free(&store, "ann").await;
    }
    let whole = ConcurrencyLimitLayer::new(3, key::from_fn(|_| fleet(1)), Arc::clone(&store));
    let service = whole
        .with_shadow(true)
        .layer(account_and_fleet("ann", &store).layer(ok()));
    let answer = send(&service, request("ann")).await;
    assert_eq!(answer.status(), 200, "several limits");
    drop(answer);
    wait_until_free(&store, "ann").await;
}

facts_of_two! {
    the_first_request_is_refused_whatever_wraps_the_store
    a_request_does_not_wait_for_its_own_permit
    a_request_of_several_limits_does_not_wait_for_its_own_permit
    another_key_of_the_same_policy_still_waits
    each_level_of_both_limits_is_compared
    a_limit_between_does_not_hide_the_outermost_one
    a_global_limit_finds_the_mistake_at_the_call
    a_permit_that_was_released_before_does_not_count
    a_limit_in_shadow_refuses_nothing_inside_or_outside
}

/// A store that changes each claim.
struct Changing<F>(MemorySemaphore, F);

impl<F: Fn(&Claim) -> Claim + Send + Sync + 'static> Semaphore for Changing<F> {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let changed = claims.as_slice().iter().map(&self.1);
        self.0.acquire_all(changed.collect())
    }
}

#[tokio::test]
async fn a_claim_of_another_policy_does_not_wait_for_its_own_permit() {
    let memory = MemorySemaphore::new();
    let to_default = |claim: &Claim| claim.clone().with_policy(Policy::DEFAULT);
    let inner = limit(1, Changing(memory.clone(), to_default)).with_policy("inner");
    let service = limit(1, memory.clone()).layer(inner.with_wait(LONG).layer(ok()));
    let answer = timeout(BOUND, send(&service, request("ann"))).await;
    assert_nested(
        &answer.expect("it does not wait for itself"),
        "another policy",
    );
    assert_eq!(memory.busy_keys(), 0);
}

/// Rebuilds the claim without the outer limits, so that only the answer can reveal the mistake.
fn without_outer(claim: &Claim) -> Claim {
    let limit = claim.limit().expect("a limit");
    let wait = claim.wait().expect("a wait");
    let rebuilt = Claim::new(claim.key().clone()).with_limit(limit);
    rebuilt
        .with_wait(wait.time)
        .with_max_waiting(wait.max_waiting)
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_wait_or_a_full_queue_reveals_the_mistake_too() {
    let memory = MemorySemaphore::new();
    for (max_waiting, waited) in [(9, LONG), (0, Duration::ZERO)] {
        let inner = limit(1, Changing(memory.clone(), without_outer)).with_policy("inner");
        let inner = inner.with_wait(LONG).with_max_waiting(max_waiting);
        let service = limit(1, memory.clone()).layer(inner.layer(ok()));
        let start = Instant::now();
        let answer = send(&service, request("ann")).await;
        assert_nested(&answer, "a wait");
        assert!(start.elapsed() >= waited);
        assert_eq!(held(&memory, "ann").await, 1);
    }
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn other_stores_keys_and_policies_have_separate_permits() {
    let (memory, other) = (MemorySemaphore::new(), MemorySemaphore::new());
    let all =
        |store: &MemorySemaphore| ConcurrencyLimitLayer::new(1, key::fixed("all"), store.clone());
    let inner = limit(1, memory.clone()).with_policy("other");
    let service = all(&memory).layer(all(&other).layer(inner.layer(stalled())));
    let service = limit(1, memory.clone()).layer(service);
    let answer = send(&service, request("ann")).await;
    assert_eq!(answer.status(), 200);
    assert_eq!((memory.busy_keys(), other.busy_keys()), (3, 1));
}

#[tokio::test]
async fn a_custom_store_reveals_the_mistake_by_its_semaphore_ids() {
    let (ledger, other) = (Ledger::default(), Ledger::default());
    for (inner, outer_limit, inner_limit, status) in [
        (&ledger, 5, 5, 500),
        (&ledger, 1, 1, 500),
        (&other, 1, 1, 200),
    ] {
        let inner = limit(inner_limit, inner.clone()).layer(ok());
        let service = limit(outer_limit, ledger.clone()).layer(inner);
        assert_eq!(send(&service, request("ann")).await.status(), status);
    }
    let page = ledger.page("ann");
    assert_eq!(page.granted, page.returned);
}

/// A store that never answers a claim without room, unless an outer limit counts in the same semaphore.
struct Patient(Ledger);

impl Semaphore for Patient {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let claim = claims.as_slice().first().expect("a claim");
        let is_nested = claim.is_within(self.0.id(claim.key()));
        let acquire = self.0.acquire_all(claims);
        Acquire::pending(async move {
            match acquire.await {
                Err(AcquireError::Full { .. }) if !is_nested => pending().await,
                answer => answer,
            }
        })
    }
}

#[tokio::test]
async fn a_custom_store_can_find_the_mistake_before_it_waits() {
    let (ledger, other) = (Ledger::default(), Ledger::default());
    let patient = |ledger: &Ledger| limit(1, Patient(ledger.clone())).layer(ok());
    let nested = limit(1, ledger.clone()).layer(patient(&ledger));
    let answer = timeout(BOUND, send(&nested, request("ann"))).await;
    assert_nested(&answer.expect("it does not wait for itself"), "its own");
    let held = other.acquire(Claim::new("ann").with_limit(1)).await;
    let waits = limit(1, ledger).layer(patient(&other));
    assert!(send(&waits, request("ann")).now_or_never().is_none());
    drop(held);
}

#[tokio::test]
async fn a_client_learns_only_that_the_mistake_is_the_service_s() {
    let memory = MemorySemaphore::new();
    let inner = limit(5, memory.clone()).layer(ok());
    let send_inner = |request| {
        let service = inner.clone();
        async move { send(&service, request).await }
    };
    // The extensions have a permit, as if an outer limit had admitted the request.
    let permit = memory.acquire(Claim::new("ann").with_limit(5)).await;
    let mut admitted = request("ann");
    admitted
        .extensions_mut()
        .insert(permit.expect("there is room"));
    let answer = send_inner(admitted.clone()).await;
    assert!(!error(&answer).is_refusal());
    let body = answer.into_body().collect().await.expect("a body");
    assert_eq!(
        body.to_bytes(),
        r#"{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"two limits of the service count the request in the same semaphore: give one another policy"}"#
    );
    *admitted.method_mut() = Method::POST;
    let kind = HeaderValue::from_static("application/grpc");
    admitted.headers_mut().insert("content-type", kind);
    let answer = send_inner(admitted).await;
    assert_eq!(
        (answer.status().as_u16(), values(&answer, "grpc-status")),
        (200, vec!["13".to_owned()])
    );
}

#[tokio::test]
async fn alternating_policies_are_nested_too() {
    let memory = MemorySemaphore::new();
    let x = limit(9, memory.clone()).with_policy("x");
    let y = limit(9, memory.clone()).with_policy("y");
    let service = x.layer(y.layer(x.layer(ok())));
    assert_nested(&send(&service, request("ann")).await, "x in y in x");
    let by_account = key::header(ACCOUNT);
    let z = ConcurrencyLimitLayer::new(9, by_account, memory.clone()).with_policy("z");
    let service = x.layer(y.layer(z.layer(ok())));
    assert_eq!(send(&service, request("ann")).await.status(), 200);
    assert_eq!(memory.busy_keys(), 0);
}
