//! Every kind of store, empty and ready, and macros that run facts as tests on each of them. A fact is a function that
//! takes a store and asserts something about it.

use crate::wait::eventually;
use std::{sync::Arc, time::Duration};
use tower_semaphore::{Claim, MemorySemaphore, Operate, Semaphore, semaphore::StoredKey};
#[cfg(feature = "redis")]
use {
    crate::redis::{Cluster, Sentinels},
    std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Instant,
    },
    tokio::sync::OnceCell,
    tower_semaphore::{
        RedisSemaphore,
        redis::{Builder, ConnectError, Kind},
    },
};

/// The traits of the stores that facts take.
pub trait Operated: Semaphore + Operate {}

impl<S: Semaphore + Operate> Operated for S {}

pub type Store = Arc<dyn Operated>;

pub fn memory() -> Store {
    Arc::new(MemorySemaphore::new())
}

/// A store that lists its holders.
pub fn listed() -> Store {
    Arc::new(MemorySemaphore::builder().holders(true).build())
}

/// Waits until `count` claims wait for the key of `claim`.
///
/// # Panics
///
/// If that takes longer than the bound, or if the store does not answer.
pub async fn until_queued(store: &Store, claim: &Claim, count: u32, bound: Duration) {
    let what = format!("{count} claims wait");
    let key = [StoredKey::whole(claim.key().clone())];
    eventually(&what, bound, async || {
        let counts = store.counts(claim.policy(), &key).await;
        counts.expect("the store answers")[0].waiting == count
    })
    .await;
}

/// A store in the Redis at `url`. Its timeout is the longest that its lease allows, so that a busy machine fails no
/// claim.
#[cfg(feature = "redis")]
pub async fn redis(url: &str) -> Store {
    let patient = RedisSemaphore::builder().timeout(Duration::from_secs(3));
    Arc::new(connected(async || patient.clone().connect(url).await).await)
}

/// Like `redis`, under a prefix with the special characters of patterns.
#[cfg(feature = "redis")]
pub async fn redis_of_operators(url: &str) -> Store {
    let odd = RedisSemaphore::builder().prefix("[p]*?-\\^:");
    let odd = odd.timeout(Duration::from_secs(3));
    Arc::new(connected(async || odd.clone().connect(url).await).await)
}

/// A connection of redis-rs that a test can give to a store. It has a long timeout, so that a busy machine does not
/// break it.
///
/// # Panics
///
/// If no server answers.
#[cfg(feature = "redis")]
pub async fn connection(url: &str) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(url).expect("it is a URL");
    let patient = Duration::from_secs(20);
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(Some(patient));
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    connection.await.expect("it connects")
}

/// A separate store in a cluster that the tests of this process share: three primaries, each with a replica.
#[cfg(feature = "redis")]
pub async fn cluster() -> Store {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = CLUSTER.get_or_init(|| Cluster::of_pairs(3)).await;
    let patient = separate_settings();
    Arc::new(connected(async || patient.clone().connect_cluster(cluster.urls()).await).await)
}

/// A separate store on a primary with a replica, found by three Sentinels. The tests of this process share these
/// servers.
#[cfg(feature = "redis")]
pub async fn sentinel() -> Store {
    static SENTINELS: OnceCell<Sentinels> = OnceCell::const_new();
    let sentinels = SENTINELS.get_or_init(Sentinels::start).await;
    let (patient, name) = (separate_settings(), Sentinels::NAME);
    Arc::new(
        connected(async || {
            patient
                .clone()
                .connect_sentinel(sentinels.urls(), name)
                .await
        })
        .await,
    )
}

/// Connects a store, with retries. On a busy machine a connection may take longer than a store's timeout, and so may a
/// replica's start.
///
/// # Panics
///
/// If it never connects.
#[cfg(feature = "redis")]
pub async fn connected(
    mut connect: impl AsyncFnMut() -> Result<RedisSemaphore, ConnectError>,
) -> RedisSemaphore {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match connect().await {
            Ok(store) => return store,
            Err(error) if error.kind() == Kind::Unavailable && Instant::now() < end => {}
            Err(error) => panic!("it connects: {error:?}"),
        }
    }
}

/// Settings of a store that shares its servers with other stores: a separate prefix.
#[cfg(feature = "redis")]
fn separate_settings() -> Builder {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let builder = RedisSemaphore::builder().prefix(format!("store-{number}:"));
    builder.timeout(Duration::from_secs(3))
}

/// Makes each fact a test of the store in memory and of the store in a single server.
#[macro_export]
macro_rules! facts_of_two {
    ($($fact:ident)*) => {
        $crate::facts_in_memory! { memory: $($fact)* }
        $crate::facts_over_redis! { redis = redis: $($fact)* }
    };
}

/// Makes each fact a test of each store that lists its holders.
#[macro_export]
macro_rules! facts_of_operators {
    ($($fact:ident)*) => {
        $crate::facts_in_memory! { listed: $($fact)* }
        $crate::facts_over_redis! { redis = redis_of_operators: $($fact)* }
        $crate::facts_over_shared! { cluster: $($fact)* }
    };
}

/// Makes each fact a test of a store of this module in memory.
#[macro_export]
macro_rules! facts_in_memory {
    ($store:ident: $($fact:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::stores::$store()).await;
            })*
        }
    };
}

/// Makes each fact a test of each store.
#[macro_export]
macro_rules! facts {
    ($($fact:ident)*) => {
        $crate::facts_of_two! { $($fact)* }
        $crate::facts_over_shared! { cluster: $($fact)* }
        $crate::facts_over_shared! { sentinel: $($fact)* }
    };
}

/// Makes each fact a test of a store of this module in a separate Redis server.
#[macro_export]
macro_rules! facts_over_redis {
    ($name:ident = $store:ident: $($fact:ident)*) => {
        #[cfg(feature = "redis")]
        mod $name {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                let server = $crate::redis::RedisServer::start();
                super::$fact($crate::stores::$store(&server.url()).await).await;
            })*
        }
    };
}

/// Makes each fact a test of a store of this module whose servers are shared.
#[macro_export]
macro_rules! facts_over_shared {
    ($store:ident: $($fact:ident)*) => {
        #[cfg(feature = "redis")]
        mod $store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $fact() {
                super::$fact($crate::stores::$store().await).await;
            })*
        }
    };
}

pub use crate::{facts, facts_of_operators, facts_of_two};
