//! Budgets: units that come back with time. A claim with an estimate reserves units. They are *settled* with the number
//! that was used: these are spent and come back with time, and the end of the permit frees the rest.
//!
//! Promises: P26.

mod charged;
mod claims;
mod operators;
mod random;
mod stuck;
mod utilisation;
mod waiting;

use futures_util::FutureExt;
use std::time::Duration;
use tower_semaphore::{
    AcquireError, Claim, Claims, MemorySemaphore, Operate, Permit, Policy, Semaphore,
    semaphore::Usage,
};

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// A claim of one unit of a rate, which is spent when it is granted.
fn rate(limit: u32, window: Duration) -> Claim {
    let claim = Claim::new("ann").with_policy("rate");
    claim.with_limit(limit).with_window(window)
}

/// A claim that reserves `estimate` tokens, and is settled with the tokens that were used.
fn tokens(limit: u32, window: Duration, estimate: u32) -> Claim {
    let claim = Claim::new("ann").with_policy("tokens").with_limit(limit);
    claim.with_window(window).with_estimate(estimate)
}

/// A claim under a limit of requests in flight.
fn flight(limit: u32) -> Claim {
    Claim::new("ann").with_limit(limit)
}

/// The answer to claims that do not wait.
fn answer(store: &MemorySemaphore, claims: impl Into<Claims>) -> Result<Permit, AcquireError> {
    let answer = store.acquire_all(claims.into()).now_or_never();
    answer.expect("it is answered at once")
}

fn granted(store: &MemorySemaphore, claims: impl Into<Claims>) -> Permit {
    answer(store, claims).expect("there is room")
}

/// The limit that refuses claims, the units in use there, and when time makes room.
fn refused(store: &MemorySemaphore, claims: impl Into<Claims>) -> (String, u32, Option<Duration>) {
    match answer(store, claims).expect_err("it is refused") {
        AcquireError::Full {
            policy,
            held,
            retry_after,
            ..
        } => (policy.to_string(), held, retry_after),
        error => panic!("{error:?}"),
    }
}

/// The usage of the key under a policy, as operators see it.
async fn usage_of(store: &MemorySemaphore, policy: &'static str) -> Usage {
    let usage = store.usage(&Policy::from_static(policy), &"ann".into());
    usage.await.expect("it is known")
}

/// Revokes a permit or a waiter, which has to exist.
async fn revoke(store: &MemorySemaphore, policy: &'static str, id: &str) {
    let revoked = store.revoke(&Policy::from_static(policy), &"ann".into(), id);
    assert!(revoked.await.expect("it is answered"));
}

/// The units of a policy's only budget that are spent, and those that are reserved.
async fn in_use(store: &MemorySemaphore, policy: &'static str) -> (u32, u32) {
    match usage_of(store, policy).await.budgets[..] {
        [] => (0, 0),
        [budget] => (budget.spent, budget.reserved),
        ref several => panic!("{several:?}"),
    }
}
