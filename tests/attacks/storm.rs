//! Storms of claims and cancellations, while the link is delayed, cut or silent, and the server is stopped.
//!
//! `STORM_SEED=7 STORM_SECONDS=600 cargo test --test attacks storm` repeats the random choices, for ten minutes.
//!
//! Promises: P1, P9, P10, P11.

use futures_util::future::join_all;
use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};
use testing::{
    machine::alone,
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    rng::Rng,
    wait::eventually,
};
use tokio::{
    runtime::Handle,
    time::{sleep, timeout},
};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore};

const TIMEOUT: Duration = Duration::from_millis(250);
/// Much shorter than a lease, so that no lease frees units within this time.
const SOON: Duration = Duration::from_secs(8);
const LEASE: Duration = Duration::from_secs(30);
/// The most storms until each kind of answer was given.
const MOST_STORMS: usize = 6;
const KEYS: usize = 6;
const LIMIT: u32 = 4;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().expect("it is a number"))
}

/// The results of a caller.
#[derive(Default, Debug)]
struct Tally {
    granted: usize,
    refused: usize,
    failed: usize,
    /// The longest time by which an answer was later than its wait and two timeouts.
    late: Duration,
}

/// The held units of each key, by their holders' own count.
type Held = Arc<[AtomicU32; KEYS]>;

struct Caller {
    store: RedisSemaphore,
    rng: Rng,
    held: Held,
    tally: Tally,
}

impl Caller {
    async fn work(mut self, end: Instant) -> Tally {
        while Instant::now() < end {
            let key = self.rng.below(KEYS);
            let wait = Duration::from_millis(self.rng.one_of(&[0, 0, 0, 30, 300]));
            let weight = self.rng.one_of(&[1, 1, 1, 2]);
            let claim = Claim::new(format!("a{key}")).with_limit(LIMIT);
            let sent = Instant::now();
            // A quarter of the claims are cancelled.
            let patience = if self.rng.once_in(4) {
                self.rng.millis(0..60)
            } else {
                LEASE
            };
            let acquire = self
                .store
                .acquire(claim.with_weight(weight).with_wait(wait));
            let answer = timeout(patience, acquire).await;
            let late = sent.elapsed().saturating_sub(wait + TIMEOUT * 2);
            self.tally.late = self.tally.late.max(late);
            match answer {
                Ok(Ok(permit)) => self.hold(permit, key).await,
                Ok(Err(AcquireError::Store { .. })) => {
                    self.tally.failed += 1;
                    sleep(Duration::from_millis(5)).await;
                }
                Ok(Err(error)) => {
                    assert!(error.is_refusal(), "{error:?}");
                    self.tally.refused += 1;
                }
                Err(_) => {}
            }
        }
        self.tally
    }

    /// Holds a permit for a while. No lease ends and the server loses no data, so holders never have more units than
    /// the limit.
    async fn hold(&mut self, permit: Permit, key: usize) {
        let held = &self.held[key];
        let units = held.fetch_add(permit.weight(), SeqCst) + permit.weight();
        assert!(units <= LIMIT && !permit.is_lost(), "{units} of {LIMIT}");
        self.tally.granted += 1;
        sleep(self.rng.millis(0..20)).await;
        held.fetch_sub(permit.weight(), SeqCst);
        if self.rng.once_in(4) {
            drop(std::thread::spawn(|| drop(permit)));
        } else {
            drop(permit);
        }
    }
}

