//! Data is lost under load: all keys vanish, one key of a semaphore is evicted, or a lagging replica replaces its
//! primary.
//!
//! Promises: P4, P6.

use futures_util::future::join_all;
use std::time::Duration;
use testing::{
    in_flight::{InFlight, One},
    proxy::Proxy,
    redis::RedisServer,
    resp::Raw,
    rng::Rng,
    wait::eventually,
};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// Long, so that a busy machine loses no permit and fails no claim. The timeout of a call is a third of it, the longest
/// that a store accepts.
const LEASE: Duration = Duration::from_secs(6);
/// The time within which holders notice a loss: a refresh interval, and slack for a busy machine.
const NOTICED: Duration = Duration::from_secs(2 + 3);
const BOUND: Duration = Duration::from_secs(20);
const LIMIT: usize = 6;
/// The number of permits that are held during the whole test.
const STREAMS: usize = 3;
const TASKS: u64 = 12;
const HELD: &str = "semaphore:2:{concurrency:a}:held";

fn claim() -> Claim {
    Claim::new("a").with_limit(LIMIT as u32)
}

/// Two stores that use one key, and some permits that are held during the whole test.
struct Crowd {
    in_flight: InFlight,
    streams: Vec<Stream>,
    stop: CancellationToken,
    load: JoinSet<()>,
}

/// A permit that is held during the whole test.
struct Stream {
    permit: Permit,
    _one: One,
}

/// Takes short permits in a loop, some from the queue. Lost permits do not stop the loop.
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

impl Crowd {
    /// Starts the load on the server at `url`. Returns once the limit is reached.
    async fn start(url: &str) -> Self {
        let builder = || RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
        let ours = builder().connect(url).await.expect("it connects");
        let other = builder().connect(url).await.expect("it connects");
        let mut crowd = Self {
            in_flight: InFlight::default(),
            streams: Vec::new(),
            stop: CancellationToken::new(),
            load: JoinSet::new(),
        };
        for _ in 0..STREAMS {
            let permit = ours.acquire(claim().with_label("stream")).await;
            crowd.streams.push(Stream {
                permit: permit.expect("there is room"),
                _one: crowd.in_flight.begin(),
            });
        }
        for seed in 0..TASKS {
            let store = [&ours, &other][seed as usize % 2].clone();
            let work = work(store, crowd.in_flight.clone(), Rng::new(seed));
            let stop = crowd.stop.clone();
            crowd.load.spawn(async move {
                stop.run_until_cancelled(work).await;
            });
        }
        crowd.until_more_are_granted().await;
        assert_eq!(crowd.in_flight.most(), LIMIT);
        crowd
    }

    /// Waits until many more permits have been granted: 40, several for each task.
    async fn until_more_are_granted(&self) {
        let before = self.in_flight.begun();
        eventually("permits are granted", BOUND, async || {
            self.in_flight.begun() > before + 40
        })
        .await;
    }

    /// The largest number of simultaneous holders, by their own count.
    fn most(&self) -> usize {
        self.in_flight.most()
    }

    /// Waits until each stream is notified of its loss or holds its unit again: a permit gets a unit back without a
    /// notification if one is free at its next refresh.
    async fn until_notified_or_back(&self, raw: &mut Raw) {
        eventually("each holder is notified, or back", NOTICED, async || {
            let held = raw.zmembers(HELD).await.into_iter();
            let back = held.filter(|(id, _)| id.ends_with(b".stream")).count();
            let lost = self.streams.iter().filter(|stream| stream.permit.is_lost());
            back + lost.count() >= STREAMS
        })
        .await;
    }

    /// Stops the load. Returns once each stream holds its unit again and no other unit is held.
    async fn until_only_streams_hold(mut self, raw: &mut Raw) {
        self.stop.cancel();
        while self.load.join_next().await.is_some() {}
        eventually("each stream is back", BOUND, async || {
            let is_held = |stream: &Stream| !stream.permit.is_lost();
            self.streams.iter().all(is_held) && raw.zcard(HELD).await == STREAMS
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_under_load_admits_at_most_twice_the_limit_and_notifies_or_restores_holders() {
    let server = RedisServer::start();
    let crowd = Crowd::start(&server.url()).await;
    let mut raw = Raw::connect(server.port()).await;
    assert_eq!(raw.cmd(&["FLUSHALL"]).await.text(), "OK");
    crowd.until_notified_or_back(&mut raw).await;
    crowd.until_more_are_granted().await;
    let most = crowd.most();
    println!("{most} in flight under a limit of {LIMIT}");
    assert!(most <= 2 * LIMIT, "{most} in flight");
    crowd.until_only_streams_hold(&mut raw).await;
}

/// Deletes one key of the semaphore under load.
async fn evict(key: &str) {
    let server = RedisServer::start();
    let crowd = Crowd::start(&server.url()).await;
    let mut raw = Raw::connect(server.port()).await;
    let name = format!("semaphore:2:{{concurrency:a}}:{key}");
    // Three times, but `held` only once, because each loss of that key may admit the limit once more.
    for _ in 0..3 {
        raw.cmd(&["DEL", &name]).await;
        if key == "held" {
            crowd.until_notified_or_back(&mut raw).await;
            break;
        }
        crowd.until_more_are_granted().await;
    }
    crowd.until_more_are_granted().await;
    // Only the key `held` records held permits.
    let (most, allowed) = (crowd.most(), if key == "held" { 2 * LIMIT } else { LIMIT });
    println!("{key}: {most} in flight under a limit of {LIMIT}");
    assert!(most <= allowed, "{key}: {most} in flight");
    crowd.until_only_streams_hold(&mut raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_key_of_a_semaphore_under_load_admits_no_more_than_a_flush() {
    join_all(["held", "queue", "alive", "token"].map(evict)).await;
}

async fn replica_of(server: &RedisServer) -> (RedisServer, Raw) {
    let replica = RedisServer::with(&["--replicaof", "127.0.0.1", &server.port().to_string()]);
    let mut raw = Raw::connect(replica.port()).await;
    eventually("the replica is in step", BOUND, async || {
        let info = raw.cmd(&["INFO", "replication"]).await;
        info.text().contains("master_link_status:up")
    })
    .await;
    (replica, raw)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_to_a_lagging_replica_admits_at_most_twice_the_limit_and_notifies_holders() {
    let mut primary = RedisServer::start();
    let proxy = Proxy::start(&primary).await;
    let (replica, mut raw) = replica_of(&primary).await;
    // From here on the replica receives no data, so it knows no permit.
    assert_eq!(raw.cmd(&["REPLICAOF", "NO", "ONE"]).await.text(), "OK");
    let crowd = Crowd::start(&proxy.url()).await;
    assert_eq!(raw.zcard(HELD).await, 0);
    primary.kill();
    proxy.redirect(&replica);
    crowd.until_notified_or_back(&mut raw).await;
    crowd.until_more_are_granted().await;
    let most = crowd.most();
    println!("{most} in flight under a limit of {LIMIT}");
    assert!(most <= 2 * LIMIT, "{most} in flight");
    crowd.until_only_streams_hold(&mut raw).await;
}
