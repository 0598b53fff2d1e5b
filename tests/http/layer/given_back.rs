//! A request that its service returns unsent and that is sent again, with the first attempt's permit in its extensions.

use super::{
    rig::{Held, ok, send, stalled, take},
    same::{held, wait_until_free},
};
use http::{Request, Response};
use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};
use testing::{
    http_requests::{limit, request},
    stores::{Store, facts_of_two},
    wait::{eventually, within},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, Permit, key};

const BOUND: Duration = Duration::from_secs(20);

/// The error of a client that did not send a request. It returns the request, as hyper-util's `TrySendError` does.
#[derive(Debug)]
struct NotSent(Request<String>);

/// How often a request has been attempted.
#[derive(Clone, Copy, Default)]
struct Attempts(u32);

/// Returns each request unsent, with its extensions, on its first `failures` attempts. Then sends it to `service`.
fn failing_first<S>(
    failures: u32,
    service: S,
) -> impl Service<Request<String>, Response = S::Response, Error = NotSent, Future: Send> + Clone
where
    S: Service<Request<String>, Error = Infallible, Future: Send, Response: Send>,
    S: Clone + Send + Sync + 'static,
{
    service_fn(move |mut request: Request<String>| {
        let service = service.clone();
        let made = request.extensions_mut().get_or_insert_default::<Attempts>();
        made.0 += 1;
        let is_sent = made.0 > failures;
        async move {
            match is_sent {
                true => Ok(send(&service, request).await),
                false => Err(NotSent(request)),
            }
        }
    })
}

/// Sends a request again each time it is returned.
async fn insist<S>(service: &S, mut request: Request<String>) -> S::Response
where
    S: Service<Request<String>, Error = NotSent> + Clone,
{
    loop {
        let attempt = service.clone().oneshot(request);
        match within("an answer", BOUND, attempt).await {
            Ok(answer) => return answer,
            Err(NotSent(given_back)) => request = given_back,
        }
    }
}

/// `insist` as a service. A limit outside it admits the request once, however often it is sent.
fn insisting<S>(
    service: S,
) -> impl Service<Request<String>, Response = S::Response, Error = Infallible, Future: Send> + Clone
where
    S: Service<Request<String>, Error = NotSent, Future: Send, Response: Send>,
    S: Clone + Send + Sync + 'static,
{
    service_fn(move |request| {
        let service = service.clone();
        async move { Ok(insist(&service, request).await) }
    })
}

pub(crate) async fn a_request_is_admitted_again_under_a_limit_of_one(store: Store) {
    for wait in [Duration::ZERO, Duration::from_secs(600)] {
        let layer = limit(1, Arc::clone(&store)).with_wait(wait);
        let service = layer.layer(failing_first(3, stalled()));
        let answer = insist(&service, request("ann")).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(held(&store, "ann").await, 1);
        drop(answer);
        wait_until_free(&store, "ann").await;
    }
}

pub(crate) async fn all_limits_around_the_service_admit_it_again(store: Store) {
    let outer = limit(1, Arc::clone(&store));
    let between = limit(1, Arc::clone(&store)).with_policy("between");
    let inner = GlobalConcurrencyLimitLayer::new(2, "bob", Arc::clone(&store));
    let service = outer.layer(between.layer(inner.layer(failing_first(1, ok()))));
    let answer = insist(&service, request("ann")).await;
    assert_eq!(answer.status(), 200);
    drop(answer);
    wait_until_free(&store, "ann").await;
    wait_until_free(&store, "bob").await;
}

pub(crate) async fn a_limit_outside_of_the_retry_still_counts(store: Store) {
    let other = || limit(1, Arc::clone(&store)).with_policy("other");
    let same = || limit(5, Arc::clone(&store));
    // The inner limit that has the outer one's policy counts in the same semaphore, which is a mistake: 500.
    for (status, inner) in [(200, other()), (500, same())] {
        let permits = Held::default();
        let slot = Arc::clone(&permits);
        let handler = service_fn(move |request: Request<String>| {
            *slot.lock().expect("no panic") = request.extensions().get().cloned();
            async { Ok::<_, Infallible>(Response::new(String::new())) }
        });
        let service = same().layer(insisting(inner.layer(failing_first(1, handler))));
        let answer = send(&service, request("ann")).await;
        assert_eq!(answer.status(), status);
        drop(answer);
        if status == 200 {
            assert_eq!(
                held(&store, "ann").await,
                1,
                "the handler's permit keeps it"
            );
            drop(take(&permits));
        }
        wait_until_free(&store, "ann").await;
    }
}

