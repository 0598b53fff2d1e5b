//! Thousands of random ends and revocations. Afterwards nothing is held and no claim waits, and no gauge ever went
//! below zero.
//!
//! Promises: P25.

use super::exposition::{BOUND, gauges, install, until_gauges, value};
use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use testing::{
    rng::Rng,
    stores::{Store, listed},
    wait::within,
};
use tokio::{
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};
use tower_semaphore::{AcquireError, Claim, Claims, Key, Permit, Policy};

const TASKS: usize = 50;
const KEYS: usize = 40;
const POLICY: &str = "storm in memory";
const OPERATIONS: usize = 5_000;
/// The longest time for which most permits are held, in ms.
const HOLD: u64 = 6;

struct Storm {
    store: Store,
    /// Ends the storm: set once a permit was revoked and the gauges have shown permits and waiters. Tasks read this
    /// flag instead of the metrics, which take milliseconds.
    is_over: AtomicBool,
}

impl Storm {
    /// Claims one limit or two. Some claims wait.
    async fn acquire(&self, rng: &mut Rng) -> Result<Permit, AcquireError> {
        let wait = rng.millis(0..HOLD);
        let claim = |key: usize, limit| {
            let claim = Claim::new(key).with_limit(limit).with_policy(POLICY);
            claim.with_wait(wait * u32::from(key.is_multiple_of(3)))
        };
        let narrow = claim(rng.below(KEYS), 1 + rng.below(2) as u32);
        if rng.once_in(4) {
            let both = Claims::from([narrow, claim(KEYS, 20)]);
            self.store.acquire_all(both).await
        } else {
            self.store.acquire(narrow).await
        }
    }

    /// Ends a permit in a random way.
    async fn end(&self, permit: Permit, rng: &mut Rng) {
        let clone = permit.clone();
        match rng.below(6) {
            0 => drop(permit.release().await),
            1 => {
                // The release is queued but not awaited.
                drop(permit.release());
                drop(permit.release());
            }
            2 => {
                permit.end_after(rng.millis(0..3));
                permit.lost().await;
            }
            3 => {
                // Some are held for much longer than the others.
                let most = if rng.once_in(3) { 20 } else { 1 };
                let _ = timeout(rng.millis(0..HOLD * most), permit.lost()).await;
            }
            4 => {
                let panics = async move {
                    let _permit = permit;
                    yield_now().await;
                    // A panic that prints nothing.
                    resume_unwind(Box::new(()));
                };
                assert!(tokio::spawn(panics).await.is_err());
            }
            _ => drop(permit),
        }
        drop(clone);
    }

    /// Sets `is_over` if a permit was revoked, and both gauges (permits and waiters) were above one.
    fn end_if_shown(&self, most: (f64, f64)) {
        let is_shown = most.0 > 1.0 && most.1 > 1.0;
        let revoked = [("policy", POLICY), ("by", "revoked")];
        let has_revoked = value("tower_semaphore_lost_permits_total", &revoked) > 0.0;
        self.is_over
            .store(is_shown && has_revoked, Ordering::Relaxed);
    }

    async fn task(self: Arc<Self>, mut rng: Rng) {
        let mut operations = 0;
        while operations < OPERATIONS / TASKS || !self.is_over.load(Ordering::Relaxed) {
            let patience = rng.millis(0..HOLD / 2);
            let acquired = match rng.once_in(3) {
                // Cancelled at a random moment.
                true => timeout(patience, self.acquire(&mut rng.another()))
                    .await
                    .ok(),
                false => Some(self.acquire(&mut rng.another()).await),
            };
            operations += 1;
            if let Some(Ok(permit)) = acquired {
                self.end(permit, &mut rng).await;
            }
        }
    }

    /// Revokes holders and waiters of one key after the other.
    async fn revoke(&self) {
        let policy = Policy::from(POLICY);
        for key in (0..=KEYS).cycle().map(Key::from) {
            sleep(Duration::from_millis(5)).await;
            let usage = self.store.usage(&policy, &key).await;
            let usage = usage.expect("it lists its holders");
            let held = usage.held.iter().map(|held| &held.id);
            let waiting = usage.waiting.iter().map(|waiting| &waiting.id);
            for id in held.chain(waiting).take(2) {
                let revoked = self.store.revoke(&policy, &key, id).await;
                revoked.expect("it is a store of holders");
            }
        }
    }

    /// Runs the storm, and reads the gauges during it.
    async fn run(self) {
        install();
        let (storm, mut rng) = (Arc::new(self), Rng::new(17));
        let mut tasks: JoinSet<()> = (0..TASKS)
            .map(|_| Arc::clone(&storm).task(rng.another()))
            .collect();
        let operated = Arc::clone(&storm);
        let revoking = tokio::spawn(async move { operated.revoke().await });
        let mut most = (0.0_f64, 0.0_f64);
        while !tasks.is_empty() {
            let (held, waiting) = gauges(POLICY);
            assert!(
                held >= 0.0 && waiting >= 0.0,
                "{held} held, {waiting} waiting"
            );
            most = (most.0.max(held), most.1.max(waiting));
            storm.end_if_shown(most);
            sleep(Duration::from_millis(50)).await;
            while let Some(ended) = tasks.try_join_next() {
                ended.expect("no task panics");
            }
        }
        revoking.abort();
        until_gauges(POLICY, (0.0, 0.0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_a_storm_in_memory() {
    let storm = Storm {
        store: listed(),
        is_over: AtomicBool::new(false),
    };
    within("the storm ends", BOUND * 5, storm.run()).await;
}
