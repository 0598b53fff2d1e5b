//! Five stores under load, a server that is killed or stopped, and an independent count of the units in flight.
//!
//! `OUTAGE_SECONDS=60 cargo test --test outage -- five_stores --nocapture` sets the length of the outage.
//!
//! Promises: P1, P19.

use crate::server::{BOUND, HELD, builder, claim, wait_until_known};
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};
use testing::{redis::RedisServer, resp::Raw, rng::Rng, wait::eventually};
use tokio::{task::JoinSet, time::sleep};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable::Share};

/// The limit of each key. It is a multiple of the number of stores, so that no share is rounded up.
const LIMIT: u32 = 20;
const STORES: usize = 5;

/// Counts the units in flight, by the holders' own reports.
#[derive(Default)]
struct Units {
    in_flight: AtomicI64,
    most: AtomicI64,
    /// The number of calls of `add`.
    additions: AtomicUsize,
}

impl Units {
    fn add(&self, units: u32) {
        let units = i64::from(units);
        let now = self.in_flight.fetch_add(units, SeqCst) + units;
        self.most.fetch_max(now, SeqCst);
        self.additions.fetch_add(1, SeqCst);
    }

    fn subtract(&self, units: u32) {
        self.in_flight.fetch_sub(i64::from(units), SeqCst);
    }

    fn most(&self) -> i64 {
        self.most.load(SeqCst)
    }
}

/// Stores that have each learned from the server how many processes exist.
async fn stores(server: &RedisServer, lease: Duration) -> Vec<RedisSemaphore> {
    let mut stores = Vec::new();
    for _ in 0..STORES {
        let store = builder(Share).lease(lease).connect(server.url()).await;
        stores.push(store.expect("a server"));
    }
    wait_until_known(server, STORES).await;
    stores
}

/// Makes short requests one after another. A quarter of them may wait.
async fn make_short_requests(
    store: RedisSemaphore,
    key: &'static str,
    witness: Arc<Units>,
    mut rng: Rng,
) {
    loop {
        let wait = Duration::from_millis(if rng.once_in(4) { 300 } else { 0 });
        let claim = Claim::new(key).with_limit(LIMIT).with_wait(wait);
        match store.acquire(claim).await {
            Ok(permit) => {
                witness.add(1);
                sleep(rng.millis(5..120)).await;
                witness.subtract(1);
                drop(permit);
            }
            Err(_) => sleep(rng.millis(2..15)).await,
        }
    }
}

/// Starts a load on the keys a, b and c that exceeds the limits: each store has twelve tasks for each key.
fn start_load(stores: &[RedisSemaphore], witnesses: &[Arc<Units>; 3]) -> JoinSet<()> {
    let mut load = JoinSet::new();
    let tasks_of_a_store = 12 * 3;
    for task in 0..tasks_of_a_store * STORES {
        let key = task % 3;
        let (store, witness) = (
            stores[task / tasks_of_a_store].clone(),
            witnesses[key].clone(),
        );
        load.spawn(make_short_requests(
            store,
            ["a", "b", "c"][key],
            witness,
            Rng::new(task as u64),
        ));
    }
    load
}

fn outage() -> Duration {
    let seconds = env::var("OUTAGE_SECONDS").map(|text| text.parse().expect("a number"));
    Duration::from_secs(seconds.unwrap_or(6))
}

#[tokio::test(flavor = "multi_thread")]
async fn five_stores_keep_a_limit_while_the_server_is_gone_and_after_it_returns() {
    // Shorter than the outage, and long enough for a busy machine to refresh it.
    const LEASE: Duration = Duration::from_secs(4);
    let mut server = RedisServer::start();
    let stores = stores(&server, LEASE).await;
    let witnesses: [Arc<Units>; 3] = Default::default();
    // Two permits of each store, which are held during the whole test.
    let (mut streams, mut losses) = (Vec::new(), JoinSet::new());
    for store in stores.iter().chain(&stores) {
        let permit = store.acquire(claim(LIMIT)).await.expect("there is room");
        witnesses[0].add(1);
        streams.push(permit.clone());
        losses.spawn(async move { permit.lost().await });
    }
    let _load = start_load(&stores, &witnesses);
    let most = || witnesses.iter().map(|units| units.most()).max();
    let is_on = async || most() >= Some(LIMIT.into());
    eventually("the load uses up a limit", BOUND, is_on).await;
    assert!(losses.try_join_next().is_none(), "this machine is too busy");

    let begun = || {
        witnesses
            .iter()
            .map(|units| units.additions.load(SeqCst))
            .sum()
    };
    let before: usize = begun();
    server.kill();
    sleep(outage()).await;
    let during: usize = begun() - before;
    assert!(streams.iter().all(Permit::is_degraded), "each goes on");
    assert!(during > 100, "only {during} requests were admitted");
    assert!(most() <= Some(LIMIT.into()), "{:?} in flight", most());

    server.restart();
    // Two refresh intervals, and time for the server to start.
    let within = LEASE * 2 / 3 + Duration::from_secs(2);
    let are_back = async || !streams.iter().any(Permit::is_degraded);
    eventually("the server has the streams' units again", within, are_back).await;
    let held = Raw::connect(server.port()).await.zcard(HELD).await;
    assert!(held >= streams.len(), "{held} in the server");
    // Wait until all claims go to the server again, and for a while longer.
    sleep(Duration::from_secs(5)).await;
    assert!(most() <= Some(LIMIT.into()), "{:?} in flight", most());
    assert!(losses.try_join_next().is_none(), "a stream was lost");
}
