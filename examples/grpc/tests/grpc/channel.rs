//! A limit around a client's channel.

use crate::fixture::{BOUND, Scripted, ask, channel, limit, serve, soon};
use futures_util::future::join_all;
use grpc::client::PricesClient;
use std::time::Duration;
use testing::{ledger::Ledger, wait::eventually};
use tokio::time::timeout;
use tonic::{Code, body::Body, transport::Channel};
use tower::Layer;
use tower_semaphore::{
    AcquireError, GlobalConcurrencyLimit, GlobalConcurrencyLimitLayer, LimitLayer, MemorySemaphore,
    Semaphore,
};

const KEY: &str = "prices";

/// A client that may have `max_calls` calls in flight, and a server whose own limit is never reached.
async fn client(
    semaphore: impl Semaphore,
    max_calls: u32,
) -> (Scripted, PricesClient<GlobalConcurrencyLimit<Channel>>) {
    let prices = Scripted::default();
    let url = serve(limit(1_000, MemorySemaphore::new()), prices.clone()).await;
    let limit = GlobalConcurrencyLimitLayer::new(max_calls, KEY, semaphore);
    let client = PricesClient::new(limit.layer(channel(&url).await));
    (prices, client)
}

#[tokio::test]
async fn a_channel_sends_as_many_calls_at_once_as_its_limit() {
    let (prices, client) = client(MemorySemaphore::new(), 3).await;
    let calls = (0..12).map(|_| {
        let mut client = client.clone();
        async move { client.now(ask("ann", "carrot")).await }
    });
    for answer in soon(join_all(calls)).await {
        assert_eq!(answer.expect("a price").coins, 7);
    }
    assert_eq!(prices.most(), 3);
}

#[tokio::test]
async fn a_call_is_not_sent_while_a_stream_has_the_channel_s_permit() {
    let (prices, mut client) = client(MemorySemaphore::new(), 1).await;
    let stream = client.follow(ask("ann", "endless")).await;
    let stream = stream.expect("admitted");
    assert_eq!(prices.most(), 1);
    let mut waiter = client.clone();
    let mut waiting = Box::pin(waiter.now(ask("ann", "carrot")));
    let early = timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(early.is_err());
    assert_eq!(prices.most(), 1);

    drop(stream);
    assert_eq!(soon(waiting).await.expect("a price").coins, 7);
}

#[tokio::test]
async fn a_stream_frees_the_channel_s_permit_with_its_trailers() {
    let ledger = Ledger::default();
    let (_, mut client) = client(ledger.clone(), 1).await;
    let stream = client.follow(ask("ann", "carrot")).await;
    let mut stream = stream.expect("admitted");
    assert_eq!(ledger.page(KEY).returned, 0);
    while soon(stream.message()).await.expect("no error").is_some() {}
    let freed = async || ledger.page(KEY).returned == 1;
    eventually("the permit is free", BOUND, freed).await;
    // Dropped only here, so it was the trailers that freed the permit.
    drop(stream);
}

#[tokio::test]
async fn a_channel_that_may_not_wait_refuses_with_a_status() {
    let prices = Scripted::default();
    let url = serve(limit(1_000, MemorySemaphore::new()), prices.clone()).await;
    let limit = GlobalConcurrencyLimitLayer::new(1, KEY, MemorySemaphore::new());
    let limit = limit.with_wait(Duration::ZERO);
    let mut client = PricesClient::new(limit.layer(channel(&url).await));
    let _held = client.follow(ask("ann", "endless")).await;
    let refused = client.now(ask("ann", "carrot")).await;
    let status = refused.expect_err("refused");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.metadata().contains_key("retry-after"));
    assert_eq!(prices.most(), 1);
}

#[tokio::test]
async fn a_channel_may_have_a_limit_for_each_account_too() {
    let prices = Scripted::default();
    let url = serve(limit(1_000, MemorySemaphore::new()), prices.clone()).await;
    let limit = limit(1, MemorySemaphore::new());
    let mut client = PricesClient::new(limit.layer(channel(&url).await));
    let _held = client.follow(ask("ann", "endless")).await;
    let refused = client.now(ask("ann", "carrot")).await;
    assert_eq!(
        refused.expect_err("refused").code(),
        Code::ResourceExhausted
    );
    assert!(client.now(ask("bob", "carrot")).await.is_ok());
}

#[tokio::test]
async fn the_status_of_a_call_that_a_limit_layer_refuses_has_the_refusal_among_its_sources() {
    let ledger = Ledger::default();
    let url = serve(limit(1_000, MemorySemaphore::new()), Scripted::default()).await;
    let one_key = |_: &http::Request<Body>| KEY;
    let limit = LimitLayer::new(1, one_key, ledger.clone()).with_http_bodies();
    let mut client = PricesClient::new(limit.layer(channel(&url).await));
    let stream = client.follow(ask("ann", "carrot")).await;
    let mut stream = stream.expect("admitted");
    let refused = client.now(ask("ann", "carrot")).await;
    let status = refused.expect_err("refused");
    let refusal = AcquireError::find_in(&status);
    assert!(refusal.is_some_and(AcquireError::is_refusal), "{status:?}");
    while soon(stream.message()).await.expect("no error").is_some() {}
    let freed = async || ledger.page(KEY).returned == 1;
    eventually("the permit is free", BOUND, freed).await;
    assert!(client.now(ask("ann", "carrot")).await.is_ok());
}
