//! Usage under load, beside what the holders themselves wrote down.

use super::{Store, claim, facts, keys, revoke, shown, usage};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use tokio::task::JoinSet;
use tower_semaphore::{Permit, Policy, Semaphore};

facts! {
    usage_under_load_is_what_holders_wrote_down
    permits_that_are_revoked_under_load_are_lost_and_no_others_are
}

const LIMIT: u32 = 20;

/// A pseudo-random number (splitmix64).
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z ^ (z >> 27)
}

/// Takes and drops permits, and changes their weights, until it is over. Returns those that it holds
/// then, by their labels.
async fn work(store: Store, worker: u64, is_over: Arc<AtomicBool>) -> HashMap<String, Permit> {
    let mut held: HashMap<String, Permit> = HashMap::new();
    let mut round = 0;
    while !is_over.load(SeqCst) {
        round += 1;
        let random = mix(worker * 1_000_003 + round);
        let label = format!("worker {worker}, round {round}");
        let claim = claim("a", LIMIT).with_weight(1 + (random % 3) as u32);
        if let Ok(permit) = store.acquire(claim.with_label(label.clone())).await {
            if random.is_multiple_of(5) {
                let _ = permit.resize(1 + (random % 4) as u32).await;
            }
            held.insert(label, permit);
        }
        if held.len() > 2 {
            let label = held.keys().next().cloned().expect("one");
            held.remove(&label);
        }
        tokio::task::yield_now().await;
    }
    held
}

/// What is held after some workers have worked meanwhile.
async fn worked(store: &Store, meanwhile: impl Future<Output = ()>) -> HashMap<String, Permit> {
    let is_over = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    (0..6).for_each(|worker| {
        workers.spawn(work(Arc::clone(store), worker, Arc::clone(&is_over)));
    });
    meanwhile.await;
    is_over.store(true, SeqCst);
    workers.join_all().await.into_iter().flatten().collect()
}

async fn usage_under_load_is_what_holders_wrote_down(store: Store) {
    let held = worked(&store, async {
        for _ in 0..100 {
            let usage = usage(&store, "a").await;
            let units: u32 = usage.held.iter().map(|info| info.weight).sum();
            assert!(units <= LIMIT && usage.units <= LIMIT, "{usage:?}");
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    })
    .await;
    let units: u32 = held.values().map(Permit::weight).sum();
    let usage = shown(&store, "a", "all releases are done", |usage| {
        usage.units == units
    })
    .await;
    assert_eq!(usage.held.len(), held.len());
    for info in &usage.held {
        let permit = &held[info.label.as_deref().expect("a label")];
        assert_eq!(permit.weight(), info.weight, "{info:?}");
    }
    assert_eq!(keys(&store, &Policy::DEFAULT).await.len(), 1);
}

async fn permits_that_are_revoked_under_load_are_lost_and_no_others_are(store: Store) {
    let mut revoked = Vec::new();
    let slot = &mut revoked;
    let held = worked(&store, async {
        for round in 0..100 {
            let usage = usage(&store, "a").await;
            if let Some(info) = usage
                .held
                .get(mix(round) as usize % usage.held.len().max(1))
                // Units that were added to a permit which was just released have none.
                && let Some(label) = info.label.clone()
                && revoke(&store, "a", &info.id).await
            {
                slot.push(label);
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    })
    .await;
    assert!(!revoked.is_empty());
    let is_revoked = |label: &String| revoked.contains(label);
    let units = held.iter().filter(|(label, _)| !is_revoked(label));
    let units: u32 = units.map(|(_, permit)| permit.weight()).sum();
    shown(&store, "a", "all releases are done", |usage| {
        usage.units == units
    })
    .await;
    for (label, permit) in &held {
        if is_revoked(label) {
            let lost = tokio::time::timeout(super::BOUND, permit.lost());
            lost.await.expect("it is told");
        }
        assert_eq!(permit.is_lost(), is_revoked(label), "{label}");
    }
}
