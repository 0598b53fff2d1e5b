//! Wrapped stores behind the layer: they count and refuse as the inner store does.
//!
//! Promises: P21.

use super::rig::{is_refused, ok, send, stalled, values};
use http::Response;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};
use testing::{
    http_requests::{limit, request},
    stores::{Store, facts_of_two},
    wait::eventually,
    wrappers::{Delayed, Faulty, Split},
};
use tokio::time::{Duration, Instant};
use tower::Layer;
use tower_semaphore::{MemorySemaphore, Operate, Policy};

const BOUND: Duration = Duration::from_secs(20);

/// Sets or removes an operator's limit for ann, and waits until that is in force.
async fn set_limit(store: &Store, limit: Option<u32>) {
    let (policy, key) = (Policy::DEFAULT, "ann".into());
    let set = store.set_limit(&policy, Some(&key), limit, "").await;
    set.expect("the store answers");
    eventually("it is in force", BOUND, async || {
        let usage = store.usage(&policy, &key).await;
        let usage = usage.expect("the store answers");
        usage.limit.filter(|_| usage.is_limit_set) == limit
    })
    .await;
}

async fn wait_until_free(store: &Store) {
    super::same::wait_until_free(store, "ann").await;
}

fn quota<B>(answer: &Response<B>) -> Vec<String> {
    values(answer, "ratelimit-policy")
}

pub(crate) async fn a_wrapped_store_counts_and_shows_the_limit_in_force(store: Store) {
    for (name, wrapped) in super::same::wrapped(&store) {
        let service = limit(1, wrapped).layer(stalled());
        let layer_quota = r#""concurrency";q=1;qu="concurrent-requests""#;
        let first = send(&service, request("ann")).await;
        let refused = send(&service, request("ann")).await;
        assert!(is_refused(&refused), "{name}");
        assert_eq!(
            [quota(&first), quota(&refused)],
            [[layer_quota], [layer_quota]],
            "{name}"
        );

        set_limit(&store, Some(2)).await;
        let operator_quota = r#""concurrency";q=2;qu="concurrent-requests""#;
        let second = send(&service, request("ann")).await;
        let refused = send(&service, request("ann")).await;
        assert!(is_refused(&refused), "{name}");
        let seen = [quota(&second), quota(&refused)];
        assert_eq!(seen, [[operator_quota], [operator_quota]], "{name}");

        set_limit(&store, Some(0)).await;
        let closed = send(&service, request("ann")).await;
        assert_eq!(closed.status(), 403, "{name}");
        set_limit(&store, None).await;
        drop((first, second));
        wait_until_free(&store).await;
    }
}

/// A timed-out wait and a full queue report the limit in force, as a full key does.
pub(crate) async fn every_refusal_shows_the_limit_in_force(store: Store) {
    set_limit(&store, Some(1)).await;
    for (name, wrapped) in super::same::wrapped(&store) {
        let waiting = limit(7, Arc::clone(&wrapped)).with_wait(Duration::from_millis(20));
        let without_queue = waiting.clone().with_max_waiting(0);
        let held = send(&limit(7, wrapped).layer(stalled()), request("ann")).await;
        for layer in [waiting, without_queue] {
            let refused = send(&layer.layer(ok()), request("ann")).await;
            assert!(is_refused(&refused), "{name}");
            let seen = r#""concurrency";q=1;qu="concurrent-requests""#;
            assert_eq!(quota(&refused), [seen], "{name}");
        }
        drop(held);
        wait_until_free(&store).await;
    }
    set_limit(&store, None).await;
}

pub(crate) async fn a_faulty_store_refuses_until_the_fault_is_over(store: Store) {
    let fails = Arc::new(AtomicBool::new(true));
    let faulty = Faulty {
        store: Arc::clone(&store),
        fails: Arc::clone(&fails),
    };
    let service = limit(1, faulty).layer(ok());
    assert_eq!(send(&service, request("ann")).await.status(), 503);
    wait_until_free(&store).await;
    fails.store(false, SeqCst);
    assert_eq!(send(&service, request("ann")).await.status(), 200);
}

pub(crate) async fn a_split_store_counts_in_the_store_that_it_chooses(store: Store) {
    let other = MemorySemaphore::new();
    let split = Split {
        prefix: "an",
        with: Arc::clone(&store),
        without: other.clone(),
    };
    let service = limit(1, split).layer(stalled());
    let ann = send(&service, request("ann")).await;
    let bob = send(&service, request("bob")).await;
    assert_eq!([ann.status(), bob.status()], [200, 200]);
    assert_eq!(other.busy_keys(), 1);
    for account in ["ann", "bob"] {
        assert!(is_refused(&send(&service, request(account)).await));
    }
    // Under an outer limit in one of the two stores, only keys of that store are nested.
    drop((ann, bob));
    wait_until_free(&store).await;
    for (account, status) in [("ann", 500), ("bob", 200)] {
        let outer = limit(1, Arc::clone(&store)).layer(service.clone());
        let answer = send(&outer, request(account)).await;
        assert_eq!(answer.status(), status, "{account}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_delays_the_claim_and_a_drop_leaves_nothing_behind() {
    let memory = MemorySemaphore::new();
    let delayed = Delayed {
        store: Arc::new(memory.clone()),
        by: Duration::from_secs(3),
    };
    let service = limit(1, delayed).layer(ok());
    let start = Instant::now();
    assert_eq!(send(&service, request("ann")).await.status(), 200);
    assert_eq!(start.elapsed().as_secs(), 3);
    let dropped = tokio::time::timeout(Duration::from_secs(1), send(&service, request("ann")));
    assert!(dropped.await.is_err());
    assert_eq!(memory.busy_keys(), 0);
}

facts_of_two! {
    a_wrapped_store_counts_and_shows_the_limit_in_force
    every_refusal_shows_the_limit_in_force
    a_faulty_store_refuses_until_the_fault_is_over
    a_split_store_counts_in_the_store_that_it_chooses
}
