//! Permits over grants that the tests implement, and refused weights of permits of the store in memory.
//!
//! Promises: P9.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tower_semaphore::{
    Acquire, AcquireError, Claim, Claims, MemorySemaphore, Permit, Semaphore,
    semaphore::{
        BoxFuture, ClaimError, Grant, LevelState, Loss, MAX_WEIGHT, Resize, Resizing, SemaphoreId,
        StoreError,
    },
};

/// A grant that a test can make lost or degraded.
#[derive(Clone, Default)]
struct Marked(Arc<Marks>);

#[derive(Default)]
struct Marks {
    loss: Loss,
    is_degraded: AtomicBool,
}

impl Grant for Marked {
    fn level(&self, _: usize) -> LevelState {
        let mut state = LevelState::new(1);
        state.is_degraded = self.0.is_degraded.load(SeqCst);
        state
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        None
    }

    fn loss(&self) -> &Loss {
        &self.0.loss
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }

    fn pause(&self, _: usize, _: Duration, _: &str) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        false
    }
}

/// A grant whose weights cannot change.
struct Plain {
    /// The weight at each level.
    weights: Vec<u32>,
    loss: Loss,
}

impl Grant for Plain {
    fn level(&self, level: usize) -> LevelState {
        let mut state = LevelState::new(self.weights[level]);
        state.token = Some(level as u64);
        state
    }

    fn semaphore(&self, _: usize) -> Option<SemaphoreId> {
        None
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn resize(&self, _: Vec<Resize>) -> Resizing<'_> {
        Box::pin(ready(Err(ClaimError::FixedWeight.into())))
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }

    fn pause(&self, _: usize, _: Duration, _: &str) -> BoxFuture<Result<(), StoreError>> {
        Box::pin(ready(Err(StoreError::new("the store has no pauses"))))
    }

    fn settle(&self, _level: usize, _used: u32) {}

    fn awaits_release(&self) -> bool {
        false
    }
}

/// A store whose permits have `Plain` grants.
struct Simple;

impl Semaphore for Simple {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let granted = |()| {
            let claims = claims.as_slice().iter();
            let held = claims.map(|claim| (claim, claim.weight()));
            let weights = held.clone().map(|(_, weight)| weight);
            let grant = Plain {
                weights: weights.collect(),
                loss: Loss::default(),
            };
            Permit::new(grant, held)
        };
        Acquire::ready(claims.check().map(granted))
    }
}

/// A permit, and its grant.
fn marked() -> (Marked, Permit) {
    let (marked, claim) = (Marked::default(), Claim::new("alice").with_limit(9));
    let permit = Permit::new(marked.clone(), [(&claim, 1)]);
    (marked, permit)
}

#[tokio::test]
async fn a_permit_weighs_at_most_max_weight() {
    let claim = Claim::new("alice").with_limit(2 * MAX_WEIGHT);
    let permit = MemorySemaphore::new().acquire(claim).await;
    let permit = permit.expect("there is room");
    permit.resize(MAX_WEIGHT).await.expect("there is room");
    let refused = permit.resize(MAX_WEIGHT + 1).await;
    let refused = refused.expect_err("it is too heavy");
    assert!(matches!(
        refused,
        AcquireError::Invalid {
            source: ClaimError::Weight { weight: 1_001, .. },
            ..
        }
    ));
    assert_eq!(permit.weight(), MAX_WEIGHT);
}

#[tokio::test]
async fn a_resize_at_a_policy_that_the_permit_lacks_is_invalid() {
    let claim = Claim::new("alice").with_limit(2);
    let permit = MemorySemaphore::new().acquire(claim).await;
    let permit = permit.expect("there is room");
    let refused = permit.resize_at(&"fleet".into(), 2).await;
    assert!(matches!(
        refused,
        Err(AcquireError::Invalid {
            source: ClaimError::NoLevel,
            ..
        })
    ));
    assert_eq!(permit.weight(), 1);
}

#[test]
fn a_permit_is_degraded_or_lost_when_its_outer_permit_is() {
    let (_, inner) = marked();
    let (outer_grant, outer) = marked();
    let both = inner.with_outer(&outer);
    assert!(!both.is_degraded() && !both.is_lost());
    outer_grant.0.is_degraded.store(true, SeqCst);
    outer_grant.0.loss.set();
    assert!(both.is_degraded() && both.is_lost());
}

#[test]
fn a_permit_that_was_lost_and_came_back_is_not_lost() {
    let (grant, permit) = marked();
    grant.0.loss.set();
    assert!(permit.is_lost());
    grant.0.loss.clear();
    assert!(!permit.is_lost());
}

#[tokio::test]
async fn a_simple_grant_is_never_degraded_and_keeps_its_weight() {
    let claim = Claim::new("alice").with_limit(9).with_weight(3);
    let permit = Simple.acquire(claim).await.expect("there is room");
    assert!(!permit.is_degraded());
    let refused = permit.resize(2).await;
    let refused = refused.expect_err("it cannot be changed");
    assert!(matches!(
        refused,
        AcquireError::Invalid {
            source: ClaimError::FixedWeight,
            ..
        }
    ));
    assert_eq!(permit.weight(), 3);
}

#[tokio::test]
async fn each_level_of_a_simple_store_has_the_policy_of_its_claim() {
    let policies = ["account", "fleet"];
    let claims = policies.map(|policy| Claim::new("alice").with_policy(policy).with_limit(1));
    let permit = Simple.acquire_all(claims.into()).await;
    let permit = permit.expect("there is room");
    let levels: Vec<_> = permit
        .levels()
        .map(|level| (level.policy().as_str(), level.token()))
        .collect();
    assert_eq!(levels, [("account", Some(0)), ("fleet", Some(1))]);
}
