//! What is true once a change or a release was answered.

use super::{BOUND, HELD, claim, fixture, grown, store_at};
use futures_util::FutureExt;
use std::thread;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::runtime::Runtime;
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
