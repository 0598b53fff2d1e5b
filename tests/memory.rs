//! The store in memory under many threads, judged by counts and flags of its users' own.

use futures_util::FutureExt;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    thread,
    time::Duration,
};
use tower_semaphore::{Claim, MemorySemaphore, Permit, Semaphore};

const THREADS: u64 = 8;

/// Generous: nothing here is about time.
const BOUND: Duration = Duration::from_secs(10);

/// Numbers that look random (splitmix64).
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

fn try_take(store: &MemorySemaphore, claim: Claim) -> Option<Permit> {
    let answer = store.acquire(claim).now_or_never();
    answer.expect("a try does not wait").ok()
}

/// Who uses a resource now, in units.
#[derive(Default)]
struct Users(AtomicU32);

impl Users {
    /// Holds `weight` units for a moment.
    fn hold(&self, permit: Permit, weight: u32, limit: u32) {
        let held = self.0.fetch_add(weight, SeqCst) + weight;
        assert!(held <= limit, "{held} of {limit}");
        thread::yield_now();
        self.0.fetch_sub(weight, SeqCst);
        drop(permit);
    }
}

#[test]
fn threads_that_try_never_hold_more_than_the_limit() {
    let (store, users, granted) = (MemorySemaphore::new(), Users::default(), AtomicU32::new(0));
    let work = |seed| {
        for round in 0..20_000 {
            let weight = 1 + (mix(seed + THREADS * round) % 3) as u32;
            let claim = Claim::new("a").with_limit(5).with_weight(weight);
            if let Some(permit) = try_take(&store, claim) {
                users.hold(permit, weight, 5);
                granted.fetch_add(1, SeqCst);
            }
        }
    };
    thread::scope(|scope| {
        let work = &work;
        (0..THREADS).for_each(|seed| drop(scope.spawn(move || work(seed))));
    });
    assert!(granted.into_inner() > 1_000);
    assert_eq!(store.keys(), 0);
}

#[test]
fn keys_that_come_and_go_are_held_by_one_at_a_time_and_their_tokens_grow() {
    const KEYS: usize = 30_000;
    let store = MemorySemaphore::new();
    let held: Vec<AtomicBool> = (0..KEYS).map(|_| AtomicBool::new(false)).collect();
    let tokens: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    // Enough for all keys that come to go as soon as they are idle.
    let crowd: Vec<_> = (0..20_000)
        .map(|key| try_take(&store, Claim::new(format!("crowd {key}")).with_limit(1)))
        .collect();
    let work = |seed| {
        for round in 0..100_000 {
            let dice = mix(seed + THREADS * round) as usize;
            let key = if dice.is_multiple_of(2) {
                dice / 2 % 8
            } else {
                dice / 2 % KEYS
            };
            let Some(permit) = try_take(&store, Claim::new(key as u64).with_limit(1)) else {
                continue;
            };
            assert!(!held[key].swap(true, SeqCst), "two hold {key}");
            let last = tokens[key].swap(permit.token(), SeqCst);
            assert!(last < permit.token(), "{last} came before {permit:?}");
            held[key].store(false, SeqCst);
        }
    };
    thread::scope(|scope| {
        let work = &work;
        (0..THREADS).for_each(|seed| drop(scope.spawn(move || work(seed))));
    });
    assert_eq!(store.keys(), crowd.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_meets_a_claim_that_waits_lets_it_in() {
    let store = MemorySemaphore::new();
    let claim = Claim::new("a").with_limit(1);
    for round in 0..5_000 {
        let held = try_take(&store, claim.clone()).expect("it is free");
        let waits = claim.clone().with_wait(BOUND);
        let other = store.clone();
        let waiter = tokio::spawn(async move { other.acquire(waits).await });
        // Now before the claim is there, now after, now at the same moment.
        for _ in 0..round % 4 {
            tokio::task::yield_now().await;
        }
        drop(held);
        let answer = waiter.await.expect("it did not panic");
        drop(answer.expect("its turn comes"));
    }
}

/// Half of the tasks wait and the others only try, so that the line comes and goes all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn who_waits_among_those_who_try_is_let_in() {
    static USERS: Users = Users(AtomicU32::new(0));
    let store = MemorySemaphore::new();
    let tasks = (0..THREADS).map(|seed| {
        let store = store.clone();
        tokio::spawn(async move {
            for round in 0..5_000 {
                let weight = 1 + (mix(seed + THREADS * round) % 2) as u32;
                let claim = Claim::new("a").with_limit(3).with_weight(weight);
                let permit = match seed % 2 {
                    0 => Some(
                        store
                            .acquire(claim.with_wait(BOUND))
                            .await
                            .expect("its turn comes"),
                    ),
                    _ => try_take(&store, claim),
                };
                if let Some(permit) = permit {
                    USERS.hold(permit, weight, 3);
                }
                tokio::task::yield_now().await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("it did not panic");
    }
    assert_eq!(store.keys(), 0);
}
