//! What a request and its handler see of a limit in shadow.

use super::rig::{Noted, ann, claims, job, run, send};
use http::{Request, Response, request::Parts};
use std::{convert::Infallible, sync::Arc, time::Duration};
use testing::stubs::{Failing, Slow};
use tokio::time::Instant;
use tower::{Layer, service_fn};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore, OnLost, Permit,
    Semaphore,
};

fn layer(limit: u32, store: impl Semaphore) -> ConcurrencyLimitLayer<fn(&Parts) -> Vec<Claim>> {
    let claims: fn(&Parts) -> Vec<Claim> = claims;
    ConcurrencyLimitLayer::new(limit, claims, store).with_shadow(true)
}

fn permit_of(request: &Request<()>) -> Permit {
    let permit = request.extensions().get::<Permit>();
    permit.cloned().expect("it is there")
}

#[tokio::test]
async fn every_request_is_admitted_and_the_rest_is_counted() {
    let store = Noted::new(MemorySemaphore::new());
    let service = layer(2, store.clone()).layer(service_fn(run));
    let mut in_flight = Vec::new();
    for _ in 0..5 {
        in_flight.push(send(&service, job([ann()], 0)).await);
    }
    assert!(in_flight.iter().all(|answer| answer.status() == 200));
    assert_eq!(store.refused(), 3);
    drop(in_flight);
    send(&service, job([ann()], 0)).await;
    assert_eq!(store.refused(), 3, "the two permits are free again");
}

#[tokio::test]
async fn nothing_of_the_store_is_awaited() {
    let store = Slow::default();
    let service = layer(2, store.clone())
        .with_wait(Duration::from_secs(60))
        .layer(service_fn(run));
    let start = Instant::now();
    for _ in 0..5 {
        assert_eq!(send(&service, job([ann()], 0)).await.status(), 200);
    }
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "the store never answers"
    );
    let failing = layer(2, Failing).layer(service_fn(run));
    assert_eq!(send(&failing, job([ann()], 0)).await.status(), 200);
}

#[tokio::test]
async fn no_response_has_fields_of_a_limit_that_is_not_in_force() {
    let service = layer(1, MemorySemaphore::new()).layer(service_fn(run));
    let answers = [
        send(&service, job([ann()], 0)).await,
        send(&service, job([ann()], 0)).await,
    ];
    for answer in answers {
        assert!(answer.headers().is_empty(), "{:?}", answer.headers());
    }
}

#[tokio::test]
async fn a_handler_finds_a_permit_that_says_what_it_is() {
    let handler = service_fn(async |request: Request<()>| {
        let permit = request.extensions().get::<Permit>().cloned();
        let permit = permit.expect("also without room");
        assert!(permit.is_shadow() && !permit.is_lost() && !permit.is_degraded());
        assert_eq!((permit.limit(), permit.weight()), (1, 1));
        let is_granted = permit.token().is_some();
        assert_eq!(permit.levels().len(), 1);
        permit.resize(1).await.expect("nothing changes");
        assert!(permit.release().await && !permit.release().await);
        assert!(!permit.is_lost());
        Ok::<_, Infallible>(Response::new(is_granted.to_string()))
    });
    let store = MemorySemaphore::new();
    let service = layer(1, store.clone()).layer(handler);
    assert_eq!(
        send(&service, job([ann()], 0)).await.into_body_text().await,
        "true"
    );
    let held = store
        .acquire(ann().with_limit(1))
        .await
        .expect("it was released");
    assert_eq!(
        send(&service, job([ann()], 0)).await.into_body_text().await,
        "false"
    );
    drop(held);
}

#[tokio::test]
async fn a_permit_in_shadow_takes_any_weight() {
    let store = Noted::new(MemorySemaphore::new());
    let handler = service_fn(async |request: Request<()>| {
        let permit = permit_of(&request);
        permit.resize(3).await.expect("a trial refuses nobody");
        assert_eq!(permit.weight(), 3);
        permit.resize(2).await.expect("it shrinks");
        assert_eq!(permit.weight(), 2);
        Ok::<_, Infallible>(Response::new("done".to_owned()))
    });
    let service = layer(3, store.clone()).layer(handler);
    let first = send(&service, job([ann()], 0)).await;
    assert_eq!(
        super::rig::held(&store, 3).await,
        2,
        "as the handler left it"
    );
    let second = send(&service, job([ann()], 0)).await;
    assert_eq!(super::rig::held(&store, 3).await, 3, "one more was free");
    drop((first, second));
    assert_eq!(super::rig::held(&store, 3).await, 0);
}

