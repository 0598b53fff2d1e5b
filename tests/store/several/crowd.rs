//! The crowd of one account waits in that account's own queue.

use std::time::Duration;
use testing::{levels::claims, stores::Store};
use tower_semaphore::{Claims, Permit, Semaphore};

use crate::conformance::queue::until_queued;

const LIMITS: [u32; 3] = [1, 5_000, 2];

fn waiting(account: &str) -> Claims {
    let long = Duration::from_secs(60);
    let claims = claims(account, LIMITS);
    let claims = claims.map(|claim| claim.with_wait(long).with_max_waiting(2_000));
    claims.into()
}

async fn granted(store: &Store, account: &str) -> Permit {
    let permit = store.acquire_all(claims(account, LIMITS).into()).await;
    permit.expect("there is room")
}

/// Another account is granted at once where there is room, and next where there is none.
async fn delays_no_other_account(store: Store, crowd: usize) {
    let [account, _, fleet] = claims("ann", LIMITS);
    let ann = granted(&store, "ann").await;
    let crowd: Vec<_> = (0..crowd)
        .map(|_| tokio::spawn(store.acquire_all(waiting("ann"))))
        .collect();
    until_queued(&store, &account, crowd.len() as u32).await;

    let bob = granted(&store, "bob").await;
    let cid = tokio::spawn(store.acquire_all(waiting("cid")));
    until_queued(&store, &fleet, 1).await;
    assert!(bob.release().await);
    let cid = cid.await.expect("no panic").expect("it is granted");
    assert!(crowd.iter().all(|waiter| !waiter.is_finished()));
    for waiter in &crowd {
        waiter.abort();
    }
    drop((ann, cid));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_waiters_of_an_account_delay_no_other_account_in_memory() {
    delays_no_other_account(testing::stores::memory(), 1_000).await;
}

#[cfg(feature = "redis")]
mod redis {
    use super::delays_no_other_account;
    use testing::{redis::RedisServer, stores};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_waiters_of_an_account_delay_no_other_account_in_redis() {
        let server = RedisServer::start();
        let store = stores::redis(&server.url()).await;
        delays_no_other_account(store, 1_000).await;
    }

    /// Fewer, because each polls four times a second.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_hundred_waiters_of_an_account_delay_no_other_account_level_by_level() {
        let server = RedisServer::start();
        let store = stores::supplied(&server.url()).await;
        delays_no_other_account(store, 100).await;
    }
}
