//! Nested limits of one store, policy and key: a mistake that costs no permit.

use super::rig::{ok, send, stalled, values};
use bytes::Bytes;
use futures_util::{
    FutureExt,
    stream::{Pending, pending},
};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use std::{
    convert::Infallible,
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};
use testing::http_requests::{ACCOUNT, limit, request};
use tokio::time::{Duration, sleep, timeout};
use tower::{
    Layer, Service, ServiceExt, buffer::BufferLayer, service_fn, util::BoxCloneSyncService,
};
use tower_semaphore::{
    Claim, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, Key, KeyExtractor, MemorySemaphore,
    Operate, Permit, Policy, ReleaseAt, Semaphore, key,
};

const BOUND: Duration = Duration::from_secs(20);

async fn held(memory: &MemorySemaphore, key: &str) -> u32 {
    let usage = memory.usage(&Policy::DEFAULT, &Key::from(key)).await;
    usage.expect("memory answers").units
}

type Frames = Result<Frame<Bytes>, Infallible>;
type Boxed =
    BoxCloneSyncService<Request<String>, Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible>;

/// Any service that answers every request.
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

/// Limits of so many units, from the outermost, each of which counts such a weight.
fn nested(memory: &MemorySemaphore, limits: &[(u32, u32)]) -> Boxed {
    let limits = limits.iter().rev();
    limits.fold(boxed(stalled()), |inner, &(most, weight)| {
        let weighing = key::header(ACCOUNT).map_claim(move |claim| claim.with_weight(weight));
        let layer = ConcurrencyLimitLayer::new(most, weighing, memory.clone());
        boxed(layer.layer(inner))
    })
}

fn endless() -> StreamBody<Pending<Frames>> {
    StreamBody::new(pending())
}

/// How many of so many requests are served at once. A refusal holds the outer permit until it is sent.
async fn in_flight<S, B>(service: &S, requests: usize) -> (usize, Vec<Response<B>>)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    fan_out(service, &request("ann"), requests).await
}

/// Sends copies of a request, extensions included, and keeps the answers of those that are served.
async fn fan_out<S, B>(
    service: &S,
    request: &Request<String>,
    copies: usize,
) -> (usize, Vec<Response<B>>)
where
    S: Service<Request<String>, Response = Response<B>, Error = Infallible> + Clone,
{
    let mut answers = Vec::new();
    for _ in 0..copies {
        let answer = send(service, request.clone()).await;
        answers.extend(Some(answer).filter(|answer| answer.status() == 200));
    }
    (answers.len(), answers)
}

