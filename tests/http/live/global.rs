//! The layer of a fixed key follows a limit.

use super::{BOUND, arrive, request};
use http::Response;
use std::{convert::Infallible, time::Duration};
use testing::stores::Store;
use tokio::{sync::watch, time::timeout};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::GlobalConcurrencyLimitLayer;

async fn follows(store: Store) {
    let (operator, limit) = watch::channel(1);
    let layer =
        GlobalConcurrencyLimitLayer::new(7, "ann", store).with_live_limit(move || *limit.borrow());
    let done = service_fn(async |_| Ok::<_, Infallible>(Response::new("done".to_owned())));
    let service = layer.layer(done);
    let mut held = Vec::new();
    let mut first = service.clone();
    let Ok(ready) = first.ready().await;
    held.push(ready.call(request()).await);

    // Two services wait under the limit of 1. Raised, it lets both in, in the order of their queue.
    let waiting: Vec<_> = (0..2).map(|_| arrive(&service)).collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(waiting.iter().all(|call| !call.is_finished()));
    operator.send(3).expect("the layer lives");
    let mut answers = Vec::new();
    for call in waiting {
        let answer = timeout(BOUND, call)
            .await
            .expect("it waits under the new limit");
        let answer = answer.expect("it does not panic");
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

#[tokio::test(flavor = "multi_thread")]
async fn in_memory_a_service_that_waits_follows_the_limit() {
    follows(testing::stores::memory()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn over_redis_a_service_that_waits_follows_the_limit() {
    let server = testing::redis::RedisServer::start();
    follows(testing::stores::redis(&server.url()).await).await;
}

/// It was judged when the service was ready, and the limit is another one when it is called.
#[tokio::test]
async fn a_refusal_shows_the_limit_that_has_refused() {
    let (operator, limit) = watch::channel(1);
    let layer = GlobalConcurrencyLimitLayer::new(7, "ann", testing::stores::memory())
        .with_wait(Duration::from_millis(20))
        .with_live_limit(move || *limit.borrow());
    let done = service_fn(async |_| Ok::<_, Infallible>(Response::new("done".to_owned())));
    let service = layer.layer(done);
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
