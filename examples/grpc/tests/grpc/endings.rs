//! The ways in which a call ends. Each releases its permit.

use crate::fixture::{BOUND, Client, ask, client, limit, soon};
use grpc::messages::Price;
use std::time::Duration;
use testing::{
    ledger::{Ledger, Page},
    stubs::Fickle,
    wait::eventually,
};
use tonic::{Code, Streaming};
use tower_semaphore::{Key, MemorySemaphore, OnLost, Operate, Policy};

async fn server() -> (Ledger, Client) {
    let ledger = Ledger::default();
    let client = client(limit(5, ledger.clone())).await;
    (ledger, client)
}

/// The number of permits that ann holds, after at least one was granted.
fn held(ledger: &Ledger) -> u32 {
    let Page {
        granted, returned, ..
    } = ledger.page("ann");
    assert!(granted > 0, "no call was admitted");
    granted - returned
}

async fn assert_freed(ledger: &Ledger) {
    eventually("the permit is free", BOUND, async || held(ledger) == 0).await;
}

#[tokio::test]
async fn a_unary_call_frees_its_permit() {
    let (ledger, mut client) = server().await;
    let price = client.now(ask("ann", "carrot")).await;
    assert_eq!(price.expect("a price").coins, 7);
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_stream_holds_its_permit_to_its_trailers() {
    let (ledger, mut client) = server().await;
    let stream = client.follow(ask("ann", "endless")).await;
    let mut endless = stream.expect("admitted");
    for coins in 1..=3 {
        let price = endless.message().await.expect("no error");
        assert_eq!(price.expect("a price").coins, coins);
    }
    assert_eq!(held(&ledger), 1);

    let stream = client.follow(ask("ann", "carrot")).await;
    let mut short = stream.expect("admitted");
    while soon(short.message()).await.expect("no error").is_some() {}
    let one_left = async || held(&ledger) == 1;
    eventually("the short one is free", BOUND, one_left).await;
    // Dropped only here, so it was the trailers that freed the permit of the short one.
    drop((short, endless));
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_stream_that_fails_frees_its_permit() {
    let (ledger, mut client) = server().await;
    let stream = client.follow(ask("ann", "fail")).await;
    let mut failing = stream.expect("admitted");
    let end = loop {
        if let Err(status) = soon(failing.message()).await {
            break status;
        }
    };
    assert_eq!((end.code(), end.message()), (Code::Aborted, "on purpose"));
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_stream_that_its_client_cancels_frees_its_permit() {
    let (ledger, mut client) = server().await;
    let stream = client.follow(ask("ann", "endless")).await;
    let stream = stream.expect("admitted");
    assert_eq!(held(&ledger), 1);
    drop(stream);
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_unary_call_that_its_client_cancels_frees_its_permit() {
    let (ledger, mut client) = server().await;
    let never = client.now(ask("ann", "never"));
    let admitted = eventually("it is admitted", BOUND, async || {
        ledger.page("ann").granted == 1
    });
    tokio::select! {
        answer = never => panic!("{answer:?}"),
        () = admitted => {}
    }
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_call_whose_deadline_ends_while_it_runs_frees_its_permit() {
    let (ledger, mut client) = server().await;
    let mut hurried = ask("ann", "never");
    hurried.set_timeout(Duration::from_millis(200));
    assert!(soon(client.now(hurried)).await.is_err());
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_panic_in_the_handler_frees_its_permit() {
    let (ledger, mut client) = server().await;
    assert!(soon(client.now(ask("ann", "panic"))).await.is_err());
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_panic_in_a_stream_frees_its_permit() {
    let (ledger, mut client) = server().await;
    // The panic may end the connection before the head is read.
    if let Ok(mut stream) = client.follow(ask("ann", "panic")).await {
        while let Ok(Some(_)) = soon(stream.message()).await {}
    }
    assert_freed(&ledger).await;
}

#[tokio::test]
async fn a_stream_that_lost_its_permit_ends_as_unavailable() {
    let store = Fickle::default();
    let layer = limit(1, store.clone()).with_on_lost(OnLost::Abort);
    let mut client = client(layer).await;
    let stream = client.follow(ask("ann", "endless")).await;
    let mut stream = stream.expect("admitted");
    assert_eq!(
        soon(stream.message())
            .await
            .expect("no error")
            .expect("a price")
            .coins,
        1
    );
    store.lose();
    assert_ends_as_lost(stream).await;
    assert!(!store.is_held());
}

#[tokio::test]
async fn a_stream_whose_permit_is_revoked_ends_as_unavailable_and_the_next_call_is_admitted() {
    let store = MemorySemaphore::builder().holders(true).build();
    let layer = limit(1, store.clone()).with_on_lost(OnLost::Abort);
    let mut client = client(layer).await;
    let stream = client.follow(ask("ann", "endless")).await;
    let stream = stream.expect("admitted");
    let (policy, key) = (Policy::DEFAULT, Key::from("ann"));
    let usage = store.usage(&policy, &key).await.expect("it is known");
    let revoked = store.revoke(&policy, &key, &usage.held[0].id).await;
    assert!(revoked.expect("it is done"));
    assert_ends_as_lost(stream).await;
    assert!(soon(client.now(ask("ann", "carrot"))).await.is_ok());
}

async fn assert_ends_as_lost(mut stream: Streaming<Price>) {
    let end = loop {
        if let Err(status) = soon(stream.message()).await {
            break status;
        }
    };
    let lost = (Code::Unavailable, "the permit was lost");
    assert_eq!((end.code(), end.message()), lost);
}
