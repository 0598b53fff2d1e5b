//! The metrics of budgets count each unit by its use: reserved, spent, freed or lost.
//!
//! Promises: P25, P26.

use super::exposition::{install, value};
use std::time::Duration;
use tower_semaphore::{Claim, MemorySemaphore, Operate, Permit, Policy, Semaphore};

const UNITS: &str = "tower_semaphore_budget_units_total";

fn claim(policy: &'static str) -> Claim {
    let claim = Claim::new("a").with_policy(policy).with_limit(1_000);
    claim.with_window(Duration::from_secs(3_600))
}

async fn reservation(store: &MemorySemaphore, policy: &'static str) -> Permit {
    let permit = store.acquire(claim(policy).with_estimate(100)).await;
    permit.expect("there is room")
}

/// The units of a policy: reserved, spent, freed and lost.
fn units(policy: &str) -> [f64; 4] {
    ["reserved", "spent", "freed", "lost"].map(|used| {
        let labels = [("store", "memory"), ("policy", policy), ("use", used)];
        value(UNITS, &labels)
    })
}

#[tokio::test]
async fn each_reserved_unit_is_spent_freed_or_lost() {
    install();
    let store = MemorySemaphore::builder().holders(true).build();
    let settled = reservation(&store, "budget-settled").await;
    settled.settle("budget-settled", 30);
    settled.settle("budget-settled", 40);
    assert_eq!(units("budget-settled"), [100.0, 40.0, 0.0, 0.0]);
    drop(settled);
    assert_eq!(units("budget-settled"), [100.0, 40.0, 60.0, 0.0]);

    drop(reservation(&store, "budget-unsettled").await);
    assert_eq!(units("budget-unsettled"), [100.0, 100.0, 0.0, 0.0]);

    let exceeded = reservation(&store, "budget-exceeded").await;
    exceeded.settle("budget-exceeded", 150);
    drop(exceeded);
    assert_eq!(units("budget-exceeded"), [100.0, 150.0, 0.0, 0.0]);

    let (policy, key) = (Policy::from_static("budget-revoked"), "a".into());
    let revoked = reservation(&store, "budget-revoked").await;
    revoked.settle("budget-revoked", 20);
    let usage = store.usage(&policy, &key).await.expect("it is known");
    let id = &usage.held[0].id;
    assert!(
        store
            .revoke(&policy, &key, id)
            .await
            .expect("it is answered")
    );
    drop(revoked);
    assert_eq!(units("budget-revoked"), [100.0, 20.0, 0.0, 80.0]);
}

#[tokio::test]
async fn a_rate_is_spent_and_a_refused_claim_uses_nothing() {
    install();
    let store = MemorySemaphore::new();
    drop(store.acquire(claim("budget-rates").with_weight(900)).await);
    let refused = store.acquire(claim("budget-rates").with_weight(200)).await;
    assert!(refused.is_err());
    assert_eq!(units("budget-rates"), [0.0, 900.0, 0.0, 0.0]);
}