#[tokio::test]
async fn nested_limits_admit_as_many_as_the_lowest_and_hold_and_show_one_permit_of_each() {
    for limits in [
        &[2, 2][..],
        &[9, 2],
        &[2, 9],
        &[1, 9],
        &[2, 2, 2],
        &[9, 5, 2],
        &[2, 5, 9],
        &[5, 2, 9],
        &[9, 2, 5],
    ] {
        let memory = MemorySemaphore::new();
        let lowest = *limits.iter().min().expect("there are some");
        let limits: Vec<_> = limits.iter().map(|most| (*most, 1)).collect();
        let service = nested(&memory, &limits);
        let (served, answers) = in_flight(&service, 20).await;
        let counted = (served, held(&memory, "ann").await);
        assert_eq!(counted, (lowest as usize, lowest), "{limits:?}");
        let quota = format!(r#""concurrency";q={lowest};qu="concurrent-requests""#);
        let left = format!(r#""concurrency";r={}"#, lowest - 1);
        assert_eq!(values(&answers[0], "ratelimit"), [left], "{limits:?}");
        let refused = send(&service, request("ann")).await;
        assert_eq!(refused.status(), 429);
        assert_eq!(values(&refused, "ratelimit").len(), 1, "{limits:?}");
        for answer in [&answers[0], &refused] {
            assert_eq!(values(answer, "ratelimit-policy"), [&*quota]);
        }
        drop((answers, refused));
        assert_eq!(memory.busy_keys(), 0);
    }
}

#[tokio::test]
async fn the_larger_weight_is_held_as_far_as_it_fits_under_the_lower_limit() {
    for (limits, units) in [
        ([(4, 1), (4, 3)], 3),
        ([(4, 3), (4, 1)], 3),
        ([(2, 1), (8, 3)], 2),
    ] {
        let memory = MemorySemaphore::new();
        let (served, answers) = in_flight(&nested(&memory, &limits), 2).await;
        let counted = (served, held(&memory, "ann").await);
        assert_eq!(counted, (1, units), "{limits:?}");
        drop(answers);
        assert_eq!(memory.busy_keys(), 0);
    }
    let service = nested(&MemorySemaphore::new(), &[(9, 4), (2, 1)]);
    assert_eq!(send(&service, request("ann")).await.status(), 200);
}

fn all(limit: u32, memory: &MemorySemaphore) -> ConcurrencyLimitLayer<key::Fixed> {
    ConcurrencyLimitLayer::new(limit, key::fixed("all"), memory.clone())
}

fn one(key: &'static str, memory: &MemorySemaphore) -> GlobalConcurrencyLimitLayer {
    GlobalConcurrencyLimitLayer::new(1, key, memory.clone())
}

#[tokio::test]
async fn a_service_of_one_key_shares_the_permit_of_every_limit_outside_of_it() {
    let memory = &MemorySemaphore::new();
    let (layer, other) = (one("all", memory), one("b", memory));
    let inner = layer.layer(stalled());
    let behind = inner.clone();
    let middleware = service_fn(move |request: Request<String>| behind.clone().oneshot(request));
    for (name, service) in [
        ("a limit", boxed(all(1, memory).layer(inner.clone()))),
        ("a service", boxed(layer.layer(inner.clone()))),
        (
            "a middleware between",
            boxed(all(1, memory).layer(middleware)),
        ),
        (
            "another key between two services",
            boxed(layer.layer(other.layer(inner.clone()))),
        ),
        (
            "another key between",
            boxed(all(1, memory).layer(other.layer(inner.clone()))),
        ),
    ] {
        let answer = timeout(BOUND, service.oneshot(request("ann"))).await;
        let Ok(answer) = answer.unwrap_or_else(|_| panic!("{name}: it waits for itself"));
        let counted = (answer.status().as_u16(), held(memory, "all").await);
        assert_eq!(counted, (200, 1), "{name}");
        drop(answer);
        assert_eq!(memory.busy_keys(), 0, "{name}");
    }
}

/// The outer permit is seen at the call: a buffer makes the service ready in a task of its own.
#[tokio::test]
async fn a_service_of_one_key_behind_a_buffer_shares_the_permit() {
    let memory = MemorySemaphore::new();
    let inner = GlobalConcurrencyLimitLayer::new(2, "all", memory.clone());
    let buffered = BufferLayer::new(1).layer(inner.layer(stalled()));
    let service = boxed(all(2, &memory).layer(buffered));
    let first = timeout(BOUND, send(&service, request("ann"))).await;
    let first = first.expect("there is room for two");
    let counted = (first.status().as_u16(), held(&memory, "all").await);
    assert_eq!(counted, (200, 1));
}

#[tokio::test]
async fn the_lower_limit_is_in_force_around_a_service_of_one_key_and_inside() {
    for (outer, wait) in [(1, BOUND * 2), (9, Duration::ZERO)] {
        let memory = MemorySemaphore::new();
        let inner = one("all", &memory).with_wait(wait).layer(stalled());
        let service = all(outer, &memory).layer(inner);
        let first = send(&service, request("ann")).await;
        assert_eq!(first.status(), 200);
        assert_eq!(send(&service, request("bob")).await.status(), 429);
        assert_eq!(held(&memory, "all").await, 1);
        drop(first);
        assert_eq!(memory.busy_keys(), 0);
    }
}

/// A service that sends each of its requests on twenty times, and counts how many are served.
fn batch(inner: Boxed) -> (Boxed, Arc<AtomicUsize>) {
    let served = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&served);
    let batch = service_fn(move |request: Request<String>| {
        let (inner, counted) = (inner.clone(), Arc::clone(&counted));
        async move {
            let (served, answers) = fan_out(&inner, &request, 20).await;
            counted.store(served, Relaxed);
            drop(answers);
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("all")))
        }
    });
    (boxed(batch), served)
}

#[tokio::test]
async fn of_inner_calls_at_once_one_shares_the_outer_permit() {
    for outer in [2, 9] {
        let memory = MemorySemaphore::new();
        let (batch, served) = batch(nested(&memory, &[(3, 1)]));
        let service = limit(outer, memory.clone()).layer(batch);
        assert_eq!(send(&service, request("ann")).await.status(), 200);
        let expected = outer.min(3) as usize;
        assert!(
            (expected..=3).contains(&served.load(Relaxed)),
            "{served:?} of {expected}"
        );
        assert_eq!(memory.busy_keys(), 0);
    }
}

