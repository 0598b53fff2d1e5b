//! A claim that is polled in one runtime after another. `mod.rs` lists these facts.

use super::{BOUND, Store};
use std::{future::poll_fn, pin::Pin, task::Poll, time::Duration};
use testing::wait::eventually;
use tokio::{
    runtime::Builder,
    task::spawn_blocking,
    time::{sleep, timeout},
};
use tower_semaphore::{Acquire, AcquireError, Claim};

const POLICY: &str = "runtimes";

fn claim(key: &'static str) -> Claim {
    Claim::new(key).with_limit(1).with_policy(POLICY)
}

/// Polls an acquire in another runtime, which has separate connections, and ends that runtime: after a while, or with
/// `at_once` while the first call of the acquire is in flight.
async fn polled_elsewhere(store: &Store, mut acquire: Acquire, at_once: bool) -> Acquire {
    let store = store.clone();
    let moved = spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            // The connection is established while these first claims run.
            for _ in 0..3 {
                let permit = store.acquire(claim("elsewhere")).await;
                permit.expect("there is room").release().await;
                sleep(Duration::from_millis(20)).await;
            }
            let once = poll_fn(|cx| {
                let polled = Pin::new(&mut acquire).poll(cx);
                assert!(polled.is_pending(), "there is no room");
                Poll::Ready(())
            });
            once.await;
            if !at_once {
                let waits = timeout(Duration::from_millis(300), &mut acquire).await;
                assert!(waits.is_err(), "there is no room");
            }
        });
        acquire
    });
    moved.await.expect("no panic")
}

pub(crate) async fn a_claim_waits_on_when_its_runtime_has_ended(store: Store) {
    for at_once in [false, true] {
        let key = if at_once { "at once" } else { "later" };
        let held = store.acquire(claim(key)).await.expect("there is room");
        let waiter = || store.acquire(claim(key).with_wait(BOUND * 3));
        let mut first = polled_elsewhere(&store, waiter(), at_once).await;
        // If the first claim's call has reached the server, the claim keeps its place in the queue.
        let mut second = waiter();
        let pause = Duration::from_millis(300);
        assert!(timeout(pause, &mut first).await.is_err());
        assert!(timeout(pause, &mut second).await.is_err());
        held.release().await;
        let first = timeout(BOUND, first).await.expect("it is the first");
        let first = first.expect("there is room");
        assert!(timeout(pause, &mut second).await.is_err());
        first.release().await;
        let second = timeout(BOUND, second).await.expect("it is the next");
        assert!(second.is_ok());
    }
}

pub(crate) async fn a_claim_times_out_in_another_runtime(store: Store) {
    let held = store.acquire(claim("ends")).await.expect("there is room");
    let wait = Duration::from_millis(700);
    let waits = store.acquire(claim("ends").with_wait(wait));
    let moved = polled_elsewhere(&store, waits, false).await;
    let answer = timeout(BOUND, moved).await.expect("its wait is over");
    assert!(
        matches!(answer, Err(AcquireError::TimedOut { .. })),
        "{answer:?}"
    );
    held.release().await;
    eventually("nothing is left of it", BOUND, async || {
        store.acquire(claim("ends")).await.is_ok()
    })
    .await;
}
