//! Permits over grants of the test's own.

use futures_util::FutureExt;
use std::{
    future::ready,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
};
use tokio::sync::Notify;
use tower_semaphore::{
    Acquire, AcquireError, Claim, MemorySemaphore, Permit, Policy, Semaphore,
    semaphore::{BoxFuture, ClaimError, Grant, Loss, MAX_WEIGHT, Units},
};

/// Units whose growth waits until a test lets it go on.
#[derive(Default)]
struct Gated {
    weight: AtomicU32,
    gate: Notify,
    shrinks: AtomicU32,
    degraded: AtomicBool,
    loss: Loss,
}

struct Handle(Arc<Gated>);

impl Grant for Handle {
    fn token(&self) -> Option<u64> {
        Some(1)
    }

    fn loss(&self) -> &Loss {
        &self.0.loss
    }

    fn is_degraded(&self) -> bool {
        self.0.degraded.load(SeqCst)
    }

    fn weight(&self) -> Option<u32> {
        Some(self.0.weight.load(SeqCst))
    }

    fn grow(&self, units: Units) -> BoxFuture<Result<(), AcquireError>> {
        let gated = Arc::clone(&self.0);
        Box::pin(async move {
            gated.gate.notified().await;
            gated.weight.fetch_add(units.weight(), SeqCst);
            Ok(())
        })
    }

    fn shrink(&self, units: u32) -> Result<BoxFuture<()>, AcquireError> {
        self.0.shrinks.fetch_add(1, SeqCst);
        self.0.weight.fetch_sub(units, SeqCst);
        Ok(Box::pin(ready(())))
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }
}

/// A grant that has only what it must have.
#[derive(Default)]
struct Plain(Loss);

impl Grant for Plain {
    fn token(&self) -> Option<u64> {
        Some(1)
    }

    fn loss(&self) -> &Loss {
        &self.0
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }
}

/// A store of plain grants.
struct Simple;

impl Semaphore for Simple {
    fn acquire(&self, claim: Claim) -> Acquire {
        let permit = |units| Permit::new(Plain::default(), units, claim.weight());
        Acquire::ready(claim.units().map(permit))
    }
}

/// A composite of two permits.
struct Both([Permit; 2], Loss);

impl Grant for Both {
    fn token(&self) -> Option<u64> {
        Some(1)
    }

    fn loss(&self) -> &Loss {
        &self.1
    }

    fn parts(&self) -> &[Permit] {
        &self.0
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }
}

fn permit(grant: impl Grant) -> Permit {
    let units = Claim::new("alice").with_limit(9).units();
    Permit::new(grant, units.expect("a claim"), 1)
}

fn gated() -> (Arc<Gated>, Permit) {
    let gated = Arc::<Gated>::default();
    gated.weight.store(1, SeqCst);
    (Arc::clone(&gated), permit(Handle(gated)))
}

#[tokio::test]
async fn a_change_of_weight_waits_for_that_of_a_clone() {
    let (gated, permit) = gated();
    let clone = permit.clone();
    let (mut first, mut second) = (pin!(permit.resize(5)), pin!(clone.resize(5)));
    assert!(first.as_mut().now_or_never().is_none());
    assert!(second.as_mut().now_or_never().is_none());
    // Both would grow by 4, if the second had looked at the weight already.
    gated.gate.notify_waiters();
    first.await.expect("there is room");
    second.await.expect("it has the weight already");
    assert_eq!(permit.weight(), 5);
}

#[tokio::test]
async fn a_weight_that_stays_asks_nothing_of_the_store() {
    let (gated, permit) = gated();
    permit.resize(1).await.expect("it has the weight already");
    assert_eq!(gated.shrinks.load(SeqCst), 0);
}

#[tokio::test]
async fn a_permit_has_the_greatest_weight_at_most() {
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

#[test]
fn a_permit_is_degraded_when_one_of_its_parts_is() {
    let ((_, one), (other, two)) = (gated(), gated());
    let (part, both) = (two.clone(), permit(Both([one, two], Loss::default())));
    assert!(!part.is_degraded() && !both.is_degraded());
    other.degraded.store(true, SeqCst);
    assert!(part.is_degraded() && both.is_degraded());
}

#[test]
fn a_permit_that_was_lost_and_came_back_is_not_lost() {
    let (gated, permit) = gated();
    gated.loss.set();
    assert!(permit.is_lost());
    gated.loss.clear();
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
async fn each_permit_of_a_simple_store_has_the_policy_of_its_claim() {
    let policies = ["account", "fleet"];
    let claims = policies.map(|policy| Claim::new("alice").with_policy(policy).with_limit(1));
    let permit = Simple.acquire_all(claims.into()).await;
    let tokens = permit.expect("there is room").tokens();
    assert_eq!(
        tokens,
        policies.map(|policy| (Policy::from(policy), Some(1)))
    );
}
