//! A cluster: slots that move, nodes that die, and the way of messages.

mod basics;
mod bounds;
mod dying;
mod load;
mod messages;
mod moving;
mod operators;
mod outage;
mod replaced;
mod replicas;
mod start;

use std::time::Duration;
use testing::{redis::Cluster, stores::connected};
use tower_semaphore::{RedisSemaphore, redis::Builder};

/// Nothing that waits for this is about time.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// A store that is patient on a busy machine.
pub(crate) fn patient() -> Builder {
    RedisSemaphore::builder().timeout(Duration::from_secs(3))
}

pub(crate) async fn connect(builder: Builder, cluster: &Cluster) -> RedisSemaphore {
    connected(async || builder.clone().connect_cluster(cluster.urls()).await).await
}

/// What the keys of a semaphore begin with.
pub(crate) fn name(key: &str) -> String {
    format!("semaphore:2:{{concurrency:{key}}}")
}
