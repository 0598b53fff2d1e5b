//! Usage and revocations under load, compared with the permits that the workers hold.
//!
//! Promises: P24.

use super::{
    Store, Usage, claim, distinct, facts_of_operators, granted, ids, keys, revoke, until_notified,
    usage, wait_for_usage, waiting,
};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{rng::Rng, stores::listed};
use tokio::{
    task::{JoinSet, yield_now},
    time::sleep,
};
use tower_semaphore::{AcquireError, Permit, Policy, Semaphore};

facts_of_operators! {
    usage_under_load_agrees_with_the_permits_of_holders
    under_load_exactly_the_revoked_permits_are_lost
}

const LIMIT: u32 = 20;

/// True once the load must end.
type Over = Arc<AtomicBool>;

/// Runs this number of workers until `until` has ended. Returns their results.
async fn working<F>(
    count: u64,
    mut work: impl FnMut(u64, Over) -> F,
    until: impl Future<Output = ()>,
) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let over = Over::default();
    let workers: JoinSet<_> = (0..count).map(|at| work(at, Arc::clone(&over))).collect();
    until.await;
    over.store(true, SeqCst);
    workers.join_all().await
}

/// Takes and drops permits, and changes their weights. Returns the permits that it holds at the end, by their labels.
async fn work(store: Store, worker: u64, over: Over) -> HashMap<String, Permit> {
    let (mut held, mut rng, mut round) = (HashMap::new(), Rng::new(worker), 0);
    while !over.load(SeqCst) {
        round += 1;
        let label = format!("worker {worker}, round {round}");
        let claim = claim("a", LIMIT).with_weight(1 + rng.below(3) as u32);
        if let Ok(permit) = store.acquire(claim.with_label(label.clone())).await {
            if rng.once_in(5) {
                let _ = permit.resize(1 + rng.below(4) as u32).await;
            }
            held.insert(label, permit);
        }
        if held.len() > 2 {
            let label = held.keys().next().cloned().expect("one");
            held.remove(&label);
        }
        yield_now().await;
    }
    held
}

/// Runs six workers until `until` has ended. Returns the permits that they hold at the end, by their labels.
async fn worked(store: &Store, until: impl Future<Output = ()>) -> HashMap<String, Permit> {
    let work = |at, over| work(Arc::clone(store), at, over);
    let held = working(6, work, until).await;
    held.into_iter().flatten().collect()
}

/// Waits until exactly these units are held, because releases take a moment.
async fn until_held(store: &Store, units: u32) -> Usage {
    wait_for_usage(store, "a", "it is done", |usage| usage.units == units).await
}

async fn usage_under_load_agrees_with_the_permits_of_holders(store: Store) {
    let held = worked(&store, async {
        for _ in 0..100 {
            let usage = usage(&store, "a").await;
            let units: u32 = usage.held.iter().map(|info| info.weight).sum();
            assert!(units <= LIMIT && usage.units <= LIMIT, "{usage:?}");
            sleep(Duration::from_millis(3)).await;
        }
    })
    .await;
    let usage = until_held(&store, held.values().map(Permit::weight).sum()).await;
    assert_eq!(usage.held.len(), held.len());
    for info in &usage.held {
        let permit = &held[info.label.as_deref().expect("a label")];
        assert_eq!(permit.weight(), info.weight, "{info:?}");
    }
    assert_eq!(keys(&store, &Policy::DEFAULT).await.len(), 1);
}

