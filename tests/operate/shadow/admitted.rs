//! A limit in shadow, as a request and its handler see it. The request's claims run beside it as a *trial*.
//!
//! Promises: P25.

use super::rig::{Noted, Text, ann, claims, done, held, job, run, send};
use futures_util::FutureExt;
use http::{Request, request::Parts};
use std::{convert::Infallible, sync::Arc, time::Duration};
use testing::stubs::{Failing, Slow};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, GlobalConcurrencyLimitLayer, KeyError,
    MemorySemaphore, OnLost, Permit, Semaphore,
};

fn layer(limit: u32, store: impl Semaphore) -> ConcurrencyLimitLayer<fn(&Parts) -> Vec<Claim>> {
    let claims: fn(&Parts) -> Vec<Claim> = claims;
    ConcurrencyLimitLayer::new(limit, claims, store).with_shadow(true)
}

fn permit_of(request: &Request<String>) -> Permit {
    let permit = request.extensions().get::<Permit>();
    permit.cloned().expect("it is there")
}

#[tokio::test]
async fn every_request_is_admitted_without_fields_and_those_above_the_limit_count() {
    let store = Noted::new(MemorySemaphore::new());
    let service = layer(2, store.clone()).layer(service_fn(run));
    let mut in_flight = Vec::new();
    for _ in 0..5 {
        let answer = send(&service, job([ann()], 0)).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().is_empty(), "{:?}", answer.headers());
        in_flight.push(answer);
    }
    assert_eq!(store.refused(), 3);
    drop(in_flight);
    send(&service, job([ann()], 0)).await;
    assert_eq!(store.refused(), 3, "the two permits are free again");
}