/// Disturbs the link and the server at random until `end`.
async fn disturb(proxy: &Proxy, server: &RedisServer, mut rng: Rng, end: Instant) {
    let delay = |rng: &mut Rng| rng.millis(0..60);
    while Instant::now() < end {
        sleep(rng.millis(0..150)).await;
        match rng.below(7) {
            0 => proxy.delay(delay(&mut rng), delay(&mut rng)),
            1 => proxy.kill(rng.one_of(&[End::Reset, End::Close, End::HalfClose])),
            2 => proxy.kill(End::Silence),
            3 => {
                if rng.once_in(2) {
                    proxy.mute();
                } else {
                    proxy.black_hole();
                }
                sleep(rng.millis(0..600)).await;
                proxy.forward();
            }
            4 => {
                server.stop();
                sleep(rng.millis(0..400)).await;
                server.cont();
            }
            5 => {
                proxy.refuse().await;
                proxy.kill(End::Reset);
                sleep(rng.millis(0..200)).await;
                proxy.accept().await;
            }
            _ => proxy.drop_messages(rng.once_in(2)),
        }
    }
    proxy.forward();
}

/// The keys in Redis other than tokens, with the number of their members.
async fn left(raw: &mut Raw) -> Vec<(String, usize)> {
    let mut left = Vec::new();
    for key in raw.keys("semaphore:2:{*").await {
        if !key.ends_with(b":token") {
            let members = raw.zcard(&key).await;
            left.push((String::from_utf8_lossy(&key).into_owned(), members));
        }
    }
    left
}

/// The results of many callers, over a link that is disturbed until the storm ends.
async fn storm(server: &RedisServer, proxy: &Proxy, store: &RedisSemaphore) -> Vec<Tally> {
    let seed = number("STORM_SEED").unwrap_or_else(|| std::process::id().into());
    println!("STORM_SEED={seed}");
    let end = Instant::now() + Duration::from_secs(number("STORM_SECONDS").unwrap_or(7));
    let (mut rng, held) = (Rng::new(seed), Held::default());
    let callers = (0..80).map(|_| {
        let caller = Caller {
            store: store.clone(),
            rng: rng.another(),
            held: Arc::clone(&held),
            tally: Tally::default(),
        };
        tokio::spawn(caller.work(end))
    });
    let callers: Vec<_> = callers.collect();
    disturb(proxy, server, rng, end).await;
    let tallies = join_all(callers).await.into_iter();
    tallies.map(|tally| tally.expect("no panic")).collect()
}

/// The numbers of claims that were granted, refused, and failed.
fn counts(tallies: &[Tally]) -> [usize; 3] {
    let kinds: [fn(&Tally) -> usize; 3] = [
        |tally| tally.granted,
        |tally| tally.refused,
        |tally| tally.failed,
    ];
    kinds.map(|kind| tallies.iter().map(kind).sum::<usize>())
}

/// Runs storms until each kind of answer was given: on a busy machine the server may be out of reach for a whole storm.
async fn storms(server: &RedisServer, proxy: &Proxy, store: &RedisSemaphore) -> Vec<Tally> {
    let mut tallies = Vec::new();
    for _ in 0..MOST_STORMS {
        tallies.extend(storm(server, proxy, store).await);
        if counts(&tallies).iter().all(|count| *count > 0) {
            break;
        }
    }
    tallies
}

/// Asserts that each kind of answer was given, and that none was too late.
fn judge(tallies: &[Tally]) {
    let counts = counts(tallies);
    let late = tallies.iter().map(|tally| tally.late).max();
    println!("granted, refused, failed: {counts:?}, late by {late:?}");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(
        late < Some(TIMEOUT * 2),
        "an answer was late by two timeouts"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_leaves_nothing() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let tasks = Handle::current().metrics().num_alive_tasks();
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let tallies = storms(&server, &proxy, &store).await;
    let mut raw = Raw::connect(server.port()).await;
    let is_clean = async || left(&mut raw).await.is_empty();
    eventually("nothing is left", SOON, is_clean).await;
    let start = Instant::now();
    let rest = store.shutdown(SOON).await;
    assert!(rest.is_empty() && start.elapsed() < SOON / 2, "{rest:?}");
    assert_eq!(left(&mut raw).await, []);
    drop((store, proxy));
    eventually("no task is left", SOON, async || {
        Handle::current().metrics().num_alive_tasks() <= tasks
    })
    .await;
    judge(&tallies);
}
