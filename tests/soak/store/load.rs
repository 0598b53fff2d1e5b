//! Callers that claim, wait, hang up, work and release, at random.

use super::{
    oracle::{Answer, Claimed, Oracle},
    plan::{Fault, Plan},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use testing::rng::Rng;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tower_semaphore::{Acquire, Claim, Permit, RedisSemaphore, Semaphore};

/// The limit of each key.
pub(crate) const LIMIT: u32 = 20;

/// Each key, with how many times its limit its callers are.
pub(crate) const KEYS: [(&str, u32); 2] = [("at-its-limit", 1), ("ten-times-over", 10)];

/// After this, a claim without an answer has none.
const GIVEN_UP: Duration = Duration::from_secs(3);

/// All callers of a process.
pub(crate) struct Load {
    pub(crate) oracle: Arc<Oracle>,
    pub(crate) plan: Plan,
    pub(crate) end: Instant,
}

/// A caller.
struct Caller {
    load: Arc<Load>,
    key: &'static str,
    /// Units of the key that are held here, as the callers see it.
    held: Arc<AtomicU32>,
    store: RedisSemaphore,
    rng: Rng,
}

/// What a caller claims.
struct Request {
    weight: u32,
    wait: Option<Duration>,
}

/// A claim of these units, as what follows has it.
fn claim(key: &'static str, weight: u32) -> Claim {
    Claim::new(key).with_limit(LIMIT).with_weight(weight)
}

/// A claim of all that a key has.
pub(crate) fn whole(key: &'static str) -> Claim {
    claim(key, LIMIT)
}

impl Load {
    /// Lets all callers do their work, spread over the stores, until it is over.
    pub(crate) async fn run(self: &Arc<Self>, stores: &[RedisSemaphore], mut rng: Rng) {
        let mut callers = JoinSet::new();
        for (key, times) in KEYS {
            let held = Arc::default();
            for number in 0..times * LIMIT {
                let caller = Caller {
                    load: Arc::clone(self),
                    key,
                    held: Arc::clone(&held),
                    store: stores[number as usize % stores.len()].clone(),
                    rng: rng.another(),
                };
                callers.spawn(caller.work());
            }
        }
        callers.join_all().await;
    }
}

impl Caller {
    async fn work(mut self) {
        while Instant::now() < self.load.end {
            let request = self.request();
            let mut claim = claim(self.key, request.weight);
            claim = claim.with_wait(request.wait.unwrap_or_default());
            let acquire = self.store.acquire(claim);
            match self.rng.once_in(5) {
                true => self.hang_up(acquire).await,
                false => self.insist(acquire, &request).await,
            }
            sleep(self.rng.millis(1..40)).await;
        }
    }

    fn request(&mut self) -> Request {
        let weight = 1 + u32::from(self.rng.once_in(8));
        let waits = self.rng.once_in(3);
        let wait = waits.then(|| self.rng.millis(10..600));
        Request { weight, wait }
    }

    /// Goes away before the answer, or just when it comes.
    async fn hang_up(&mut self, acquire: Acquire) {
        if self.rng.once_in(8) {
            return;
        }
        let trips = self.load.plan.trip.as_millis() as u64 * 2;
        let patience = self.rng.millis(0..trips + 20);
        drop(timeout(patience, acquire).await);
    }

    /// Stays until there is an answer.
    async fn insist(&mut self, acquire: Acquire, request: &Request) {
        let from = Instant::now();
        let bound = Oracle::budget(request.wait) + GIVEN_UP;
        let answer: Option<Answer> = timeout(bound, acquire).await.ok();
        let claimed = Claimed {
            key: self.key,
            wait: request.wait,
            from,
            answer: answer.as_ref(),
        };
        self.load.oracle.claim(&claimed);
        if let Some(Ok(permit)) = answer {
            self.keep_for_a_while(permit, request.weight).await;
        }
    }

    async fn keep_for_a_while(&mut self, permit: Permit, weight: u32) {
        let held = self.held.fetch_add(weight, SeqCst) + weight;
        if held > LIMIT && self.nothing_can_be_lost() {
            let example = format!("{held} of {LIMIT}");
            self.is_wrong("held more than there is", example);
        }
        sleep(self.rng.millis(2..20)).await;
        self.held.fetch_sub(weight, SeqCst);
        match self.rng.one_of(&[0, 1, 2, 3]) {
            0 => self.release(permit).await,
            1 => drop(thread::spawn(|| drop(permit))),
            _ => drop(permit),
        }
    }

    async fn release(&self, permit: Permit) {
        let lost = permit.is_lost();
        let held = timeout(GIVEN_UP, permit.release()).await.ok();
        if self.nothing_can_be_lost() && (lost || held != Some(true)) {
            let example = format!("lost {lost}, released {held:?}");
            self.is_wrong("lost what they held", example);
        }
    }

    /// Whether each permit must last: leases are long and the server is there.
    fn nothing_can_be_lost(&self) -> bool {
        self.load.plan.fault == Fault::None
    }

    fn is_wrong(&self, what: &str, example: String) {
        let oracle = &self.load.oracle;
        oracle.is_wrong(self.key, "its callers", what, example);
    }
}
