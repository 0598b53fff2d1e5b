//! A limit in shadow lets requests run at once. Beside each request runs a *trial*, which holds and waits in the store
//! as under a limit in force. Time is paused.
//!
//! Promises: P25.

use super::rig::{Noted, Text, ann, claims, done, held, job, run, send};
use http::{Request, request::Parts};
use std::{convert::Infallible, time::Duration};
use tokio::{
    task::{JoinHandle, yield_now},
    time::sleep,
};
use tower::{Layer, Service, service_fn};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, MemorySemaphore, Permit, ReleaseAt, Semaphore,
};

const WAIT: Duration = Duration::from_secs(10);

fn layer(store: &Noted) -> ConcurrencyLimitLayer<impl Fn(&Parts) -> Vec<Claim> + Clone + use<>> {
    ConcurrencyLimitLayer::new(1, claims, store.clone())
        .with_shadow(true)
        .with_wait(WAIT)
}

fn store() -> Noted {
    Noted::new(MemorySemaphore::new())
}

fn spawn<S>(service: &S, request: Request<String>) -> JoinHandle<()>
where
    S: Service<Request<String>, Error = Infallible, Future: Send> + Clone + Send + 'static,
    S::Response: Send,
{
    let service = service.clone();
    tokio::spawn(async move {
        let Ok(answer) = tower::ServiceExt::oneshot(service, request).await;
        drop(answer);
    })
}

