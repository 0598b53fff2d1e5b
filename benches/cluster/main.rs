//! A cluster of three primaries compared with one server, both on this machine: pairs per second, and the time from a
//! release to the grant in another store.
//!
//! `cargo bench -p tower-semaphore-benches --bench cluster` takes a few minutes, with `-- --quick` half a minute.

mod speed;
mod wake;

use std::time::Duration;
use testing::{
    bench::proc::cpu,
    redis::{Cluster, RedisServer},
};
use tower_semaphore::RedisSemaphore;

const PRIMARIES: usize = 3;

/// The servers of a store.
pub(crate) enum Servers {
    One(RedisServer),
    Cluster(Cluster),
}

impl Servers {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::One(_) => "one server",
            Self::Cluster(_) => "three primaries",
        }
    }

    /// The processor time that the servers have used so far.
    pub(crate) fn cpu(&self) -> Duration {
        match self {
            Self::One(server) => cpu(server.pid()),
            Self::Cluster(cluster) => (0..PRIMARIES)
                .map(|node| cpu(cluster.node(node).pid()))
                .sum(),
        }
    }

    pub(crate) async fn store(&self) -> RedisSemaphore {
        let store = match self {
            Self::One(server) => RedisSemaphore::connect(server.url()).await,
            Self::Cluster(cluster) => {
                RedisSemaphore::builder()
                    .connect_cluster(cluster.urls())
                    .await
            }
        };
        store.expect("the servers are there")
    }
}

#[tokio::main]
async fn main() {
    let servers = [
        Servers::One(RedisServer::start()),
        Servers::Cluster(Cluster::of_primaries(PRIMARIES).await),
    ];
    speed::compare(&servers).await;
    wake::compare(&servers).await;
}
