//! Every store there is, empty and ready.

use std::sync::Arc;
use tower_semaphore::{Acquire, Claim, MemorySemaphore, Semaphore};

pub type Store = Arc<dyn Semaphore>;

pub fn memory() -> Store {
    Arc::new(MemorySemaphore::new())
}

/// A store in the Redis at `url`, with the longest timeout of its lease, so that a busy machine
/// fails no claim.
#[cfg(feature = "redis")]
pub async fn redis(url: &str) -> Store {
    // A busy machine is no failure of the store.
    let builder = tower_semaphore::RedisSemaphore::builder();
    let patient = builder.timeout(std::time::Duration::from_secs(3));
    Arc::new(patient.connect(url).await.expect("it connects"))
}

/// A store in the Redis at `url` on a supplied connection. Keys may live on several nodes
/// there, so several claims go level by level.
#[cfg(feature = "redis")]
pub async fn supplied(url: &str) -> Store {
    let builder = tower_semaphore::RedisSemaphore::builder();
    let patient = builder.timeout(std::time::Duration::from_secs(3));
    let store = patient.build_on(connection(url).await);
    Arc::new(store.expect("the settings are right"))
}

/// A connection to hand in. A busy machine is no failure of it.
///
/// # Panics
///
/// When no server is there.
#[cfg(feature = "redis")]
pub async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).expect("it is a URL");
    let patient = std::time::Duration::from_secs(20);
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(patient));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("it connects")
}

/// A store of a user's own that knows single claims only.
pub struct SingleClaims(pub Store);

impl Semaphore for SingleClaims {
    fn acquire(&self, claim: Claim) -> Acquire {
        self.0.acquire(claim)
    }
}

/// A store over the Redis at `url` that takes several claims as every store can by default.
#[cfg(feature = "redis")]
pub async fn single_claims(url: &str) -> Store {
    Arc::new(SingleClaims(redis(url).await))
}

/// Makes each of these functions a test of each store.
#[macro_export]
macro_rules! facts {
    ($($fact:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::stores::memory()).await;
            })*
        }
        $crate::facts_over_redis! { redis: $($fact)* }
    };
}

/// Makes each of these functions a test of each way in which a store takes several claims.
#[macro_export]
macro_rules! facts_of_several {
    ($($fact:ident)*) => {
        $crate::facts! { $($fact)* }
        $crate::facts_over_redis! { supplied: $($fact)* }
        $crate::facts_over_redis! { single_claims: $($fact)* }
    };
}

/// Makes each of these functions a test of one of the stores of this module.
#[macro_export]
macro_rules! facts_over_redis {
    ($store:ident: $($fact:ident)*) => {
        #[cfg(feature = "redis")]
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                let server = $crate::redis::RedisServer::start();
                super::$fact($crate::stores::$store(&server.url()).await).await;
            })*
        }
    };
}

pub use crate::{facts, facts_of_several};