/// Advances the clock by this time, and runs the tasks that it wakes.
async fn pass(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
    for _ in 0..10 {
        yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waited_holds_its_unit_for_as_long_as_its_request_ran() {
    let store = store();
    let service = layer(&store).layer(service_fn(run));
    // With the limit in force, they would run from 0 to 100, from 100 to 400, and from 400 to 450 ms.
    for millis in [100, 300, 50] {
        spawn(&service, job([ann()], millis));
    }
    pass(390).await;
    assert_eq!(held(&store, 1).await, 1, "the second is not done");
    pass(50).await;
    assert_eq!(held(&store, 1).await, 1, "nor is the third");
    pass(20).await;
    assert_eq!(held(&store, 1).await, 0);
    assert_eq!(store.refused(), 2, "only this test's own claims");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_would_have_waited_in_vain_counts_and_holds_nothing() {
    let store = store();
    let service = layer(&store).layer(service_fn(run));
    spawn(&service, job([ann()], 11_000));
    pass(1).await;
    spawn(&service, job([ann()], 60_000));
    pass(10_100).await;
    assert!(matches!(
        store.refusals()[..],
        [AcquireError::TimedOut { .. }]
    ));
    pass(1_000).await;
    assert_eq!(held(&store, 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_as_long_as_under_a_limit_in_force() {
    let store = store();
    let service = layer(&store).with_max_waiting(2).layer(service_fn(run));
    for _ in 0..5 {
        spawn(&service, job([ann()], 100));
    }
    pass(1).await;
    assert!(matches!(
        store.refusals()[..],
        [
            AcquireError::QueueFull { .. },
            AcquireError::QueueFull { .. }
        ]
    ));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_or_panics_frees_its_units() {
    let store = store();
    let service = layer(&store).layer(service_fn(async |request: Request<String>| {
        sleep(Duration::from_millis(50)).await;
        match request.uri().path() {
            "/panic" => panic!("a handler's bug"),
            _ => done("done"),
        }
    }));
    let mut panicking = job([ann()], 0);
    *panicking.uri_mut() = "/panic".parse().expect("a path");
    let panicked = spawn(&service, panicking);
    let cancelled = spawn(&service, job([ann()], 0));
    pass(10).await;
    cancelled.abort();
    panicked.await.expect_err("it panics");
    // The second was granted at 50 ms and ran for 10 ms.
    pass(5).await;
    assert_eq!(held(&store, 1).await, 1);
    pass(10).await;
    assert_eq!(held(&store, 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn release_at_head_and_max_hold_also_end_claims_that_waited() {
    let store = store();
    let service = layer(&store)
        .with_release(ReleaseAt::Head)
        .layer(service_fn(run));
    let first = send(&service, job([ann()], 100)).await;
    assert_eq!(held(&store, 1).await, 0, "the head is there");
    drop(first);
    let bounded = layer(&store)
        .with_max_hold(Duration::from_millis(30))
        .layer(service_fn(run));
    for _ in 0..3 {
        spawn(&bounded, job([ann()], 1_000));
    }
    pass(80).await;
    assert_eq!(held(&store, 1).await, 1, "the third, from 60 to 90");
    pass(20).await;
    assert_eq!(held(&store, 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_a_handler_keeps_is_held_until_it_is_dropped() {
    let store = store();
    let handler = service_fn(async |request: Request<String>| {
        let permit = request.extensions().get::<Permit>().cloned();
        tokio::spawn(async move {
            sleep(Duration::from_millis(100)).await;
            drop(permit);
        });
        done("done")
    });
    let service = layer(&store).layer(handler);
    for _ in 0..2 {
        drop(send(&service, job([ann()], 0)).await);
    }
    pass(190).await;
    assert_eq!(held(&store, 1).await, 1, "the second, from 100 to 200");
    pass(20).await;
    assert_eq!(held(&store, 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_claim_is_granted_with_the_weight_that_its_handler_has_set() {
    let store = store();
    let handler = service_fn(async |request: Request<String>| {
        let permit = request.extensions().get::<Permit>().cloned();
        let permit = permit.expect("it is there");
        permit.resize(2).await.expect("a trial refuses nothing");
        sleep(Duration::from_millis(100)).await;
        // The bound may have ended the permit, which is no refusal either.
        permit.resize(3).await.expect("a trial refuses nothing");
        done("done")
    });
    let all = ann().with_limit(3).with_weight(3);
    let all = store.acquire(all).await.expect("nothing is held");
    let service = layer(&store)
        .with_max_hold(Duration::from_millis(90))
        .layer(handler);
    spawn(&service, job([ann().with_limit(3)], 0));
    pass(5).await;
    drop(all);
    pass(5).await;
    assert_eq!(held(&store, 3).await, 2);
    pass(200).await;
    assert_eq!(held(&store, 3).await, 0);
}

#[tokio::test(start_paused = true)]
async fn several_limits_are_tried_together() {
    let store = store();
    let service = layer(&store).layer(service_fn(run));
    let claims = |account: &str| {
        let fleet = Claim::new("all").with_policy("fleet").with_limit(2);
        [Claim::new(account).with_limit(2), fleet]
    };
    for account in ["ann", "bob", "ann"] {
        let claims = claims(account).map(|claim| claim.with_wait(Duration::ZERO));
        spawn(&service, job(claims, 100));
        pass(1).await;
    }
    let refusals = store.refusals();
    assert!(
        matches!(&refusals[..], [AcquireError::Full { policy, .. }] if policy.as_str() == "fleet"),
        "{refusals:?}"
    );
    let held = held(&store, 2).await;
    assert_eq!(held, 1, "the refused request holds no unit of ann");
}

#[tokio::test(start_paused = true)]
async fn a_request_pauses_only_the_key_of_its_trial() {
    let store = store();
    let service = layer(&store).layer(service_fn(async |request: Request<String>| {
        let permit = request.extensions().get::<Permit>();
        let permit = permit.expect("every request is admitted");
        let missing = permit.pause("other", WAIT * 2, "").await;
        assert!(matches!(missing, Err(AcquireError::Invalid { .. })));
        let paused = permit.pause("concurrency", WAIT * 2, "").await;
        paused.expect("the store answers");
        done("done")
    }));
    for _ in 0..3 {
        assert_eq!(send(&service, job([ann()], 0)).await.text().await, "done");
    }
    assert!(
        matches!(
            store.refusals()[..],
            [AcquireError::Paused { .. }, AcquireError::Paused { .. }]
        ),
        "{:?}",
        store.refusals()
    );
    let other = ann().with_policy("other").with_limit(1);
    assert!(store.acquire(other).await.is_ok());
    sleep(WAIT * 2).await;
    assert_eq!(held(&store, 1).await, 0, "the pause is over");
}