#[tokio::test]
async fn an_inner_call_shares_the_permit_for_as_long_as_the_limits_inside_of_it() {
    let memory = MemorySemaphore::new();
    let middle = limit(3, memory.clone()).with_release(ReleaseAt::Head);
    let (batch, served) = batch(boxed(middle.layer(nested(&memory, &[(1, 1)]))));
    let service = limit(5, memory.clone()).layer(batch);
    assert_eq!(send(&service, request("ann")).await.status(), 200);
    assert_eq!(served.load(Relaxed), 1);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn of_several_limits_only_the_same_is_held_once() {
    let memory = MemorySemaphore::new();
    let claims = key::from_fn(|_| {
        let all = Claim::new("all").with_policy("fleet").with_limit(3);
        [Claim::new("ann").with_limit(5), all]
    });
    let inner = ConcurrencyLimitLayer::new(5, claims, memory.clone());
    let service = limit(2, memory.clone()).layer(inner.layer(stalled()));
    let first = [
        send(&service, request("ann")).await,
        send(&service, request("ann")).await,
    ];
    assert!(first.iter().all(|answer| answer.status() == 200));
    assert_eq!(held(&memory, "ann").await, 2);
    let fleet = memory.usage(&Policy::from("fleet"), &"all".into()).await;
    assert_eq!(fleet.expect("memory answers").units, 2);
    drop(first);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn other_stores_and_policies_have_permits_of_their_own() {
    let (memory, other) = (MemorySemaphore::new(), MemorySemaphore::new());
    let inner = limit(5, other.clone()).layer(stalled());
    let service = limit(5, memory.clone()).layer(inner);
    let answer = send(&service, request("ann")).await;
    assert_eq!(
        (held(&memory, "ann").await, held(&other, "ann").await),
        (1, 1)
    );
    drop(answer);

    let named = limit(5, memory.clone()).with_policy("other");
    let service = limit(5, memory.clone()).layer(named.layer(stalled()));
    let answer = send(&service, request("ann")).await;
    assert_eq!(memory.busy_keys(), 2);
    drop(answer);
}

#[tokio::test]
async fn a_limit_on_trial_is_only_told() {
    let memory = MemorySemaphore::new();
    let trial = limit(5, memory.clone()).with_shadow(true);
    let service = limit(5, memory.clone()).layer(trial.layer(ok()));
    assert_eq!(send(&service, request("ann")).await.status(), 200);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_request_that_the_narrower_limit_would_have_refused_does_not_wait_for_its_own_kind() {
    let memory = MemorySemaphore::new();
    let inner = limit(1, memory.clone()).with_wait(BOUND);
    let service = limit(9, memory.clone()).layer(inner.layer(ok()));
    let first = memory.acquire(Claim::new("ann").with_limit(9)).await;
    assert_eq!(send(&service, request("ann")).await.status(), 429);
    drop(first);
    assert_eq!(send(&service, request("ann")).await.status(), 200);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn the_permit_lasts_until_both_limits_are_done_with_it() {
    for ((outer, outer_ends), (inner, inner_ends)) in [
        ((3, ReleaseAt::BodyEnd), (2, ReleaseAt::Head)),
        ((2, ReleaseAt::Head), (2, ReleaseAt::BodyEnd)),
        ((2, ReleaseAt::BodyEnd), (2, ReleaseAt::Head)),
        ((2, ReleaseAt::Head), (9, ReleaseAt::BodyEnd)),
    ] {
        let memory = MemorySemaphore::new();
        let inner = limit(inner, memory.clone()).with_release(inner_ends);
        let outer = limit(outer, memory.clone()).with_release(outer_ends);
        let service = outer.layer(inner.layer(stalled()));
        let (served, answers) = in_flight(&service, 20).await;
        assert_eq!((served, held(&memory, "ann").await), (2, 2));
        drop(answers);
        assert_eq!(memory.busy_keys(), 0);
    }
}

#[tokio::test]
async fn a_body_that_is_collected_between_two_limits_leaves_the_permit_to_the_outer_one() {
    let memory = MemorySemaphore::new();
    let inner = limit(2, memory.clone()).layer(ok());
    let collecting = service_fn(move |request: Request<String>| {
        let inner = inner.clone();
        async move {
            let (head, body) = send(&inner, request).await.into_parts();
            body.collect().await.expect("it is whole");
            Ok::<_, Infallible>(Response::from_parts(
                head,
                StreamBody::new(pending::<Frames>()),
            ))
        }
    });
    let service = limit(3, memory.clone()).layer(collecting);
    let (served, answers) = in_flight(&service, 20).await;
    assert_eq!((served, held(&memory, "ann").await), (2, 2));
    drop(answers);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn an_answer_made_after_a_refusal_inside_still_holds_the_outer_permit() {
    let memory = MemorySemaphore::new();
    let inner = limit(2, memory.clone()).layer(stalled());
    let fallback = service_fn(move |request: Request<String>| {
        let inner = inner.clone();
        async move {
            let mut answer = send(&inner, request).await.map(|_| endless());
            *answer.status_mut() = StatusCode::OK;
            Ok::<_, Infallible>(answer)
        }
    });
    let service = limit(3, memory.clone()).layer(fallback);
    let (served, answers) = in_flight(&service, 20).await;
    assert_eq!((served, held(&memory, "ann").await), (3, 3));
    drop(answers);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_service_of_one_key_takes_no_permit_of_another_request() {
    let memory = MemorySemaphore::new();
    let global = GlobalConcurrencyLimitLayer::new(1, "all", memory.clone());
    let bob = global.with_wait(Duration::ZERO).layer(stalled());
    let bob = async move { send(&bob, request("bob")).await };
    let driven = Arc::new(Mutex::new(Some(bob.boxed())));
    let driving = service_fn(move |_: Request<String>| {
        let driven = Arc::clone(&driven);
        async move {
            let bob = driven
                .lock()
                .expect("no panic")
                .take()
                .expect("one request");
            let answer = bob.await;
            let status = answer.status();
            drop(answer);
            let mut own = Response::new(endless());
            *own.status_mut() = status;
            Ok::<_, Infallible>(own)
        }
    });
    let outer = ConcurrencyLimitLayer::new(1, key::fixed("all"), memory.clone());
    // Bob's request is polled within that of ann, which holds the only unit.
    let answer = send(&outer.layer(driving), request("ann")).await;
    assert_ne!(answer.status(), 200, "two requests have one unit");
}

#[tokio::test]
async fn a_limit_that_falls_between_readiness_and_call_refuses_the_call() {
    let memory = MemorySemaphore::new();
    let operator = memory.clone();
    let inner = GlobalConcurrencyLimitLayer::new(5, "all", memory.clone()).layer(ok());
    let falling = service_fn(move |request: Request<String>| {
        let (mut inner, operator) = (inner.clone(), operator.clone());
        async move {
            let ready = inner.ready().await?;
            let key = "all".into();
            let closed = operator.set_limit(&Policy::DEFAULT, Some(&key), Some(0), "");
            closed.await.expect("the store answers");
            ready.call(request).await
        }
    });
    let outer = ConcurrencyLimitLayer::new(3, key::fixed("all"), memory.clone());
    let answer = send(&outer.layer(falling), request("ann")).await;
    assert_eq!(answer.status(), 403);
}

#[tokio::test(start_paused = true)]
async fn the_bound_of_either_limit_ends_the_permit() {
    let bound = Duration::from_secs(5);
    for (outer, inner) in [(9, 2), (2, 9), (2, 2)] {
        for is_outer in [true, false] {
            let memory = MemorySemaphore::new();
            let bounded = |most, is_bounded: bool| {
                let layer = limit(most, memory.clone());
                if is_bounded {
                    layer.with_max_hold(bound)
                } else {
                    layer
                }
            };
            let inner = bounded(inner, !is_outer).layer(stalled());
            let service = bounded(outer, is_outer).layer(inner);
            let answer = send(&service, request("ann")).await;
            assert_eq!(held(&memory, "ann").await, 1);
            sleep(bound * 2).await;
            assert_eq!(held(&memory, "ann").await, 0, "{outer} > {is_outer}");
            drop(answer);
        }
    }
}

#[tokio::test]
async fn a_middleware_between_can_still_change_its_permit() {
    let memory = MemorySemaphore::new();
    let inner = limit(4, memory.clone()).layer(stalled());
    let charging = service_fn(move |request: Request<String>| {
        let inner = inner.clone();
        async move {
            let permit = request
                .extensions()
                .get::<Permit>()
                .cloned()
                .expect("a permit");
            let answer = send(&inner, request).await;
            permit.resize(3).await.expect("there is room");
            assert!(!permit.is_lost() && permit.weight() == 3);
            Ok::<_, Infallible>(answer)
        }
    });
    let service = limit(9, memory.clone()).layer(charging);
    let answer = send(&service, request("ann")).await;
    assert_eq!(held(&memory, "ann").await, 3);
    drop(answer);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn weights_that_grow_inside_stay_under_the_lower_limit() {
    let memory = MemorySemaphore::new();
    let heavy = key::header(ACCOUNT).map_claim(|claim| claim.with_weight(5));
    let inner = ConcurrencyLimitLayer::new(9, heavy, memory.clone()).layer(stalled());
    let both = Arc::new(tokio::sync::Barrier::new(3));
    let between = service_fn(move |request: Request<String>| {
        let (inner, both) = (inner.clone(), Arc::clone(&both));
        async move {
            both.wait().await;
            Ok::<_, Infallible>(send(&inner, request).await)
        }
    });
    let service = limit(100, memory.clone()).layer(between);
    let send = || send(&service, request("ann"));
    let answers = tokio::join!(send(), send(), send());
    assert!(held(&memory, "ann").await <= 9);
    drop(answers);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn limits_of_two_policies_by_turns_hold_one_permit_each() {
    let memory = MemorySemaphore::new();
    let x = limit(1, memory.clone()).with_policy("x");
    let y = limit(1, memory.clone()).with_policy("y");
    let service = x.layer(y.layer(x.layer(y.layer(x.layer(ok())))));
    assert_eq!(send(&service, request("ann")).await.status(), 200);
    assert_eq!(memory.busy_keys(), 0);
}

/// A service whose requests hold on until they are dropped, and the permits that they see.
fn handlers(
    seen: &Arc<Mutex<Vec<Permit>>>,
) -> impl Service<
    Request<String>,
    Response = Response<StreamBody<Pending<Frames>>>,
    Error = Infallible,
    Future: Send,
> + Clone {
    let seen = Arc::clone(seen);
    service_fn(move |request: Request<String>| {
        let permit = request.extensions().get::<Permit>().cloned();
        seen.lock().expect("no panic").extend(permit);
        async { Ok::<_, Infallible>(Response::new(endless())) }
    })
}

#[tokio::test]
async fn a_handler_changes_the_one_permit_under_the_lower_limit() {
    for (outer, inner) in [(9, 4), (4, 9)] {
        let (memory, seen) = (MemorySemaphore::new(), Arc::default());
        let heavy = key::header(ACCOUNT).map_claim(|claim| claim.with_weight(3));
        let inner = ConcurrencyLimitLayer::new(inner, heavy, memory.clone());
        let service = limit(outer, memory.clone()).layer(inner.layer(handlers(&seen)));
        let answer = send(&service, request("ann")).await;
        let permit = seen.lock().expect("no panic").pop().expect("a permit");
        assert_eq!((permit.weight(), permit.levels().len()), (3, 1));
        assert!(permit.resize(5).await.is_err(), "above the lower limit");

        permit.resize(2).await.expect("it is lighter");
        let other = memory.acquire(Claim::new("ann").with_limit(9).with_weight(2));
        let other = other.await.expect("there is room");
        assert!(permit.resize(3).await.is_err(), "five of four units");
        drop(other);
        permit.resize(4).await.expect("there is room");
        assert_eq!(held(&memory, "ann").await, 4);
        assert!(permit.release().await, "it was held");
        drop(answer);
        assert_eq!(memory.busy_keys(), 0);
    }
}

#[tokio::test]
async fn three_times_the_same_levels_hold_one_permit_of_each() {
    let memory = MemorySemaphore::new();
    let claims = || {
        let claims = key::from_fn(|_| {
            let all = Claim::new("all").with_policy("fleet").with_limit(1);
            [Claim::new("ann").with_limit(1), all]
        });
        ConcurrencyLimitLayer::new(1, claims, memory.clone())
    };
    let inner = claims().layer(claims().layer(stalled()));
    let service = claims().layer(inner);
    let (served, answers) = in_flight(&service, 2).await;
    assert_eq!((served, held(&memory, "ann").await), (1, 1));
    drop(answers);
    assert_eq!(memory.busy_keys(), 0);
}

#[tokio::test]
async fn a_service_that_refuses_does_not_call_an_inner_service_that_was_not_ready() {
    let memory = MemorySemaphore::new();
    let outer = ConcurrencyLimitLayer::new(9, key::fixed("all"), memory.clone());
    let inner = GlobalConcurrencyLimitLayer::new(1, "all", memory.clone());
    // A buffer panics if it is called before it was ready.
    let inner = inner
        .with_wait(Duration::ZERO)
        .layer(BufferLayer::new(1).layer(stalled()));
    let service = outer.layer(BufferLayer::new(1).layer(inner));
    let answer = service.oneshot(request("ann")).await.expect("an answer");
    assert_eq!(answer.status(), 429);
}
