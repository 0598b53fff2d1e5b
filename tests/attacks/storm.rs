//! Storms of claims and hang-ups, over a link that is delayed, cut, muted and stopped.

use futures_util::future::join_all;
use std::time::{Duration, Instant};
use testing::{
    machine::alone,
    proxy::{End, Proxy},
    redis::RedisServer,
    resp::Raw,
    wait::eventually,
};
use tokio::time::{sleep, timeout};
use tower_semaphore::{AcquireError, Claim, RedisSemaphore, Semaphore};

const TIMEOUT: Duration = Duration::from_millis(250);
const TIME: Duration = Duration::from_secs(7);
/// Much less than a lease.
const SOON: Duration = Duration::from_secs(8);
const LEASE: Duration = Duration::from_secs(30);

/// A small generator: the same seed gives the same storm.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

#[derive(Default, Debug)]
struct Tally {
    granted: usize,
    refused: usize,
    failed: usize,
    late: Duration,
}

async fn caller(store: RedisSemaphore, seed: u64) -> Tally {
    let (mut dice, mut tally, start) = (Dice(seed), Tally::default(), Instant::now());
    while start.elapsed() < TIME {
        let wait = Duration::from_millis([0, 0, 0, 30, 300][dice.roll(5) as usize]);
        let weight = [1, 1, 1, 2][dice.roll(4) as usize];
        let claim = Claim::new(format!("a{}", dice.roll(6)));
        let claim = claim.with_limit(4).with_weight(weight).with_wait(wait);
        let sent = Instant::now();
        let hang_up = match dice.roll(4) {
            0 => Duration::from_micros(dice.roll(60_000)),
            _ => Duration::from_secs(30),
        };
        let answer = timeout(hang_up, store.acquire(claim)).await;
        tally.late = tally
            .late
            .max(sent.elapsed().saturating_sub(wait + TIMEOUT * 2));
        match answer {
            Ok(Ok(_permit)) => {
                tally.granted += 1;
                sleep(Duration::from_micros(dice.roll(20_000))).await;
            }
            Ok(Err(AcquireError::Store { .. })) => {
                tally.failed += 1;
                sleep(Duration::from_millis(5)).await;
            }
            Ok(Err(_)) => tally.refused += 1,
            Err(_) => {}
        }
    }
    tally
}

async fn weather(proxy: &Proxy, server: &RedisServer, seed: u64) {
    let (mut dice, start) = (Dice(seed), Instant::now());
    while start.elapsed() < TIME {
        sleep(Duration::from_millis(dice.roll(150))).await;
        let delay = |ms| Duration::from_millis(ms);
        match dice.roll(7) {
            0 => proxy.delay(delay(dice.roll(60)), delay(dice.roll(60))),
            1 => proxy.kill(End::Reset),
            2 => proxy.kill(End::HalfClose),
            3 => {
                proxy.mute();
                sleep(delay(dice.roll(300))).await;
                proxy.forward();
            }
            4 => {
                server.stop();
                sleep(delay(dice.roll(400))).await;
                server.cont();
            }
            5 => {
                proxy.refuse().await;
                proxy.kill(End::Reset);
                sleep(delay(dice.roll(200))).await;
                proxy.accept().await;
            }
            _ => proxy.drop_messages(dice.roll(2) == 0),
        }
    }
    proxy.forward();
}

/// How late the latest answer was.
fn slowest(tallies: impl Iterator<Item = Tally>) -> Duration {
    let sum = tallies.fold(Tally::default(), |sum, tally| Tally {
        granted: sum.granted + tally.granted,
        refused: sum.refused + tally.refused,
        failed: sum.failed + tally.failed,
        late: sum.late.max(tally.late),
    });
    println!("{sum:?}");
    sum.late
}

/// What is in Redis but tokens, and how many members it has.
async fn left(raw: &mut Raw) -> Vec<(String, usize)> {
    let mut left = Vec::new();
    for key in raw.keys("semaphore:{*").await {
        if !key.ends_with(b":token") {
            let members = raw.zcard(&key).await;
            left.push((String::from_utf8_lossy(&key).into_owned(), members));
        }
    }
    left
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_leaves_nothing() {
    let _alone = alone().await;
    let server = RedisServer::start();
    let proxy = Proxy::start(&server).await;
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(TIMEOUT);
    let store = builder.connect(proxy.url()).await.expect("it connects");
    let callers = (0..80).map(|seed| tokio::spawn(caller(store.clone(), seed)));
    let callers: Vec<_> = callers.collect();
    weather(&proxy, &server, std::process::id().into()).await;
    let late = slowest(
        join_all(callers)
            .await
            .into_iter()
            .map(|tally| tally.expect("no panic")),
    );
    let mut raw = Raw::connect(server.port()).await;
    eventually("nothing is left", SOON, async || {
        left(&mut raw).await.is_empty()
    })
    .await;
    let start = Instant::now();
    let rest = store.shutdown(SOON).await;
    assert!(rest.is_empty() && start.elapsed() < SOON / 2, "{rest:?}");
    assert_eq!(left(&mut raw).await, []);
    assert!(late < TIMEOUT * 2, "{late:?}: as long as a second budget");
}
