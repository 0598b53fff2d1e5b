//! The store of the limits: in the memory of this process, or in a Redis that gateways share.

#[cfg(feature = "redis")]
use crate::with_causes;
use tower_semaphore::{
    Acquire, Claims, Key, MemorySemaphore, Operate, Policy, Semaphore,
    semaphore::{StoreError, Usage},
};

#[derive(Clone)]
pub(crate) enum Store {
    Memory(MemorySemaphore),
    #[cfg(feature = "redis")]
    Redis(tower_semaphore::RedisSemaphore),
}

impl Store {
    /// Connects to the Redis at this URL. Without a URL the store is in memory.
    pub(crate) async fn open(redis_url: Option<&str>) -> Result<Self, String> {
        match redis_url {
            #[cfg(feature = "redis")]
            Some(url) => match tower_semaphore::RedisSemaphore::connect(url).await {
                Ok(redis) => Ok(Self::Redis(redis)),
                Err(error) => Err(format!("REDIS_URL: {}", with_causes(&error))),
            },
            #[cfg(not(feature = "redis"))]
            Some(_) => Err("REDIS_URL: it needs the feature `redis`".to_owned()),
            None => Ok(Self::Memory(MemorySemaphore::new())),
        }
    }

    /// Returns the known risks, one per line, or the current problem as an error.
    pub(crate) async fn check(&self) -> Result<String, String> {
        match self {
            Self::Memory(_) => Ok(String::new()),
            #[cfg(feature = "redis")]
            Self::Redis(redis) => match redis.check().await {
                Ok(risks) => Ok(risks.iter().map(|risk| format!("{risk}\n")).collect()),
                Err(error) => Err(with_causes(&error)),
            },
        }
    }

    /// Returns the units of a key that are in use, its limit in force and its pause.
    pub(crate) async fn usage(&self, policy: &Policy, key: &Key) -> Result<Usage, StoreError> {
        match self {
            Self::Memory(memory) => memory.usage(policy, key).await,
            #[cfg(feature = "redis")]
            Self::Redis(redis) => redis.usage(policy, key).await,
        }
    }
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
