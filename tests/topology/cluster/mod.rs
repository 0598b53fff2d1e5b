//! A cluster: moving slots, dying nodes, and the delivery of messages.

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

/// The bound of waits. It is generous, because machines may be busy.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// A builder whose timeout tolerates a busy machine.
pub(crate) fn patient() -> Builder {
    RedisSemaphore::builder().timeout(Duration::from_secs(3))
}

pub(crate) async fn connect(builder: Builder, cluster: &Cluster) -> RedisSemaphore {
    connected(async || builder.clone().connect_cluster(cluster.urls()).await).await
}

/// The prefix of a semaphore's keys.
pub(crate) fn name(key: &str) -> String {
    format!("semaphore:2:{{concurrency:{key}}}")
}
