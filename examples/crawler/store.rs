//! The store that counts requests: in memory, or in Redis for all crawlers together.

use crate::BoxError;
use std::env;
#[cfg(feature = "redis")]
use std::time::Duration;
#[cfg(feature = "redis")]
use tokio::time::sleep;
use tower_semaphore::{Acquire, Claims, MemorySemaphore, Semaphore};
#[cfg(feature = "redis")]
use tower_semaphore::{
    RedisSemaphore,
    redis::{ConnectError, Kind},
};

#[derive(Clone)]
pub(crate) enum Store {
    Memory(MemorySemaphore),
    #[cfg(feature = "redis")]
    Redis(RedisSemaphore),
}

impl Store {
    /// The store at `REDIS_URL`, or else one in memory.
    pub(crate) async fn from_environment() -> Result<Self, BoxError> {
        match env::var("REDIS_URL") {
            #[cfg(feature = "redis")]
            Ok(url) => Ok(Self::Redis(connect(&url).await?)),
            #[cfg(not(feature = "redis"))]
            Ok(_) => Err("REDIS_URL needs the feature `redis`".into()),
            Err(_) => Ok(Self::Memory(MemorySemaphore::new())),
        }
    }

    /// Releases all permits before the process ends, so that other crawlers need not wait for a lease to end.
    pub(crate) async fn close(self) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "redis")]
            Self::Redis(redis) => drop(redis.shutdown(Duration::from_secs(1)).await),
        }
    }
}

/// A crawler is not urgent, so the server may be slow, and may start later than this process.
#[cfg(feature = "redis")]
async fn connect(url: &str) -> Result<RedisSemaphore, ConnectError> {
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    for _ in 0..4 {
        match builder.clone().connect(url).await {
            Err(error) if error.kind() == Kind::Unavailable => {
                sleep(Duration::from_millis(500)).await;
            }
            connected => return connected,
        }
    }
    builder.connect(url).await
}

impl Semaphore for Store {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        match self {
            Self::Memory(memory) => memory.acquire_all(claims),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.acquire_all(claims),
        }
    }
}
