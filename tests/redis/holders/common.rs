//! What these tests share: one key, and what Redis itself says of it.

use std::{future::Future, time::Duration};
use testing::{proxy::Proxy, resp::Raw};
use tower_semaphore::{AcquireError, Claim, Permit, RedisSemaphore, Semaphore, redis::Builder};

/// What must happen, but not at a certain time.
pub(crate) const BOUND: Duration = Duration::from_secs(20);
/// What must happen soon, on a busy machine too.
pub(crate) const SOON: Duration = Duration::from_secs(5);
pub(crate) const HELD: &str = "semaphore:{concurrency:a}:held";
const QUEUE: &str = "semaphore:{concurrency:a}:queue";

pub(crate) type Outcome = Result<Permit, AcquireError>;

/// Settings under which a busy machine is no failure of the store.
pub(crate) fn builder(lease: Duration) -> Builder {
    let timeout = (lease / 3).min(Duration::from_secs(1));
    RedisSemaphore::builder().lease(lease).timeout(timeout)
}

pub(crate) async fn store(url: String, lease: Duration) -> RedisSemaphore {
    let store = builder(lease).connect(url).await;
    store.expect("it connects")
}

pub(crate) fn claim(limit: u32) -> Claim {
    Claim::new("a").with_limit(limit)
}

pub(crate) async fn permit(store: &RedisSemaphore, limit: u32) -> Permit {
    store.acquire(claim(limit)).await.expect("there is room")
}

/// Runs to its end here, or fails the test after [`BOUND`].
pub(crate) async fn ended<T>(what: &str, future: impl Future<Output = T>) -> T {
    let ended = tokio::time::timeout(BOUND, future).await;
    ended.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

/// How many units of the key are held at this instant of the server's clock.
pub(crate) async fn live(raw: &mut Raw) -> i64 {
    let now = raw.server_time_ms().await;
    let count = raw.cmd(&["ZCOUNT", HELD, &format!("({now}"), "+inf"]).await;
    count.int()
}

/// How many claims stand in the queue.
pub(crate) async fn queued(raw: &mut Raw) -> usize {
    raw.zcard(QUEUE).await
}

/// How many calls of scripts clients have sent for a key since the log was cleared.
pub(crate) fn calls_for(proxy: &Proxy, key: &str) -> usize {
    let is_call = |args: &[Vec<u8>]| {
        args[0].to_ascii_uppercase().starts_with(b"EVAL")
            && args.iter().any(|arg| arg == key.as_bytes())
    };
    let log = proxy.log();
    log.iter().filter(|seen| is_call(&seen.args)).count()
}
