//! The servers of each setup.

use crate::{
    cluster::Cluster,
    plain::Plain,
    sentinel::Sentinel,
    setup::{Kind, Setup},
};
use std::time::Instant;
use tower_semaphore::RedisSemaphore;

/// A primary that fails, and a replica that replaces it.
pub(crate) enum Servers {
    Plain(Box<Plain>),
    Sentinel(Box<Sentinel>),
    Cluster(Box<Cluster>),
}

impl Servers {
    pub(crate) async fn start(setup: Setup) -> Self {
        match setup.kind {
            Kind::Plain => Self::Plain(Box::new(Plain::start(setup).await)),
            Kind::Sentinel => Self::Sentinel(Box::new(Sentinel::start(setup).await)),
            Kind::Cluster => Self::Cluster(Box::new(Cluster::start(setup).await)),
        }
    }

    /// Connects a store that follows failovers.
    pub(crate) async fn connect(&self) -> RedisSemaphore {
        match self {
            Self::Plain(servers) => servers.connect().await,
            Self::Sentinel(servers) => servers.connect().await,
            Self::Cluster(servers) => servers.connect().await,
        }
    }

    /// Stops delivering the primary's writes to its replica.
    pub(crate) fn stall(&self) {
        match self {
            Self::Plain(servers) => servers.stall(),
            Self::Sentinel(servers) => servers.stall(),
            Self::Cluster(servers) => servers.stall(),
        }
    }

    /// Kills the primary's machine. Returns the time at which the replica was promoted.
    pub(crate) async fn fail_over(&mut self) -> Instant {
        match self {
            Self::Plain(servers) => servers.fail_over().await,
            Self::Sentinel(servers) => servers.fail_over().await,
            Self::Cluster(servers) => servers.fail_over().await,
        }
    }

    /// Gives the primary a replica again.
    pub(crate) async fn mend(&mut self) {
        match self {
            Self::Plain(servers) => servers.mend().await,
            Self::Sentinel(servers) => servers.mend().await,
            Self::Cluster(servers) => servers.mend().await,
        }
    }

    /// Waits until the next failover can succeed.
    pub(crate) async fn until_all_is_well(&mut self) {
        match self {
            Self::Plain(_) => {}
            Self::Sentinel(servers) => servers.until_all_is_well().await,
            Self::Cluster(servers) => servers.until_all_is_well().await,
        }
    }
}
