//! Every store that says who holds what.

use std::sync::Arc;
use tower_semaphore::{MemorySemaphore, Operate, Semaphore};
#[cfg(feature = "redis")]
use {
    std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    },
    testing::redis::Cluster,
    tokio::sync::OnceCell,
    tower_semaphore::{RedisSemaphore, redis::Builder},
};

/// What the facts need of a store.
pub(crate) trait Operated: Semaphore + Operate {}

impl<S: Semaphore + Operate> Operated for S {}

pub(crate) type Store = Arc<dyn Operated>;

pub(crate) fn memory() -> Store {
    Arc::new(MemorySemaphore::builder().holders(true).build())
}

/// A store with the longest timeout of its lease, so that a busy machine fails no claim.
#[cfg(feature = "redis")]
fn patient() -> Builder {
    RedisSemaphore::builder().timeout(Duration::from_secs(3))
}

/// A store in the Redis at `url`.
#[cfg(feature = "redis")]
pub(crate) async fn redis(url: &str) -> Store {
    // What a pattern might take for more than itself is part of the prefix.
    let builder = patient().prefix("[p]*?-\\^:");
    Arc::new(builder.connect(url).await.expect("it connects"))
}

/// A store of its own in a cluster of three primaries.
#[cfg(feature = "redis")]
pub(crate) async fn cluster() -> Store {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let cluster = CLUSTER.get_or_init(|| Cluster::of_pairs(3)).await;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let builder = patient().prefix(format!("store-{number}:"));
    Arc::new(
        builder
            .connect_cluster(cluster.urls())
            .await
            .expect("it connects"),
    )
}

/// Makes each of these functions a test of each store.
macro_rules! facts {
    ($($fact:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::holders::every_store::memory()).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod redis {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                let server = testing::redis::RedisServer::start();
                super::$fact($crate::holders::every_store::redis(&server.url()).await).await;
            })*
        }

        #[cfg(feature = "redis")]
        mod cluster {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::holders::every_store::cluster().await).await;
            })*
        }
    };
}

pub(crate) use facts;
