//! The setups that are measured: the kind of failover, and the settings of the servers and clients.

use std::{ops::Range, time::Duration};
use tower_semaphore::{RedisSemaphore, redis::Builder};

/// The kind of failover, by who promotes the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operator.
    Plain,
    Sentinel,
    Cluster,
}

/// See the module docs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    /// The delay with which a replica receives the primary's writes.
    pub(crate) lag: Duration,
    /// True if replicas receive nothing for a moment before each failover.
    pub(crate) stalls: bool,
    /// True if the servers have `min-replicas-to-write 1`.
    server_setting: bool,
    /// The clients' setting of the same name.
    min_replicas: u32,
}

/// The default delay of replication.
const LAG: Duration = Duration::from_millis(5);

impl Setup {
    /// All setups that are measured.
    pub(crate) fn all() -> Vec<Self> {
        let with_kind = |kind| Self {
            kind,
            lag: LAG,
            stalls: false,
            server_setting: false,
            min_replicas: 0,
        };
        let [plain, sentinel, cluster] =
            [Kind::Plain, Kind::Sentinel, Kind::Cluster].map(with_kind);
        vec![
            plain.without_lag(),
            plain,
            plain.with_server_setting(),
            plain.with_min_replicas(),
            plain.stalling(),
            plain.stalling().with_server_setting(),
            plain.stalling().with_min_replicas(),
            sentinel,
            sentinel.with_min_replicas(),
            cluster,
            cluster.with_min_replicas(),
        ]
    }

    fn without_lag(self) -> Self {
        let lag = Duration::ZERO;
        Self { lag, ..self }
    }

    fn stalling(self) -> Self {
        let stalls = true;
        Self { stalls, ..self }
    }

    fn with_server_setting(self) -> Self {
        let server_setting = true;
        Self {
            server_setting,
            ..self
        }
    }

    fn with_min_replicas(self) -> Self {
        let min_replicas = 1;
        Self {
            min_replicas,
            ..self
        }
    }

    /// The lease of the permits. It outlasts a failover, and is short because a round waits for refreshes.
    pub(crate) fn lease(&self) -> Duration {
        Duration::from_millis(match self.kind {
            Kind::Plain => 1_500,
            Kind::Sentinel | Kind::Cluster => 6_000,
        })
    }

    /// The time in ms from a burst of claims until the primary fails. With a stall no grant of the burst reaches the
    /// replica. Otherwise none, some or all do, because the time is between 0 and twice the lag plus 2 ms.
    pub(crate) fn until_failover(&self) -> Range<u64> {
        match self.stalls {
            true => 100..400,
            false => 0..self.lag.as_millis() as u64 * 2 + 2,
        }
    }

    pub(crate) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Plain => "plain replica",
            Kind::Sentinel => "Sentinel",
            Kind::Cluster => "cluster",
        };
        let setting = match (self.server_setting, self.min_replicas) {
            (true, _) => ", `min-replicas-to-write 1`",
            (false, 0) => "",
            (false, _) => ", `min_replicas(1)`",
        };
        let link = match self.stalls {
            true => "stalled".to_owned(),
            false => format!("{} ms", self.lag.as_millis()),
        };
        format!("{kind}{setting}, {link}")
    }

    /// The servers' command-line arguments.
    pub(crate) fn server_args(&self) -> Vec<&'static str> {
        match self.server_setting {
            true => vec!["--min-replicas-to-write", "1"],
            false => Vec::new(),
        }
    }

    /// The settings of a client.
    pub(crate) fn builder(&self) -> Builder {
        RedisSemaphore::builder()
            .lease(self.lease())
            .min_replicas(self.min_replicas)
    }
}
