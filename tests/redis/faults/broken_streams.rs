//! Connections that deliver answers byte by byte, and end in the middle of an answer.
//!
//! Promises: P6.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{
    proxy::End,
    resp::Raw,
    rig::{BOUND, Rig, warm},
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

/// Long enough that no lease ends during the test.
const LEASE: Duration = Duration::from_secs(60);
/// Tolerates a busy machine, which may need seconds for a call. The ends of connections are noticed without a timeout.
const TIMEOUT: Duration = Duration::from_secs(10);
/// More than the calls that may be in flight, so that some calls carry several claims.
const KEYS: u32 = 10;

/// A claim for a full key. Each full key has a different limit.
fn full(number: u32) -> Claim {
    Claim::new(format!("full{number}")).with_limit(100 + number)
}

fn free(number: u32) -> Claim {
    Claim::new(format!("free{number}")).with_limit(1_000_000)
}

/// Claims in a loop and counts the answers. Each answer shows which key it is for, because each full key has a
/// different number of units.
async fn claim_on(store: RedisSemaphore, number: u32, answered: Arc<AtomicUsize>) {
    loop {
        for claim in [full(number), free(number)] {
            let is_full = claim.key().as_bytes().starts_with(b"full");
            match store.acquire(claim).await {
                Err(AcquireError::Store { .. }) => {
                    sleep(Duration::from_millis(20)).await;
                    continue;
                }
                Err(AcquireError::Full { limit, held, .. }) if is_full => {
                    assert_eq!((limit, held), (100 + number, 100 + number));
                }
                Ok(permit) if !is_full => assert!(permit.remaining() > 999_000, "{permit:?}"),
                other => panic!("{number}: {other:?}"),
            }
            answered.fetch_add(1, SeqCst);
        }
    }
}

/// Fills the keys without using the proxy.
async fn fill(rig: &Rig) -> (RedisSemaphore, Vec<Permit>) {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let store = builder.connect(rig.server.url()).await;
    let store = store.expect("it connects");
    warm(&store).await;
    let mut permits = Vec::new();
    for number in 0..KEYS {
        let all = full(number).with_weight(100 + number);
        permits.push(store.acquire(all).await.expect("there is room"));
    }
    (store, permits)
}

async fn units_of(raw: &mut Raw, keys: &str) -> usize {
    let mut units = 0;
    for key in raw.keys(keys).await {
        units += raw.zcard(&key).await;
    }
    units
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_in_single_bytes_over_connections_that_break_reach_their_claims() {
    let patient = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let mut rig = Rig::new(patient).await;
    let (_store, permits) = fill(&rig).await;
    rig.proxy.one_byte_replies(true);
    let (mut tasks, answered) = (JoinSet::new(), Arc::<AtomicUsize>::default());
    for number in 0..KEYS {
        tasks.spawn(claim_on(rig.store.clone(), number, Arc::clone(&answered)));
    }
    // Each way to end the connections is used twice.
    for end in [End::Close, End::HalfClose, End::Reset].repeat(2) {
        let before = answered.load(SeqCst);
        eventually("claims are answered", BOUND * 2, async || {
            if let Some(wrong) = tasks.try_join_next() {
                wrong.expect("each claim gets its own answer");
            }
            answered.load(SeqCst) > before + 10
        })
        .await;
        rig.proxy.kill(end);
    }
    tasks.shutdown().await;
    rig.proxy.one_byte_replies(false);
    // The acquire of a dropped claim may still run until its call ends.
    eventually(
        "the units of claims are released",
        TIMEOUT + BOUND,
        async || units_of(&mut rig.raw, "*:free*:held").await == 0,
    )
    .await;
    let filled = (0..KEYS).map(|number| 100 + number as usize).sum::<usize>();
    assert_eq!(units_of(&mut rig.raw, "*:full*:held").await, filled);
    drop(permits);
    rig.nothing_is_left(BOUND).await;
}
