//! Where requests are counted: here, or in Redis for all crawlers together.

use crate::BoxError;
use std::env;
#[cfg(feature = "redis")]
use std::time::Duration;
#[cfg(feature = "redis")]
use tokio::time::sleep;
use tower_semaphore::{Acquire, Claim, MemorySemaphore, Semaphore};
#[cfg(feature = "redis")]
use tower_semaphore::{RedisSemaphore, redis::ConnectError};

#[derive(Clone)]
pub(crate) enum Store {
    Memory(MemorySemaphore),
    #[cfg(feature = "redis")]
    Redis(RedisSemaphore),
}

impl Store {
    /// The one that `REDIS_URL` names.
    pub(crate) async fn from_environment() -> Result<Self, BoxError> {
        match env::var("REDIS_URL") {
            #[cfg(feature = "redis")]
            Ok(url) => Ok(Self::Redis(connect(&url).await?)),
            #[cfg(not(feature = "redis"))]
            Ok(_) => Err("REDIS_URL needs the feature `redis`".into()),
            Err(_) => Ok(Self::Memory(MemorySemaphore::new())),
        }
    }

    /// Gives everything back before the process ends, so that others need not wait for a lease.
    pub(crate) async fn close(self) {
        match self {
            Self::Memory(_) => {}
            #[cfg(feature = "redis")]
            Self::Redis(redis) => drop(redis.shutdown(Duration::from_secs(1)).await),
        }
    }
}

/// Nobody waits for a crawler, so a server may take its time, and start later than we do.
#[cfg(feature = "redis")]
async fn connect(url: &str) -> Result<RedisSemaphore, ConnectError> {
    let builder = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    for _ in 0..4 {
        match builder.clone().connect(url).await {
            Err(ConnectError::Unavailable(_)) => sleep(Duration::from_millis(500)).await,
            connected => return connected,
        }
    }
    builder.connect(url).await
}

impl Semaphore for Store {
    fn acquire(&self, claim: Claim) -> Acquire {
        match self {
            Self::Memory(memory) => memory.acquire(claim),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.acquire(claim),
        }
    }
}
