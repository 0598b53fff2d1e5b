//! The limit among tower's other layers.
//!
//! Promises: P1.

use super::inner::{all_served, ok, read, watched};
use futures_util::future::BoxFuture;
use http::Request;
use testing::in_flight::InFlight;
use tower::{ServiceBuilder, ServiceExt, buffer::BufferLayer, load_shed::error::Overloaded};
use tower_semaphore::{GlobalConcurrencyLimitLayer, MemorySemaphore};

/// A layer that admits three requests at a time.
fn three() -> GlobalConcurrencyLimitLayer {
    GlobalConcurrencyLimitLayer::new(3, "host", MemorySemaphore::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_queue_in_a_buffer_before_the_limit_and_all_are_served() {
    let witness = InFlight::default();
    let service = ServiceBuilder::new()
        .layer(BufferLayer::new(64))
        .layer(three())
        .service(watched(&witness));
    all_served(vec![service; 100]).await;
    assert_eq!(witness.most(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clones_wait_and_all_are_served() {
    let witness = InFlight::default();
    let service = ServiceBuilder::new()
        .layer(three())
        .service(watched(&witness));
    all_served(vec![service; 100]).await;
    assert_eq!(witness.most(), 3);
}

#[tokio::test]
async fn load_is_shed_while_the_limit_is_reached() {
    let service = ServiceBuilder::new()
        .load_shed()
        .layer(three())
        .service(ok());
    let call = || service.clone().oneshot(Request::new(String::new()));
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(call().await.expect("there is room"));
    }
    let shed = call().await.expect_err("three are in flight");
    assert!(shed.is::<Overloaded>(), "{shed}");
    let freed = held.pop().expect("three are held");
    assert_eq!(read(freed).await, "ok");
    assert!(call().await.is_ok());
}

#[tokio::test]
async fn it_can_be_boxed_and_sent() {
    fn assert_send<T: Send>(value: T) -> T {
        value
    }
    let service = ServiceBuilder::new().layer(three()).service(ok());
    let service = assert_send(service.boxed_clone());
    let answer: BoxFuture<'_, _> = Box::pin(service.oneshot(Request::new(String::new())));
    assert_eq!(answer.await.unwrap().status(), 200);
}
