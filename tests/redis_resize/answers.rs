//! What is true once a change or a release was answered.

use crate::{BOUND, HELD, LEASE, claim, fixture, grown, store_at, until_held};
use futures_util::FutureExt;
use std::{thread, time::Duration};
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::{runtime::Runtime, time::timeout};
use tower_semaphore::Semaphore;

/// Each is a race that may be lost by chance.
const ROUNDS: usize = 50;

#[tokio::test]
async fn after_the_answer_to_a_release_nothing_is_held_of_a_permit_that_has_grown() {
    let (_server, store, mut raw) = fixture().await;
    for round in 0..ROUNDS {
        let permit = grown(&store, 9, 5).await;
        assert!(permit.release().await);
        assert_eq!(raw.zcard(HELD).await, 0, "round {round}");
    }
}

#[tokio::test]
async fn a_release_says_that_a_unit_was_lost_which_had_been_added() {
    let (_server, store, mut raw) = fixture().await;
    let permit = grown(&store, 9, 2).await;
    let (added, _) = raw.zmembers(HELD).await.pop().expect("two units");
    raw.cmd(&[b"ZREM", HELD.as_bytes(), &added]).await;
    assert!(!permit.release().await);
}

#[tokio::test]
async fn after_the_answer_to_a_smaller_weight_another_process_has_room() {
    let (server, store, _raw) = fixture().await;
    let other = store_at(server.url()).await;
    for round in 0..ROUNDS {
        let permit = store.acquire(claim(9).with_weight(9)).await;
        let permit = permit.expect("there is room");
        permit.resize(1).await.expect("it becomes lighter");
        let next = other.acquire(claim(9).with_weight(8)).await;
        let next = next.unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert!(next.release().await && permit.release().await);
    }
}

/// A growth waits for its answer, and the permit is released meanwhile.
async fn released_during_a_growth(is_dropped: bool) {
    let (server, store, mut raw) = fixture().await;
    let permit = grown(&store, 9, 4).await;
    server.stop();
    let clone = permit.clone();
    let mut growing = Box::pin(async move { clone.resize(6).await });
    assert!(growing.as_mut().now_or_never().is_none(), "it is stopped");
    let growing = tokio::spawn(growing);
    let releasing = permit.release();
    if is_dropped {
        growing.abort();
    }
    server.cont();
    let answer = growing.await;
    assert!(answer.is_err() || !is_dropped);
    assert!(answer.is_err() || answer.is_ok_and(|grown| grown.is_err()));
    timeout(BOUND, releasing).await.expect("it is answered");
    // The permit still exists, so a unit that was forgotten would be refreshed.
    tokio::time::sleep(LEASE).await;
    until_held(&mut raw, 0).await;
    assert_eq!(permit.weight(), 0);
}

#[tokio::test]
async fn a_release_frees_what_was_added_if_a_growth_is_dropped_then() {
    released_during_a_growth(true).await;
}

#[tokio::test]
async fn a_growth_that_is_answered_after_the_release_adds_nothing() {
    released_during_a_growth(false).await;
}

#[tokio::test]
async fn a_permit_that_ends_during_a_growth_that_is_dropped_leaves_nothing() {
    let (server, store, mut raw) = fixture().await;
    let permit = grown(&store, 9, 4).await;
    server.stop();
    let clone = permit.clone();
    let growing = tokio::spawn(async move { clone.resize(6).await });
    permit.end_after(Duration::from_millis(100));
    timeout(BOUND, permit.lost()).await.expect("it ends");
    growing.abort();
    server.cont();
    tokio::time::sleep(LEASE).await;
    until_held(&mut raw, 0).await;
    assert!(permit.is_lost());
}

/// The growth needs a runtime, as an acquire does; the docs say so.
#[test]
fn a_smaller_weight_needs_no_runtime() {
    let server = RedisServer::start();
    let runtime = Runtime::new().expect("a runtime");
    let permit = runtime.block_on(async {
        let store = store_at(server.url()).await;
        let permit = store.acquire(claim(9).with_weight(3)).await;
        permit.expect("there is room")
    });
    let clone = permit.clone();
    let shrinking = thread::spawn(move || clone.resize(1).now_or_never());
    shrinking.join().expect("it does not panic");
    assert_eq!(permit.weight(), 1);
    runtime.block_on(async {
        let mut raw = Raw::connect(server.port()).await;
        let freed = async || raw.zcard(HELD).await == 1;
        eventually("two units are free", BOUND, freed).await;
    });
}
