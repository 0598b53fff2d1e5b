//! A server that stops and crashes again and again under claims of all kinds.

use crate::server::{LEASE, builder, know_each_other};
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::{redis::RedisServer, rng::Rng};
use tokio::{task::JoinHandle, time::sleep};
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore, redis::WhenUnavailable::Share};

/// Both limits: a multiple of the processes, so that nothing is rounded up.
const LIMIT: u32 = 20;
const PROCESSES: usize = 5;

/// Units in flight, and at most.
#[derive(Default)]
struct Units(AtomicI64, AtomicI64);

impl Units {
    fn add(&self, units: u32) {
        let units = i64::from(units);
        let now = self.0.fetch_add(units, SeqCst) + units;
        self.1.fetch_max(now, SeqCst);
    }

    fn subtract(&self, units: u32) {
        self.0.fetch_sub(i64::from(units), SeqCst);
    }
}

#[derive(Default)]
struct Witness {
    narrow: Units,
    wide: Units,
}

/// Requests one after the other: some wait, and some are under two limits. Those under one change their
/// weight.
async fn load(store: RedisSemaphore, witness: Arc<Witness>, mut rng: Rng) {
    let narrow = Claim::new("a").with_limit(LIMIT);
    let wide = Claim::new("all").with_policy("fleet").with_limit(LIMIT);
    loop {
        let wait = if rng.once_in(3) {
            rng.millis(10..2_000)
        } else {
            Duration::ZERO
        };
        let (narrow, wide) = (narrow.clone().with_wait(wait), wide.clone().with_wait(wait));
        if rng.once_in(2) {
            if let Ok(permit) = store.acquire_all([narrow, wide].into()).await {
                witness.narrow.add(1);
                witness.wide.add(1);
                sleep(rng.millis(5..100)).await;
                witness.narrow.subtract(1);
                witness.wide.subtract(1);
                drop(permit);
            }
        } else if let Ok(permit) = store.acquire(narrow.with_weight(2)).await {
            witness.narrow.add(2);
            sleep(rng.millis(5..50)).await;
            let units = resized(&permit, &witness.narrow, rng.once_in(2)).await;
            sleep(rng.millis(5..50)).await;
            witness.narrow.subtract(units);
            drop(permit);
        }
        sleep(rng.millis(2..15)).await;
    }
}

/// A permit of two units that gets another one or loses one, if it can. Returns how many it has.
async fn resized(permit: &Permit, units: &Units, grows: bool) -> u32 {
    if !grows {
        units.subtract(1);
        return match permit.resize(1).await {
            Ok(_) => 1,
            Err(_) => {
                units.add(1);
                2
            }
        };
    }
    match permit.resize(3).await {
        Ok(_) => {
            units.add(1);
            3
        }
        Err(_) => 2,
    }
}

async fn most_in_flight(lease: Duration, seed: u64) -> (i64, i64) {
    let mut server = RedisServer::start();
    let mut stores = Vec::new();
    for _ in 0..PROCESSES {
        let store = builder(Share).lease(lease).connect(server.url()).await;
        stores.push(store.expect("a server"));
    }
    know_each_other(&server, PROCESSES).await;
    let witness = Arc::<Witness>::default();
    let load = |task: usize| {
        let (store, rng) = (
            stores[task % PROCESSES].clone(),
            Rng::new(seed + task as u64),
        );
        tokio::spawn(load(store, witness.clone(), rng))
    };
    let tasks: Vec<JoinHandle<()>> = (0..60).map(load).collect();
    let (start, mut rng) = (Instant::now(), Rng::new(seed + 99));
    while start.elapsed() < Duration::from_secs(10) {
        sleep(rng.millis(50..2_500)).await;
        let pause = rng.millis(50..2_500);
        if rng.once_in(2) {
            server.kill();
            sleep(pause).await;
            server.restart();
        } else {
            server.stop();
            sleep(pause).await;
            server.cont();
        }
    }
    sleep(Duration::from_secs(1)).await;
    tasks.iter().for_each(JoinHandle::abort);
    (witness.narrow.1.load(SeqCst), witness.wide.1.load(SeqCst))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_comes_and_goes_under_claims_of_all_kinds_breaks_no_limit() {
    for (seed, lease) in [(1, LEASE * 2), (2, Duration::from_secs(3_600))] {
        let most = most_in_flight(lease, seed).await;
        let bound = i64::from(LIMIT);
        assert!(most.0 > bound / 2, "there is no load: {most:?}");
        assert!(
            most.0 <= bound && most.1 <= bound,
            "{most:?} with {lease:?}"
        );
    }
}
