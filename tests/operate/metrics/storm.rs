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
use testing::{rng::Rng, stores::Store, wait::within};
use tokio::{
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};
use tower_semaphore::{AcquireError, Claim, Claims, Key, MemorySemaphore, Operate, Permit, Policy};

const TASKS: usize = 50;
const KEYS: usize = 40;

struct Storm {
    store: Store,
    operator: Arc<dyn Operate>,
    policy: &'static str,
    operations: usize,
    /// The longest time that a permit is held, in ms.
    hold: u64,
    /// Returns true once the event that the storm must reach has happened.
    has_happened: fn() -> bool,
    /// Set once that event and a revocation have happened. The storm goes on until then. Its tasks only read this flag,
    /// because reading metrics takes milliseconds.
    is_over: AtomicBool,
}

impl Storm {
    /// Claims one limit or two. Some claims wait.
    async fn acquire(&self, rng: &mut Rng) -> Result<Permit, AcquireError> {
        let wait = rng.millis(0..self.hold);
        let claim = |key: usize, limit| {
            let claim = Claim::new(key).with_limit(limit).with_policy(self.policy);
            claim.with_wait(wait * u32::from(key.is_multiple_of(3)))
        };
        let narrow = claim(rng.below(KEYS), 1 + rng.below(2) as u32);
        match rng.once_in(4) {
            true => {
                let both = Claims::from([narrow, claim(KEYS, 20)]);
                self.store.acquire_all(both).await
            }
            false => self.store.acquire(narrow).await,
        }
    }

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
                // Some are held for longer than a lease lasts without refreshes.
                let most = if rng.once_in(3) { 20 } else { 1 };
                let _ = timeout(rng.millis(0..self.hold * most), permit.lost()).await;
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

    /// Ends the storm once everything has happened in it, and the gauges have shown it.
    fn look(&self, most: (f64, f64)) {
        let is_shown = most.0 > 1.0 && most.1 > 1.0;
        let revoked = [("policy", self.policy), ("by", "revoked")];
        let has_revoked = value("tower_semaphore_lost_permits_total", &revoked) > 0.0;
        self.is_over.store(
            is_shown && has_revoked && (self.has_happened)(),
            Ordering::Relaxed,
        );
    }

    /// A claim that the store cannot decide, because its connection stalls, does not count as an operation.
    async fn task(self: Arc<Self>, mut rng: Rng) {
        let mut operations = 0;
        while operations < self.operations / TASKS || !self.is_over.load(Ordering::Relaxed) {
            let patience = rng.millis(0..self.hold / 2);
            let acquired = match rng.once_in(3) {
                // Cancelled at a random moment.
                true => timeout(patience, self.acquire(&mut rng.another()))
                    .await
                    .ok(),
                false => Some(self.acquire(&mut rng.another()).await),
            };
            if let Some(Err(AcquireError::Store { .. })) = acquired {
                sleep(Duration::from_millis(20)).await;
                continue;
            }
            operations += 1;
            if let Some(Ok(permit)) = acquired {
                self.end(permit, &mut rng).await;
            }
        }
    }

    /// Revokes holders and waiters of one key after the other.
    async fn revoke(&self) {
        let policy = Policy::from(self.policy);
        for key in (0..=KEYS).cycle().map(Key::from) {
            sleep(Duration::from_millis(5)).await;
            let Ok(usage) = self.operator.usage(&policy, &key).await else {
                continue;
            };
            let held = usage.held.iter().map(|held| &held.id);
            let waiting = usage.waiting.iter().map(|waiting| &waiting.id);
            for id in held.chain(waiting).take(2) {
                // A store whose connection stalls may fail.
                let _ = self.operator.revoke(&policy, &key, id).await;
            }
        }
    }

    /// Runs the storm, and reads the gauges all the time.
    async fn run(self) {
        install();
        let (policy, storm, mut rng) = (self.policy, Arc::new(self), Rng::new(17));
        let mut tasks: JoinSet<()> = (0..TASKS)
            .map(|_| Arc::clone(&storm).task(rng.another()))
            .collect();
        let operated = Arc::clone(&storm);
        let revoking = tokio::spawn(async move { operated.revoke().await });
        let mut most = (0.0_f64, 0.0_f64);
        while !tasks.is_empty() {
            let (held, waiting) = gauges(policy);
            assert!(
                held >= 0.0 && waiting >= 0.0,
                "{held} held, {waiting} waiting"
            );
            most = (most.0.max(held), most.1.max(waiting));
            storm.look(most);
            sleep(Duration::from_millis(50)).await;
            while let Some(ended) = tasks.try_join_next() {
                ended.expect("no task panics");
            }
        }
        revoking.abort();
        until_gauges(policy, (0.0, 0.0)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_a_storm_in_memory() {
    let store = MemorySemaphore::builder().holders(true).build();
    let storm = Storm {
        store: Arc::new(store.clone()),
        operator: Arc::new(store),
        policy: "storm in memory",
        operations: 5_000,
        hold: 6,
        has_happened: || true,
        is_over: AtomicBool::new(false),
    };
    within("the storm ends", BOUND * 5, storm.run()).await;
}

#[cfg(feature = "redis")]
const OVER_REDIS: &str = "storm over Redis";

/// The number of permits lost with their leases.
#[cfg(feature = "redis")]
fn lost() -> f64 {
    let labels = [("policy", OVER_REDIS), ("by", "lease")];
    value("tower_semaphore_lost_permits_total", &labels)
}

/// Leases are short and the connection stalls for longer, so that sooner or later leases end while they are held.
#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_a_storm_over_redis() {
    use testing::rig::Rig;
    use tower_semaphore::RedisSemaphore;

    let lease = Duration::from_millis(800);
    let builder = RedisSemaphore::builder().lease(lease);
    let rig = Rig::new(builder.timeout(lease / 4)).await;
    let storm = Storm {
        store: Arc::new(rig.store.clone()),
        operator: Arc::new(rig.store.clone()),
        policy: OVER_REDIS,
        operations: 800,
        hold: 120,
        has_happened: || lost() > 0.0,
        is_over: AtomicBool::new(false),
    };
    let stalls = async {
        loop {
            sleep(lease * 2).await;
            rig.proxy.black_hole();
            sleep(lease * 3 / 2).await;
            rig.proxy.forward();
        }
    };
    tokio::select! {
        () = within("a lease ends in the storm", BOUND * 5, storm.run()) => {}
        () = stalls => {}
    }
}
