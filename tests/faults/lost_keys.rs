//! Keys vanish under load: all of them, or one of a semaphore's, as by an eviction.

use crate::in_flight::{InFlight, One};
use futures_util::future::join_all;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, rng::Rng, wait::eventually};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

const LEASE: Duration = Duration::from_millis(1_500);
/// A refresh interval, and what a busy machine takes.
const TOLD: Duration = Duration::from_millis(500 + 2_000);
const BOUND: Duration = Duration::from_secs(20);
const LIMIT: usize = 6;
/// Permits that are held all the time.
const STREAMS: usize = 3;
const TASKS: u64 = 12;
const HELD: &str = "semaphore:{concurrency:a}:held";

fn claim() -> Claim {
    Claim::new("a").with_limit(LIMIT as u32)
}

/// Two processes' stores at work on one key.
struct Fixture {
    _server: RedisServer,
    raw: Raw,
    in_flight: InFlight,
    streams: Vec<(Permit, One)>,
    stop: CancellationToken,
    load: JoinSet<()>,
}

/// Short permits, some from the queue, until the end. A loss is for its holder to see; the work goes on.
async fn work(store: RedisSemaphore, in_flight: InFlight, mut rng: Rng) {
    loop {
        let wait = rng.millis(0..400) * u32::from(rng.once_in(2));
        if let Ok(permit) = store.acquire(claim().with_wait(wait)).await {
            let one = in_flight.begin();
            sleep(rng.millis(5..60)).await;
            drop((one, permit));
        }
        sleep(rng.millis(1..5)).await;
    }
}

impl Fixture {
    async fn start() -> Self {
        let server = RedisServer::start();
        let builder = || RedisSemaphore::builder().lease(LEASE);
        let ours = builder().connect(server.url()).await.expect("it connects");
        let other = builder().connect(server.url()).await.expect("it connects");
        let mut fixture = Self {
            raw: Raw::connect(server.port()).await,
            _server: server,
            in_flight: InFlight::default(),
            streams: Vec::new(),
            stop: CancellationToken::new(),
            load: JoinSet::new(),
        };
        for _ in 0..STREAMS {
            let permit = ours.acquire(claim()).await.expect("there is room");
            fixture.streams.push((permit, fixture.in_flight.begin()));
        }
        for seed in 0..TASKS {
            let store = [&ours, &other][seed as usize % 2].clone();
            let work = work(store, fixture.in_flight.clone(), Rng::new(seed));
            let stop = fixture.stop.clone();
            fixture.load.spawn(async move {
                stop.run_until_cancelled(work).await;
            });
        }
        fixture.goes_on().await;
        assert_eq!(fixture.in_flight.most(), LIMIT);
        fixture
    }

    /// Waits until many more permits have been granted.
    async fn goes_on(&self) {
        let before = self.in_flight.begun();
        eventually("permits are granted", BOUND, async || {
            self.in_flight.begun() > before + 40
        })
        .await;
    }

    /// Each stream is told.
    async fn is_told(&self) {
        for (permit, _) in &self.streams {
            let told = timeout(TOLD, permit.lost()).await;
            told.expect("its holder is told");
        }
    }

    /// Ends the load. Returns once each stream has its unit again, and nothing else is held.
    async fn settles(mut self) {
        self.stop.cancel();
        while self.load.join_next().await.is_some() {}
        eventually("each stream is back", BOUND, async || {
            let is_held = |(permit, _): &(Permit, One)| !permit.is_lost();
            self.streams.iter().all(is_held) && self.raw.zcard(HELD).await == STREAMS
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_under_load_lets_in_a_limit_more_at_most_and_holders_know_and_come_back() {
    let mut fixture = Fixture::start().await;
    assert_eq!(fixture.raw.cmd(&["FLUSHALL"]).await.text(), "OK");
    fixture.is_told().await;
    fixture.goes_on().await;
    let most = fixture.in_flight.most();
    println!("{most} in flight under a limit of {LIMIT}");
    assert!((LIMIT + 1..=2 * LIMIT).contains(&most), "{most} in flight");
    fixture.settles().await;
}

/// Deletes one key of the semaphore under load.
async fn evict(key: &str) {
    let mut fixture = Fixture::start().await;
    let name = format!("semaphore:{{concurrency:a}}:{key}");
    for _ in 0..3 {
        fixture.raw.cmd(&["DEL", &name]).await;
        if key == "held" {
            fixture.is_told().await;
            break;
        }
        fixture.goes_on().await;
    }
    fixture.goes_on().await;
    let most = fixture.in_flight.most();
    // The other keys say nothing of what is held.
    let allowed = if key == "held" { 2 * LIMIT } else { LIMIT };
    println!("{key}: {most} in flight under a limit of {LIMIT}");
    assert!(most <= allowed, "{key}: {most} in flight");
    fixture.settles().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_of_a_semaphore_that_is_evicted_under_load_lets_in_no_more_than_a_flush_does() {
    join_all(["held", "queue", "alive", "token"].map(evict)).await;
}
