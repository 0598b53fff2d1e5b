//! Every store there is, empty and ready.

use std::sync::Arc;
use tower_semaphore::{MemorySemaphore, Semaphore};

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
        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                let server = $crate::redis::RedisServer::start();
                super::$fact($crate::stores::redis(&server.url()).await).await;
            })*
        }
    };
}

pub use crate::facts;
