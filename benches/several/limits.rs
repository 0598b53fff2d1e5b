//! One limit and four limits, from narrow to wide.

use std::future::Future;
use tower_semaphore::{AcquireError, Claim, Claims, Permit, Policy, Semaphore};

const ROUTE: Policy = Policy::from_static("route");
const MODEL: Policy = Policy::from_static("model");
const FLEET: Policy = Policy::from_static("fleet");

/// Higher than the number of permits that are held or not yet released, so that no claim is refused.
pub(crate) const LIMIT: u32 = 10_000;

/// How a request acquires its limits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// The account's limit alone.
    One,
    /// The limits of the account, the route, the model and the fleet, in one step.
    AtOnce,
    /// The same four limits, one after another, as stacked layers do.
    Stacked,
}

/// The permits of a request.
pub(crate) enum Held {
    One(Permit),
    Stacked([Permit; 4]),
}

impl Held {
    /// Releases the permits, and waits until the store has answered.
    pub(crate) async fn release(self) {
        match self {
            Self::One(permit) => assert!(permit.release().await, "it was held"),
            Self::Stacked(permits) => {
                // Queues all releases before it awaits the first.
                for release in permits.each_ref().map(Permit::release) {
                    assert!(release.await, "it was held");
                }
            }
        }
    }
}

impl Way {
    /// Acquires from `store`, for a request of `account`.
    pub(crate) async fn acquire(
        self,
        store: &impl Semaphore,
        account: &str,
    ) -> Result<Held, AcquireError> {
        match self {
            Self::One => store.acquire(account_claim(account)).await.map(Held::One),
            Self::AtOnce => {
                let claims = Claims::from(four_claims(account));
                store.acquire_all(claims).await.map(Held::One)
            }
            Self::Stacked => {
                let [first, second, third, fourth] =
                    four_claims(account).map(|claim| store.acquire(claim));
                let permits = [first.await?, second.await?, third.await?, fourth.await?];
                Ok(Held::Stacked(permits))
            }
        }
    }
}

/// The names of the four semaphores, for rivals without policies.
pub(crate) fn names(account: &str) -> [&str; 4] {
    [account, "route", "model", "fleet"]
}

fn account_claim(account: &str) -> Claim {
    Claim::new(account.as_bytes()).with_limit(LIMIT)
}

fn four_claims(account: &str) -> [Claim; 4] {
    [
        account_claim(account),
        Claim::new("/completions")
            .with_limit(LIMIT)
            .with_policy(ROUTE),
        Claim::new("model-1").with_limit(LIMIT).with_policy(MODEL),
        Claim::new("all").with_limit(LIMIT).with_policy(FLEET),
    ]
}

/// The results of four steps, one after another.
pub(crate) async fn in_order<'a, T, F: Future<Output = T>>(
    names: [&'a str; 4],
    step: impl Fn(usize, &'a str) -> F,
) -> [T; 4] {
    let [first, second, third, fourth] = names;
    [
        step(0, first).await,
        step(1, second).await,
        step(2, third).await,
        step(3, fourth).await,
    ]
}