pub(crate) async fn a_permit_that_the_handler_keeps_stays_held(store: Store) {
    let permits = Held::default();
    let kept = Arc::clone(&permits);
    let layer = limit(1, Arc::clone(&store));
    let service = layer.layer(failing_first(1, ok()).map_request(
        move |request: Request<String>| {
            let mut kept = kept.lock().expect("no panic");
            *kept = kept.take().or_else(|| request.extensions().get().cloned());
            request
        },
    ));
    let answer = insist(&service, request("ann")).await;
    assert_eq!(answer.status(), 429);
    let permit = take(&permits);
    assert_eq!(held(&store, "ann").await, 1);
    assert!(!permit.is_lost());
    drop(permit);
    wait_until_free(&store, "ann").await;
}

/// A slot with a clone of the last request, which outlives the service's answer.
type Kept = Arc<Mutex<Option<Request<String>>>>;

fn keep(kept: &Kept) -> impl FnMut(Request<String>) -> Request<String> + Clone + use<> {
    let kept = Arc::clone(kept);
    move |request| {
        *kept.lock().expect("no panic") = Some(request.clone());
        request
    }
}

fn take_request(kept: &Kept) -> Request<String> {
    let request = kept.lock().expect("no panic").take();
    request.expect("a request was kept")
}

pub(crate) async fn a_request_is_under_its_limit_until_the_response_s_body_has_ended(store: Store) {
    let kept = Kept::default();
    let layer = limit(2, Arc::clone(&store));
    let service = layer.layer(stalled().map_request(keep(&kept)));
    let first = send(&service, request("ann")).await;
    let again = take_request(&kept);
    // The clone has the permit of the first request, which is still in flight, so it would count twice.
    assert_eq!(send(&service, again.clone()).await.status(), 500);
    drop(first);
    assert_eq!(held(&store, "ann").await, 1, "the request keeps it");
    assert_eq!(send(&service, again).await.status(), 200);
    drop(take_request(&kept));
    wait_until_free(&store, "ann").await;
}

pub(crate) async fn a_request_that_was_given_up_may_be_sent_again(store: Store) {
    let kept = Kept::default();
    let stuck = service_fn(|_: Request<String>| pending::<Result<Response<String>, Infallible>>());
    let layer = limit(1, Arc::clone(&store));
    let service = layer.layer(stuck.map_request(keep(&kept)));
    let first = tokio::spawn(async move { send(&service, request("ann")).await });
    eventually("the service has the request", BOUND, async || {
        kept.lock().expect("no panic").is_some()
    })
    .await;
    first.abort();
    assert!(first.await.is_err(), "it never ends");
    let answer = send(&layer.layer(ok()), take_request(&kept)).await;
    assert_eq!(answer.status(), 200);
    drop(answer);
    wait_until_free(&store, "ann").await;
}

/// If the extensions kept the first attempt's permit, it would be held until the second response ends.
pub(crate) async fn a_second_attempt_without_a_key_carries_no_permit(store: Store) {
    let first = |parts: &http::request::Parts| {
        let is_first = parts.extensions.get::<Attempts>().is_none();
        is_first.then_some("ann")
    };
    let layer = ConcurrencyLimitLayer::new(1, key::from_fn(first), Arc::clone(&store));
    let handler = service_fn(|request: Request<String>| {
        let has_permit = request.extensions().get::<Permit>().is_some();
        async move { Ok::<_, Infallible>(Response::new(has_permit.to_string())) }
    });
    let service = layer.layer(failing_first(1, handler));
    let answer = insist(&service, request("ann")).await;
    let body = http_body_util::BodyExt::collect(answer.into_body()).await;
    assert_eq!(body.expect("a body").to_bytes(), "false");
    wait_until_free(&store, "ann").await;
}

facts_of_two! {
    a_request_is_admitted_again_under_a_limit_of_one
    all_limits_around_the_service_admit_it_again
    a_limit_outside_of_the_retry_still_counts
    a_permit_that_the_handler_keeps_stays_held
    a_request_is_under_its_limit_until_the_response_s_body_has_ended
    a_request_that_was_given_up_may_be_sent_again
    a_second_attempt_without_a_key_carries_no_permit
}
