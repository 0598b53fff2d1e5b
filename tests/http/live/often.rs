//! The layer of a fixed key, whose limit changes while its services wait.

use super::{BOUND, Held, arrive};
use http::{Response, StatusCode};
use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{stores::Store, wait::eventually};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower::{Layer, service_fn};
use tower_semaphore::{Claim, GlobalConcurrencyLimitLayer, Permit};

const MOMENT: Duration = Duration::from_millis(100);

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
    sleep(MOMENT).await;
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
    sleep(MOMENT).await;
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
async fn keeps_its_position(store: Store) {
    let held = hold(&store, 9).await;
    let (operator, limit) = watch::channel(1);
    let waits = layer(limit, &store).with_max_waiting(1);
    let waits = arrive(&waits.layer(service_fn(ok)));
    for limit in 2..4 {
        sleep(MOMENT).await;
        operator.send(limit).expect("the layer lives");
        sleep(Duration::from_secs(2)).await;
        assert!(!waits.is_finished(), "nothing is free");
    }
    drop(held);
    assert_eq!(done(waits).await.status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn in_memory_a_service_keeps_its_position_in_a_full_queue() {
    keeps_its_position(testing::stores::memory()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_redis_a_service_keeps_its_position_in_a_full_queue() {
    let server = testing::redis::RedisServer::start();
    keeps_its_position(testing::stores::redis(&server.url()).await).await;
}
