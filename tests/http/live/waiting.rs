//! Requests that wait while the limit changes.

use super::{BOUND, Held, arrive, layer, wait_until_queued};
use http::Response;
use std::{convert::Infallible, time::Duration};
use testing::{
    script::{Script, Step::Data},
    stores::{Store, facts_of_two},
    wait::eventually,
};
use tokio::sync::watch;
use tower::{Layer, service_fn};

facts_of_two! { a_waiting_request_keeps_its_limit_and_position }

/// A request that is admitted by mistake is answered within this time.
const SOON: Duration = Duration::from_millis(200);

async fn wait_until_admitted<B>(held: &Held<B>) {
    eventually("it is admitted", BOUND, async || held.is_finished()).await;
}

async fn a_waiting_request_keeps_its_limit_and_position(store: Store) {
    let (operator, limit) = watch::channel(1);
    // A stream reports its end only after its first frame. So a response holds its permit until it is dropped.
    let done = service_fn(async |_| {
        let body = Script::stream([Data("done")]);
        Ok::<_, Infallible>(Response::new(body))
    });
    let service = layer(limit, store.clone())
        .with_wait(Duration::from_secs(60))
        .layer(done);
    let first = arrive(&service);
    wait_until_admitted(&first).await;
    let old = arrive(&service);
    wait_until_queued(&store).await;
    operator.send(3).expect("the layer lives");
    let new = arrive(&service);
    tokio::time::sleep(SOON).await;
    assert!(!old.is_finished(), "it waits under its own limit of 1");
    assert!(!new.is_finished(), "it passes no waiter");

    drop(first.await.expect("it is admitted"));
    wait_until_admitted(&old).await;
    wait_until_admitted(&new).await;
    let third = arrive(&service);
    wait_until_admitted(&third).await;
    operator.send(2).expect("the layer lives");
    let late = arrive(&service);
    drop(third.await);
    tokio::time::sleep(SOON).await;
    assert!(!late.is_finished(), "two are held");
    drop(old.await);
    wait_until_admitted(&late).await;
    drop(new);
}
