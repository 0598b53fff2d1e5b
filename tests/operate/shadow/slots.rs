//! Claims under limits in shadow (trials) and claims in force may both wait. Trials do not use the room
//! (`max_waiting_total`) that claims in force need.
//!
//! Promises: P12, P25.

use super::rig::{Noted, ann, claims, job, run, send};
use std::time::Duration;
use testing::wait::eventually;
use tower::{Layer, service_fn};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, MemorySemaphore, Permit, Semaphore,
};

const BOUND: Duration = Duration::from_secs(20);

/// The largest number of claims of a process that may wait.
const MOST: u32 = 4;

fn on_trial() -> Claim {
    Claim::new("bob").with_policy("trial").with_limit(1)
}

/// Lets trials wait until the next trial finds no room to wait. Returns the permit that all of them wait for.
async fn overload(store: &Noted) -> Permit {
    let held = store.acquire(on_trial()).await.expect("there is room");
    let service = ConcurrencyLimitLayer::new(1, claims, store.clone())
        .with_wait(BOUND * 3)
        .with_shadow(true)
        .layer(service_fn(run));
    eventually("the trial is overloaded", BOUND, async || {
        assert_eq!(send(&service, job([on_trial()], 0)).await.status(), 200);
        let refusals = store.refusals();
        refusals
            .iter()
            .any(|error| matches!(error, AcquireError::Overloaded))
    })
    .await;
    held
}

async fn assert_trials_leave_room(store: impl Semaphore) {
    let store = Noted::new(store);
    let _held = overload(&store).await;
    let ann = || ann().with_limit(1).with_wait(BOUND);
    let first = store.acquire(ann()).await.expect("it is free");
    let waiting: Vec<_> = (0..MOST)
        .map(|_| tokio::spawn(store.acquire(ann())))
        .collect();
    // Long enough for a refusal to arrive.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(first);
    for claim in waiting {
        let answer = claim.await.expect("no panic");
        drop(answer.expect("those in force find room to wait"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_memory_an_overloaded_trial_leaves_room_for_claims_in_force() {
    assert_trials_leave_room(MemorySemaphore::builder().max_waiting_total(MOST).build()).await;
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread")]
async fn over_redis_an_overloaded_trial_leaves_room_for_claims_in_force() {
    let server = testing::redis::RedisServer::start();
    let store = tower_semaphore::RedisSemaphore::builder().max_waiting_total(MOST);
    assert_trials_leave_room(store.connect(server.url()).await.expect("it connects")).await;
}
