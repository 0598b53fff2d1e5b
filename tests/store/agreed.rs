//! Random crowds with and without flows: the stores in memory and in Redis serve them in the same order.
//!
//! Promises: P12, P16.

use crate::conformance::BOUND;
use futures_util::{future::select_all, poll};
use std::{sync::Arc, task::Poll};
use testing::{redis::RedisServer, rng::Rng, stores::Store};
use tokio::task::JoinHandle;
use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Permit, RedisSemaphore, Semaphore};

const SEEDS: u64 = 40;
const STEPS: usize = 60;
/// The shares of flows, up to the largest.
const SHARES: [u32; 6] = [1, 1, 2, 3, 4, 100];

type Answer = Result<Permit, AcquireError>;

/// The outcome of a claim, with the claim's number.
#[derive(Debug, PartialEq)]
enum Outcome {
    Full(usize),
    Granted(usize),
}

/// Claims for one key that are granted one at a time.
struct Crowd {
    store: Store,
    /// A claim that does not fit while the permit is held.
    claim: Claim,
    held: Option<Permit>,
    /// The waiting claims by number, in the order of their arrival.
    waiters: Vec<(usize, JoinHandle<Answer>)>,
    outcomes: Vec<Outcome>,
}

impl Crowd {
    async fn new(store: &Store, key: u64, limit: u32) -> Self {
        let claim = Claim::new(key.to_string()).with_limit(limit);
        let held = store.acquire(claim.clone().with_weight(limit)).await;
        Self {
            store: Arc::clone(store),
            claim,
            held: Some(held.expect("there is room")),
            waiters: Vec::new(),
            outcomes: Vec::new(),
        }
    }

    /// Adds a claim to the queue. It is refused if the queue is full.
    async fn join(&mut self, number: usize, claim: Claim) {
        let mut acquire = self.store.acquire(claim.with_wait(BOUND * 4));
        let mut answer = poll!(&mut acquire);
        if answer.is_pending() {
            self.wait_until_handled().await;
            answer = poll!(&mut acquire);
        }
        match answer {
            Poll::Pending => self.waiters.push((number, tokio::spawn(acquire))),
            Poll::Ready(Err(AcquireError::QueueFull { .. })) => {
                self.outcomes.push(Outcome::Full(number));
            }
            Poll::Ready(answer) => panic!("{answer:?}"),
        }
    }

    /// Waits until the store has handled all earlier claims and cancellations. It answers a later claim after them.
    async fn wait_until_handled(&self) {
        let refused = self.store.acquire(self.claim.clone()).await;
        let is_full = matches!(refused, Err(AcquireError::Full { .. }));
        assert!(is_full, "{refused:?}");
    }

    async fn leave(&mut self, at: usize) {
        let (_, waiter) = self.waiters.remove(at);
        waiter.abort();
        assert!(waiter.await.is_err(), "it was aborted");
        self.wait_until_handled().await;
    }

    /// Releases the held permit, and waits for the next grant.
    async fn serve(&mut self) {
        let held = self.held.take().expect("one is held");
        assert!(held.release().await);
        let waiters = self.waiters.iter_mut().map(|(_, waiter)| waiter);
        let (granted, at, _) = select_all(waiters).await;
        let granted = granted.expect("no panic");
        self.held = Some(granted.expect("it is granted"));
        let (number, _) = self.waiters.remove(at);
        self.outcomes.push(Outcome::Granted(number));
    }
}

/// Runs the schedule of a seed on a store. Returns the outcomes in order.
async fn run(store: &Store, seed: u64) -> Vec<Outcome> {
    let mut rng = Rng::new(seed);
    let limit = rng.one_of(&[1, 1, 3]);
    let mut crowd = Crowd::new(store, seed, limit).await;
    for number in 0..STEPS {
        let waiting = crowd.waiters.len();
        match rng.below(10) {
            0..=5 => {
                let claim = random_claim(&mut rng, &crowd.claim);
                crowd.join(number, claim).await;
            }
            6..=7 if waiting > 1 => crowd.leave(rng.below(waiting)).await,
            8..=9 if waiting > 1 => crowd.serve().await,
            _ => {}
        }
    }
    while !crowd.waiters.is_empty() {
        crowd.serve().await;
    }
    crowd.outcomes
}

/// A random claim of one of four flows, or of none.
fn random_claim(rng: &mut Rng, claim: &Claim) -> Claim {
    let limit = claim.limit().unwrap_or_default();
    let flow = rng.below(5);
    // The weight is more than half of the limit, so one grant leaves no room for the next.
    let (limit, weight) = (2 * limit - 1, limit + rng.below(limit as usize) as u32);
    let claim = claim.clone().with_limit(limit).with_weight(weight);
    let claim = claim.with_max_waiting(8 + rng.below(30) as u32);
    match flow {
        0 => claim,
        flow => claim
            .with_flow(flow.to_string())
            .with_share(rng.one_of(&SHARES)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_is_served_in_the_same_order_in_memory_and_in_redis() {
    let server = RedisServer::start();
    // With this long lease no waiter polls during the test.
    let redis = RedisSemaphore::builder()
        .lease(BOUND * 60)
        .timeout(BOUND / 4);
    let redis: Store = Arc::new(redis.connect(server.url()).await.expect("it connects"));
    let memory: Store = Arc::new(MemorySemaphore::new());
    let mut all = Vec::new();
    for seed in 0..SEEDS {
        let (in_memory, in_redis) = (run(&memory, seed).await, run(&redis, seed).await);
        assert_eq!(in_redis, in_memory, "seed {seed}");
        all.extend(in_redis);
    }
    let is_granted = |outcome: &&Outcome| matches!(outcome, Outcome::Granted(_));
    let granted = all.iter().filter(is_granted);
    let (granted, all) = (granted.count(), all.len());
    // Both outcomes are frequent enough to be compared.
    assert!(
        granted > 400 && all > granted + 50,
        "{granted} of {all} are granted"
    );
}