#[tokio::test]
async fn a_request_does_not_wait_for_the_store() {
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
async fn a_handler_gets_a_permit_that_reports_being_in_shadow() {
    let handler = service_fn(async |request: Request<String>| {
        let permit = permit_of(&request);
        assert!(permit.is_shadow() && !permit.is_lost() && !permit.is_degraded());
        assert_eq!((permit.limit(), permit.weight()), (1, 1));
        let is_granted = permit.token().is_some();
        assert_eq!(permit.levels().len(), 1);
        permit.resize(1).await.expect("nothing changes");
        assert!(permit.release().await && !permit.release().await);
        assert!(!permit.is_lost());
        done(&is_granted.to_string())
    });
    let store = MemorySemaphore::new();
    let service = layer(1, store.clone()).layer(handler);
    assert_eq!(send(&service, job([ann()], 0)).await.text().await, "true");
    let held = store.acquire(ann().with_limit(1)).await;
    let _held = held.expect("it was released");
    assert_eq!(send(&service, job([ann()], 0)).await.text().await, "false");
}

#[tokio::test]
async fn a_permit_in_shadow_takes_any_weight() {
    let store = Noted::new(MemorySemaphore::new());
    let handler = service_fn(async |request: Request<String>| {
        let permit = permit_of(&request);
        permit.resize(3).await.expect("a trial refuses nothing");
        assert_eq!(permit.weight(), 3);
        permit.resize(2).await.expect("it shrinks");
        assert_eq!(permit.weight(), 2);
        done("done")
    });
    let service = layer(3, store.clone()).layer(handler);
    let first = send(&service, job([ann()], 0)).await;
    assert_eq!(held(&store, 3).await, 2, "as the handler left it");
    let second = send(&service, job([ann()], 0)).await;
    assert_eq!(held(&store, 3).await, 3, "one more was free");
    drop((first, second));
    assert_eq!(held(&store, 3).await, 0);
}

/// First under a limit of 0 in shadow alone. Then also under an outer limit in force, which decides.
#[tokio::test]
async fn a_permit_in_shadow_takes_a_weight_above_its_limit() {
    let handler = service_fn(async |request: Request<String>| {
        let permit = permit_of(&request);
        let answer = permit.resize(3).await;
        assert_eq!(permit.weight(), if answer.is_ok() { 3 } else { 1 });
        done(&answer.is_ok().to_string())
    });
    let store = Noted::new(MemorySemaphore::new());
    let closed = layer(0, store.clone()).layer(handler);
    let answer = send(&closed, job([ann()], 0)).await;
    assert_eq!(answer.text().await, "true");
    for (limit, resizes) in [(5, "true"), (2, "false")] {
        let in_force = ConcurrencyLimitLayer::new(limit, claims, store.clone());
        let trial = layer(1, store.clone()).with_policy("trial");
        let service = in_force.layer(trial.layer(handler));
        let answer = send(&service, job([ann()], 0)).await;
        assert_eq!(answer.text().await, resizes, "{limit}");
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
    let handler = service_fn(async |request: Request<String>| {
        assert!(permit_of(&request).is_shadow(), "an extractor needs it");
        done("done")
    });
    let service = ConcurrencyLimitLayer::new(2, wrong, MemorySemaphore::new())
        .with_shadow(true)
        .layer(handler);
    for path in ["/empty", "/heavy", "/none"] {
        let request = Request::get(path).body(String::new()).expect("a path");
        assert_eq!(send(&service, request).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn with_shadow_false_puts_a_limit_in_force() {
    let store = MemorySemaphore::new();
    let service = layer(0, store).with_shadow(false).layer(service_fn(run));
    assert_eq!(send(&service, job([ann()], 0)).await.status(), 429);
}

#[tokio::test]
async fn bounds_free_the_units_in_the_store_and_end_no_response() {
    let store = Arc::new(Noted::new(MemorySemaphore::new()));
    let hold = Duration::from_millis(20);
    let handler = service_fn(async |request: Request<String>| {
        let permit = permit_of(&request);
        tokio::select! {
            () = permit.lost() => panic!("a permit in shadow was lost"),
            () = sleep(Duration::from_millis(200)) => {}
        }
        assert!(!permit.is_lost());
        let Ok(mut response) = done("whole");
        response.extensions_mut().insert(permit);
        Ok::<_, Infallible>(response)
    });
    let service = layer(1, Arc::clone(&store))
        .with_max_hold(hold)
        .with_max_stall(hold)
        .with_on_lost(OnLost::Abort)
        .layer(handler);
    let answer = send(&service, job([ann()], 0)).await;
    assert_eq!(held(&*store, 1).await, 0, "the bound has ended it");
    sleep(hold * 5).await;
    let permit = answer.extensions().get::<Permit>();
    assert!(permit.is_some_and(|permit| !permit.is_lost()), "stalled");
    assert_eq!(answer.text().await, "whole");
}

#[test]
fn a_claim_that_is_answered_at_once_needs_no_runtime() {
    let memory = MemorySemaphore::new();
    let store = Noted::new(memory.clone());
    let quick = service_fn(async |_: Request<String>| done("done"));
    let service = layer(1, store.clone()).layer(quick);
    let waiting = layer(1, memory).with_wait(Duration::from_secs(1));
    let waiting = waiting.layer(quick);
    let at_once = |service| {
        let answer = send(service, job([ann()], 0)).now_or_never();
        answer.expect("nothing is awaited")
    };
    let held = [at_once(&service), at_once(&service)];
    assert!(matches!(store.refusals()[..], [AcquireError::Full { .. }]));
    assert!(held.iter().all(|answer| answer.status() == 200));
    assert_eq!(at_once(&waiting).status(), 200);
}

/// The layer has a fixed key.
#[tokio::test]
async fn a_service_of_a_global_limit_is_ready_at_once_and_refuses_no_call() {
    let store = Noted::new(MemorySemaphore::new());
    let layer = GlobalConcurrencyLimitLayer::new(1, "ann", store.clone())
        .with_wait(Duration::ZERO)
        .with_shadow(true);
    let service = layer.layer(service_fn(async |request: Request<String>| {
        assert!(permit_of(&request).is_shadow());
        done("done")
    }));
    let mut in_flight = Vec::new();
    for _ in 0..3 {
        let mut service = service.clone();
        let Ok(ready) = service.ready().await;
        let Ok(answer) = ready.call(Request::new(String::new())).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().is_empty());
        in_flight.push(answer);
    }
    assert_eq!(store.refused(), 2);
    drop(in_flight);
    assert_eq!(held(&store, 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_of_a_global_limit_that_would_wait_without_a_bound_is_ready_too() {
    let store = Noted::new(MemorySemaphore::new());
    let layer = GlobalConcurrencyLimitLayer::new(1, "ann", store.clone()).with_shadow(true);
    let service = layer.layer(service_fn(run));
    let calls = [(); 3].map(|()| tokio::spawn(service.clone().oneshot(job([], 100))));
    for call in calls {
        let Ok(answer) = call.await.expect("it does not panic");
        drop(answer);
    }
    assert_eq!(held(&store, 1).await, 1, "one after the other");
    sleep(Duration::from_millis(210)).await;
    assert_eq!(held(&store, 1).await, 0);
    assert_eq!(store.refused(), 1, "only this test's own claim");
}