async fn under_load_exactly_the_revoked_permits_are_lost(store: Store) {
    let (mut revoked, mut rng) = (Vec::new(), Rng::new(23));
    let labels = &mut revoked;
    let held = worked(&store, async {
        for _ in 0..100 {
            let usage = usage(&store, "a").await;
            let one = usage.held.get(rng.below(usage.held.len().max(1)));
            // After a permit's release, units that were added to it may still be shown for a moment, without a label.
            if let Some(info) = one
                && let Some(label) = info.label.clone()
                && revoke(&store, "a", &info.id).await
            {
                labels.push(label);
            }
            sleep(Duration::from_millis(3)).await;
        }
    })
    .await;
    assert!(!revoked.is_empty());
    let is_revoked = |label: &String| revoked.contains(label);
    let kept = held.iter().filter(|(label, _)| !is_revoked(label));
    until_held(&store, kept.map(|(_, permit)| permit.weight()).sum()).await;
    for (label, permit) in &held {
        if is_revoked(label) {
            until_notified(permit).await;
        }
        assert_eq!(permit.is_lost(), is_revoked(label), "{label}");
    }
}

/// Claims wait, are granted, are revoked and are dropped, at random moments.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_are_revoked_between_the_queue_and_the_permit_are_freed_once() {
    const LIMIT: u32 = 2;
    let store = listed();
    let wait = |_, over: Over| {
        let store = Arc::clone(&store);
        async move {
            let (mut held, mut refused) = (0, 0);
            while !over.load(SeqCst) {
                let waits = waiting("a", LIMIT).with_weight(1 + held % 2);
                match store.acquire(waits).await {
                    Ok(permit) => held += u32::from(!permit.is_lost()),
                    Err(AcquireError::Revoked) => refused += 1,
                    Err(error) => panic!("{error:?}"),
                }
                yield_now().await;
            }
            (held, refused)
        }
    };
    let revoking = async {
        let mut revoked = 0;
        while revoked < 500 {
            let usage = usage(&store, "a").await;
            assert!(usage.units <= LIMIT, "{usage:?}");
            let both = [ids(&usage.held), ids(&usage.waiting)].concat();
            assert_eq!(distinct(&both), both.len(), "{usage:?}");
            // One of the first ten, in turn.
            if let Some(id) = both.get(revoked % 10 % both.len().max(1)) {
                revoked += usize::from(revoke(&store, "a", id).await);
            }
            yield_now().await;
        }
    };
    let ends = working(8, wait, revoking).await;
    assert!(ends.iter().any(|(held, _)| *held > 0), "{ends:?}");
    assert!(ends.iter().any(|(_, refused)| *refused > 0), "{ends:?}");
    let all = granted(&store, &claim("a", LIMIT).with_weight(LIMIT)).await;
    assert_eq!(usage(&store, "a").await.units, LIMIT);
    assert!(all.release().await);
    assert_eq!(usage(&store, "a").await.held, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_that_move_from_one_permit_to_another_are_shown_once() {
    // Many permits between the two in the list make a usage slow, so that units move while it is taken.
    const BETWEEN: u32 = 200;
    const HEAVY: u32 = 100;
    const LIMIT: u32 = BETWEEN + HEAVY + 1;
    let store = listed();
    let first = granted(&store, &claim("a", LIMIT).with_weight(HEAVY)).await;
    let mut between = Vec::new();
    for _ in 0..BETWEEN {
        between.push(granted(&store, &claim("a", LIMIT)).await);
    }
    let permits = [first, granted(&store, &claim("a", LIMIT)).await];
    // Moves units from one permit to the other and back.
    let moving = |_, over: Over| {
        let permits = permits.clone();
        async move {
            let mut times = 0;
            while !over.load(SeqCst) {
                for (from, to) in [(0, 1), (1, 0)] {
                    permits[from].resize(1).await.expect("it is held");
                    permits[to].resize(HEAVY).await.expect("there is room");
                }
                times += 1;
                yield_now().await;
            }
            times
        }
    };
    let looking = async {
        for _ in 0..2_000 {
            let usage = usage(&store, "a").await;
            let listed: u32 = usage.held.iter().map(|info| info.weight).sum();
            assert!(listed <= usage.units, "{listed} of {}", usage.units);
            assert!(usage.units <= LIMIT, "{}", usage.units);
            yield_now().await;
        }
    };
    assert!(working(1, moving, looking).await[0] > 10);
}
