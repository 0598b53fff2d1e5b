//! The layer of a fixed key in shadow.

use super::rig::{Noted, held};
use http::{Request, Response};
use std::{convert::Infallible, time::Duration};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore, Permit};

#[tokio::test]
async fn a_service_is_ready_at_once_and_refuses_no_call() {
    let store = Noted::new(MemorySemaphore::new());
    let layer = GlobalConcurrencyLimitLayer::new(1, "ann", store.clone())
        .with_wait(Duration::ZERO)
        .with_shadow(true);
    let handler = service_fn(async |request: Request<()>| {
        assert!(
            request
                .extensions()
                .get::<Permit>()
                .is_some_and(Permit::is_shadow)
        );
        Ok::<_, Infallible>(Response::new("done".to_owned()))
    });
    let service = layer.layer(handler);
    let mut in_flight = Vec::new();
    for _ in 0..3 {
        let mut service = service.clone();
        let Ok(ready) = service.ready().await;
        let Ok(answer) = ready.call(Request::new(())).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.headers().is_empty());
        in_flight.push(answer);
    }
    assert_eq!(store.refused(), 2);
    drop(in_flight);
    assert_eq!(held(&store, 1).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_would_wait_for_ever_is_ready_too() {
    let store = Noted::new(MemorySemaphore::new());
    let layer = GlobalConcurrencyLimitLayer::new(1, "ann", store.clone()).with_shadow(true);
    let handler = service_fn(async |_: Request<()>| {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, Infallible>(Response::new(String::new()))
    });
    let service = layer.layer(handler);
    let calls: Vec<_> = (0..3)
        .map(|_| tokio::spawn(service.clone().oneshot(Request::new(()))))
        .collect();
    for call in calls {
        let Ok(answer) = call.await.expect("it does not panic");
        drop(answer);
    }
    assert_eq!(held(&store, 1).await, 1, "one after the other");
    tokio::time::sleep(Duration::from_millis(210)).await;
    assert_eq!(held(&store, 1).await, 0);
    assert_eq!(store.refused(), 1, "of this test's own claims");
}
