//! The store of the permits: in this process, or in Redis for a fleet.

use crate::{
    place::Redis,
    settings::{SettingError, Settings},
};
use std::error::Error;
use tower_semaphore::{
    Acquire, Claims, Key, MemorySemaphore, Operate, Policy, Semaphore,
    semaphore::{BoxFuture, KeyStream, StoreError, Usage},
};

#[cfg(feature = "redis")]
use crate::{place::Place, settings::WhenUnavailable};
#[cfg(feature = "redis")]
use std::time::Duration;
#[cfg(feature = "redis")]
use tower_semaphore::{
    RedisSemaphore,
    redis::{Builder, WhenUnavailable as Unavailable},
};

/// The semaphores of all accounts.
#[derive(Clone)]
pub(crate) enum Permits {
    Memory(MemorySemaphore),
    #[cfg(feature = "redis")]
    Redis(RedisSemaphore),
}

impl Permits {
    /// Opens the store in Redis if the settings name one, and otherwise in memory.
    ///
    /// # Errors
    ///
    /// Returns a [`SettingError`] of the setting that names Redis, if it cannot be used.
    pub(crate) async fn open(settings: &Settings) -> Result<Self, SettingError> {
        match &settings.redis {
            None => Ok(Self::Memory(
                MemorySemaphore::builder().holders(true).build(),
            )),
            Some(redis) => Self::in_redis(redis, settings).await,
        }
    }

    #[cfg(feature = "redis")]
    async fn in_redis(redis: &Redis, settings: &Settings) -> Result<Self, SettingError> {
        // A call that may take longer than a third of a lease would leave no time for a second one.
        let timeout = Duration::from_millis(250).min(settings.lease / 3);
        let builder = RedisSemaphore::builder()
            .lease(settings.lease)
            .timeout(timeout)
            .when_unavailable(match settings.when_unavailable {
                WhenUnavailable::Refuse => Unavailable::Refuse,
                WhenUnavailable::Admit => Unavailable::Admit,
                WhenUnavailable::Share => Unavailable::Share,
            });
        let builder = with_authority(builder, redis.authority.as_deref())?;
        let opened = match &redis.place {
            Place::Server(url) => builder.connect(url.as_str()).await,
            Place::Cluster(urls) => {
                builder
                    .connect_cluster(urls.iter().map(String::as_str))
                    .await
            }
            Place::Sentinels(urls, name) => {
                let urls = urls.iter().map(String::as_str);
                builder.connect_sentinel(urls, name).await
            }
        };
        let unusable = |error| SettingError::unusable(redis.place.setting(), error);
        opened.map(Self::Redis).map_err(unusable)
    }

    #[cfg(not(feature = "redis"))]
    #[expect(
        clippy::unused_async,
        reason = "with Redis it waits for the connection"
    )]
    async fn in_redis(redis: &Redis, _: &Settings) -> Result<Self, SettingError> {
        let why = "this build keeps everything in memory";
        Err(SettingError::unusable(redis.place.setting(), why))
    }

    /// Returns the known risks, one per line.
    ///
    /// # Errors
    ///
    /// Returns the current problem.
    #[cfg_attr(
        not(feature = "redis"),
        expect(clippy::unused_async, reason = "with Redis it waits for the answer")
    )]
    pub(crate) async fn check(&self) -> Result<String, Box<dyn Error + Send + Sync>> {
        match self {
            Self::Memory(_) => Ok(String::new()),
            #[cfg(feature = "redis")]
            Self::Redis(semaphore) => {
                let risks = semaphore.check().await?;
                Ok(risks.iter().map(|risk| format!("{risk}\n")).collect())
            }
        }
    }

    /// Stops admitting requests, and releases the permits of responses that were cut off. The other processes of the
    /// fleet then need not wait for a lease to end.
    pub(crate) async fn close(&self) {
        #[cfg(feature = "redis")]
        if let Self::Redis(semaphore) = self {
            let left = semaphore.shutdown(Duration::from_secs(2)).await;
            if !left.is_empty() {
                eprintln!("{} permits end with their leases", left.len());
            }
        }
    }
}

/// Adds the private certificate authority to the builder, if one is set.
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
#[expect(clippy::unnecessary_wraps, reason = "without TLS it may fail")]
fn with_authority(builder: Builder, authority: Option<&[u8]>) -> Result<Builder, SettingError> {
    Ok(match authority {
        None => builder,
        Some(pem) => builder.root_certificate(pem),
    })
}

#[cfg(all(
    feature = "redis",
    not(any(feature = "tls-rustls", feature = "tls-native-tls"))
))]
fn with_authority(builder: Builder, authority: Option<&[u8]>) -> Result<Builder, SettingError> {
    match authority {
        None => Ok(builder),
        Some(_) => Err(SettingError::unusable("REDIS_CA", "this build has no TLS")),
    }
}

impl Semaphore for Permits {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        match self {
            Self::Memory(semaphore) => semaphore.acquire_all(claims),
            #[cfg(feature = "redis")]
            Self::Redis(semaphore) => semaphore.acquire_all(claims),
        }
    }
}

impl Permits {
    /// The store's interface for operators.
    fn as_operate(&self) -> &dyn Operate {
        match self {
            Self::Memory(semaphore) => semaphore,
            #[cfg(feature = "redis")]
            Self::Redis(semaphore) => semaphore,
        }
    }
}

impl Operate for Permits {
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        self.as_operate().usage(policy, key)
    }

    fn keys(&self, policy: &Policy) -> KeyStream {
        self.as_operate().keys(policy)
    }

    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
        self.as_operate().revoke(policy, key, id)
    }
}
