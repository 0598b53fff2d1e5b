//! Permits that change their weight, in Redis: what other processes see, after losses and faults too.

mod answers;
mod limits;
mod storm;

use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw, wait::eventually};
use tokio::join;
use tower_semaphore::{Claim, Permit, RedisSemaphore, Semaphore};

/// Nothing that waits for this is about time.
const BOUND: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(3);
const HELD: &str = "semaphore:{concurrency:a}:held";

fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

async fn store_at(url: String) -> RedisSemaphore {
    let builder = RedisSemaphore::builder().lease(LEASE).timeout(LEASE / 3);
    builder.connect(url).await.expect("it connects")
}

async fn fixture() -> (RedisServer, RedisSemaphore, Raw) {
    let server = RedisServer::start();
    let store = store_at(server.url()).await;
    let raw = Raw::connect(server.port()).await;
    (server, store, raw)
}

/// A permit of one unit that has grown to this weight.
async fn grown(store: &RedisSemaphore, limit: u32, weight: u32) -> Permit {
    let permit = store.acquire(claim(limit)).await.expect("there is room");
    permit.resize(weight).await.expect("there is room");
    permit
}

async fn until_held(raw: &mut Raw, count: usize) {
    let what = format!("{count} units are held");
    eventually(&what, BOUND, async || raw.zcard(HELD).await == count).await;
}

/// Its own lease is an hour: who finds the key full clamps a later end to that.
fn unit_of_another(unit: usize) -> String {
    format!("other.{unit:x}.9.1.3600000")
}

/// Somebody else takes so many units, which do not end.
async fn occupy(raw: &mut Raw, held: &str, count: usize) {
    for unit in 0..count {
        let unit = unit_of_another(unit);
        raw.cmd(&["ZADD", held, "99999999999999", &unit]).await;
    }
}

async fn vacate(raw: &mut Raw, held: &str, count: usize) {
    for unit in 0..count {
        raw.cmd(&["ZREM", held, &unit_of_another(unit)]).await;
    }
}

/// The permit is lost by this disaster. It may be back soon, so its holder waits for the loss before
/// there is one.
async fn loses(permit: &Permit, disaster: impl Future<Output = ()>) {
    let lost = tokio::time::timeout(BOUND, permit.lost());
    let (lost, ()) = join!(lost, disaster);
    lost.expect("it is lost");
}
