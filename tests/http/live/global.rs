//! The layer of a fixed key follows a limit, which changes while its services wait.

use super::{BOUND, Held, arrive, queues, request};
use http::{Response, StatusCode};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{
    stores::{Store, facts_of_two},
    wait::eventually,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{Claim, GlobalConcurrencyLimitLayer, Permit};

facts_of_two! {
    a_service_that_waits_follows_the_limit
    a_service_keeps_its_position_in_a_full_queue
}

async fn ok(_: http::Request<()>) -> Result<Response<String>, Infallible> {
    Ok(Response::new("done".to_owned()))
}

async fn hold(store: &Store, units: u32) -> Permit {
    let claim = Claim::new("ann").with_limit(9).with_weight(units);
    store.acquire(claim).await.expect("there is room")
}

/// A layer that follows the operator.
fn layer(limit: watch::Receiver<u32>, store: &Store) -> GlobalConcurrencyLimitLayer {
    GlobalConcurrencyLimitLayer::new(1, "ann", Arc::clone(store))
        .with_live_limit(move || *limit.borrow())
}

async fn done<B>(call: Held<B>) -> Response<B> {
    let answer = timeout(BOUND, call).await;
    answer.expect("it is answered").expect("it does not panic")
}

/// Whenever the limit is read it is another one, and there is room under all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_whose_limit_is_never_the_same_are_served() {
    let (store, reads) = (testing::stores::memory(), AtomicU32::new(0));
    let held = hold(&store, 9).await;
    let layer = GlobalConcurrencyLimitLayer::new(1, "ann", Arc::clone(&store))
        .with_live_limit(move || 3 + reads.fetch_add(1, SeqCst));
    let service = layer.layer(service_fn(ok));
    let calls: Vec<_> = (0..3).map(|_| arrive(&service)).collect();
    queues(&store, 10).await;
    drop(held);
    let mut answers = Vec::new();
    for call in calls {
        answers.push(done(call).await);
    }
    assert!(
        answers
            .iter()
            .all(|answer| answer.status() == StatusCode::OK)
    );
}

/// The limit changes more often than the wait lasts.
#[tokio::test(start_paused = true)]
async fn a_wait_does_not_begin_anew_with_each_limit() {
    let store = testing::stores::memory();
    let _held = hold(&store, 9).await;
    let (operator, limit) = watch::channel(1);
    let waits = layer(limit, &store).with_wait(Duration::from_secs(5));
    let changes = async {
        for limit in [2, 1].into_iter().cycle() {
            sleep(Duration::from_millis(700)).await;
            operator.send(limit).expect("the layer lives");
        }
    };
    let start = Instant::now();
    let answer = tokio::select! {
        answer = done(arrive(&waits.layer(service_fn(ok)))) => answer,
        () = changes => unreachable!("they go on for ever"),
    };
    assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(
        start.elapsed() < Duration::from_secs(7),
        "{:?}",
        start.elapsed()
    );
}

/// A service that comes after the change waits under the new limit before those that wait already.
#[tokio::test]
async fn who_waits_keeps_its_position_under_another_limit() {
    let store = testing::stores::memory();
    let (_one, other) = (hold(&store, 1).await, hold(&store, 1).await);
    let (operator, limit) = watch::channel(1);
    let service = layer(limit, &store).layer(service_fn(ok));
    let first = arrive(&service);
    queues(&store, 9).await;
    operator.send(2).expect("the layer lives");
    let second = arrive(&service);
    // A probe wakes it each second, and then it sees the other limit.
    sleep(Duration::from_secs(3)).await;
    drop(other);
    eventually("the first is served", BOUND, async || first.is_finished()).await;
    assert!(!second.is_finished());
    drop(done(first).await);
    done(second).await;
}

/// A queue for one waiter is not full of the claim that the same service makes again.
async fn a_service_keeps_its_position_in_a_full_queue(store: Store) {
    let held = hold(&store, 9).await;
    let (operator, limit) = watch::channel(1);
    let waits = layer(limit, &store).with_max_waiting(1);
    let waits = arrive(&waits.layer(service_fn(ok)));
    for limit in 2..4 {
        queues(&store, 10).await;
        operator.send(limit).expect("the layer lives");
        sleep(Duration::from_secs(2)).await;
        assert!(!waits.is_finished(), "nothing is free");
    }
    drop(held);
    assert_eq!(done(waits).await.status(), StatusCode::OK);
}

async fn a_service_that_waits_follows_the_limit(store: Store) {
    let (operator, limit) = watch::channel(1);
    let service = layer(limit, &store).layer(service_fn(ok));
    let mut held = Vec::new();
    let mut first = service.clone();
    let Ok(ready) = first.ready().await;
    held.push(ready.call(request()).await);

    // Two services wait under the limit of 1. Raised, it lets both in, in the order of their queue.
    let waiting: Vec<_> = (0..2).map(|_| arrive(&service)).collect();
    queues(&store, 9).await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    operator.send(3).expect("the layer lives");
    let mut answers = Vec::new();
    for call in waiting {
        let answer = done(call).await;
        assert_eq!(
            answer.headers()["ratelimit-policy"],
            "\"concurrency\";q=3;qu=\"concurrent-requests\""
        );
        answers.push(answer);
    }

    operator.send(2).expect("the layer lives");
    let mut fourth = service.clone();
    drop(answers.pop());
    let wait = Duration::from_millis(200);
    assert!(timeout(wait, fourth.ready()).await.is_err(), "two are held");
    drop(answers.pop());
    timeout(BOUND, fourth.ready())
        .await
        .expect("one is held")
        .expect("no error");
}

/// It was judged when the service was ready, and the limit is another one when it is called.
#[tokio::test]
async fn a_refusal_shows_the_limit_that_has_refused() {
    let (operator, limit) = watch::channel(1);
    let limited = layer(limit, &testing::stores::memory()).with_wait(Duration::from_millis(20));
    let service = limited.layer(service_fn(ok));
    let (mut first, mut second) = (service.clone(), service);
    let Ok(ready) = first.ready().await;
    let held = ready.call(request()).await;
    let Ok(ready) = second.ready().await;
    operator.send(9).expect("the layer lives");
    let Ok(refused) = ready.call(request()).await;
    assert_eq!(
        refused.headers()["ratelimit-policy"],
        "\"concurrency\";q=1;qu=\"concurrent-requests\""
    );
    drop(held);
}