/// Of a limit of 0, and of one within a limit in force, which is the one that decides.
#[tokio::test]
async fn a_permit_in_shadow_takes_a_weight_above_its_limit() {
    let handler = service_fn(async |request: Request<()>| {
        let permit = request.extensions().get::<Permit>().cloned();
        let permit = permit.expect("it is there");
        let answer = permit.resize(3).await;
        assert_eq!(permit.weight(), if answer.is_ok() { 3 } else { 1 });
        Ok::<_, Infallible>(Response::new(answer.is_ok().to_string()))
    });
    let store = Noted::new(MemorySemaphore::new());
    let closed = layer(0, store.clone()).layer(handler);
    let answer = send(&closed, job([ann()], 0)).await;
    assert_eq!(answer.into_body_text().await, "true");
    for (limit, resizes) in [(5, "true"), (2, "false")] {
        let in_force = ConcurrencyLimitLayer::new(limit, claims, store.clone());
        let trial = layer(1, store.clone()).with_policy("trial");
        let service = in_force.layer(trial.layer(handler));
        let answer = send(&service, job([ann()], 0)).await;
        assert_eq!(answer.into_body_text().await, resizes, "{limit}");
    }
}

#[tokio::test]
async fn wrong_keys_and_claims_are_admitted_too() {
    let wrong = |parts: &Parts| -> Result<Option<Claim>, KeyError> {
        match parts.uri.path() {
            "/empty" => Ok(Some(Claim::new(""))),
            "/heavy" => Ok(Some(ann().with_weight(9))),
            _ => Err(KeyError::Empty),
        }
    };
    let handler = service_fn(async |request: Request<()>| {
        let permit = request.extensions().get::<Permit>().cloned();
        assert!(permit.expect("an extractor needs it").is_shadow());
        Ok::<_, Infallible>(Response::new("done".to_owned()))
    });
    let service = ConcurrencyLimitLayer::new(2, wrong, MemorySemaphore::new())
        .with_shadow(true)
        .layer(handler);
    for path in ["/empty", "/heavy", "/none"] {
        let request = Request::get(path).body(()).expect("a path");
        assert_eq!(send(&service, request).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_layer_leaves_the_shadow() {
    let store = MemorySemaphore::new();
    let service = layer(0, store).with_shadow(false).layer(service_fn(run));
    assert_eq!(send(&service, job([ann()], 0)).await.status(), 429);
}

#[tokio::test]
async fn bounds_end_what_is_held_in_the_store_and_no_response() {
    let (told, hold) = (
        Arc::new(Noted::new(MemorySemaphore::new())),
        Duration::from_millis(20),
    );
    let handler = service_fn(async |request: Request<()>| {
        let permit = permit_of(&request);
        tokio::select! {
            () = permit.lost() => panic!("a permit in shadow was lost"),
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
        assert!(!permit.is_lost());
        let mut response = Response::new("whole".to_owned());
        response.extensions_mut().insert(permit);
        Ok::<_, Infallible>(response)
    });
    let service = layer(1, Arc::clone(&told))
        .with_max_hold(hold)
        .with_max_stall(hold)
        .with_on_lost(OnLost::Abort)
        .layer(handler);
    let answer = send(&service, job([ann()], 0)).await;
    assert_eq!(
        super::rig::held(&*told, 1).await,
        0,
        "the bound has ended it"
    );
    tokio::time::sleep(hold * 5).await;
    let permit = answer.extensions().get::<Permit>();
    assert!(permit.is_some_and(|permit| !permit.is_lost()), "stalled");
    assert_eq!(answer.into_body_text().await, "whole");
}

#[test]
fn without_a_runtime_a_claim_that_is_answered_at_once_needs_none() {
    let memory = MemorySemaphore::new();
    let store = Noted::new(memory.clone());
    let quick =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("done".to_owned())));
    let service = layer(1, store.clone()).layer(quick);
    let answers = futures_util::FutureExt::now_or_never(async {
        let first = send(&service, job([ann()], 0)).await;
        (first, send(&service, job([ann()], 0)).await)
    });
    let (first, second) = answers.expect("nothing is awaited");
    assert_eq!(
        (first.status(), second.status()),
        (http::StatusCode::OK, http::StatusCode::OK)
    );
    assert!(matches!(store.refusals()[..], [AcquireError::Full { .. }]));
    let waiting = layer(1, memory)
        .with_wait(Duration::from_secs(1))
        .layer(quick);
    let third = futures_util::FutureExt::now_or_never(send(&waiting, job([ann()], 0)));
    assert_eq!(third.expect("nothing is awaited").status(), 200);
}

/// Reads a response to its end.
trait Text {
    async fn into_body_text(self) -> String;
}

impl<B> Text for Response<B>
where
    B: http_body::Body<Data = bytes::Bytes>,
    B::Error: std::fmt::Debug,
{
    async fn into_body_text(self) -> String {
        let body = http_body_util::BodyExt::collect(self.into_body()).await;
        let bytes = body.expect("the body is whole").to_bytes();
        String::from_utf8(bytes.into()).expect("text")
    }
}
