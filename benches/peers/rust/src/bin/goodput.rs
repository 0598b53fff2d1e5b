//! Offers claims to the crate distributed-lock at a rate: `goodput URL RATE WARM_MS SPAN_MS`.
//!
//! Prints the claims made and the claims granted in time, both per second, and their mean time in ms.

use distributed_lock_core::traits::{DistributedSemaphore, LockHandle, SemaphoreProvider};
use distributed_lock_redis::RedisLockProvider;
use std::{env, error::Error, sync::Arc, time::Duration};
use testing::bench::open_loop::{self, Rate};

/// As for the other variants, in `benches/goodput/variant.rs`.
const KEYS: u64 = 1_000;
const LIMIT: u32 = 1_000_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    let millis = |arg: &str| arg.parse().map(Duration::from_millis);
    let rate = Rate {
        per_second: args[2].parse()?,
        warm: millis(&args[3])?,
        span: millis(&args[4])?,
    };
    let builder = RedisLockProvider::builder().url(&args[1]);
    let provider = Arc::new(builder.expiry(Duration::from_secs(10)).build().await?);
    let offered = open_loop::offer(rate, |number| claim(Arc::clone(&provider), number)).await;
    let mean_ms = offered.mean_ms.unwrap_or_default();
    println!("{} {} {mean_ms}", offered.rate, offered.good);
    Ok(())
}

async fn claim(provider: Arc<RedisLockProvider>, number: u64) -> bool {
    let key = format!("account-{}", number % KEYS);
    let semaphore = provider.create_semaphore(&key, LIMIT);
    let Ok(Some(handle)) = semaphore.try_acquire().await else {
        return false;
    };
    // The release runs in the background, like ours.
    tokio::spawn(handle.release());
    true
}
