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
    AcquireError, Claim, Permit,
    semaphore::{BoxFuture, Grant, Loss},
};

/// Units whose growth waits until a test lets it go on.
#[derive(Default)]
struct Gated {
    weight: AtomicU32,
    gate: Notify,
    degraded: AtomicBool,
    loss: Loss,
}

struct Handle(Arc<Gated>);

impl Grant for Handle {
    fn token(&self) -> u64 {
        1
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

    fn grow(&self, units: u32) -> BoxFuture<Result<(), AcquireError>> {
        let gated = Arc::clone(&self.0);
        Box::pin(async move {
            gated.gate.notified().await;
            gated.weight.fetch_add(units, SeqCst);
            Ok(())
        })
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(true))
    }
}

/// A composite of two permits.
struct Both([Permit; 2], Loss);

impl Grant for Both {
    fn token(&self) -> u64 {
        1
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

#[test]
fn a_permit_is_degraded_when_one_of_its_parts_is() {
    let ((_, one), (other, two)) = (gated(), gated());
    let (part, both) = (two.clone(), permit(Both([one, two], Loss::default())));
    assert!(!part.is_degraded() && !both.is_degraded());
    other.degraded.store(true, SeqCst);
    assert!(part.is_degraded() && both.is_degraded());
}
