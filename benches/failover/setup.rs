//! What is measured: a way to fail over, and the settings of its servers and clients.

use std::time::Duration;
use tower_semaphore::{RedisSemaphore, redis::Builder};

/// Who promotes the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An operator.
    Plain,
}

/// See the module docs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: Kind,
    /// How much later a replica gets what the primary's clients have got.
    pub(crate) lag: Duration,
    /// Whether the servers have `min-replicas-to-write 1`.
    pub(crate) server_setting: bool,
    /// The setting of the same name.
    pub(crate) min_replicas: u32,
}

/// Short, so that a failover is over soon.
pub(crate) const LEASE: Duration = Duration::from_millis(1_500);

impl Setup {
    /// All that are measured.
    pub(crate) fn all() -> Vec<Self> {
        let slow = Duration::from_millis(5);
        let plain = Self {
            kind: Kind::Plain,
            lag: slow,
            server_setting: false,
            min_replicas: 0,
        };
        vec![
            Self {
                lag: Duration::ZERO,
                ..plain
            },
            plain,
            Self {
                server_setting: true,
                ..plain
            },
            Self {
                min_replicas: 1,
                ..plain
            },
        ]
    }

    pub(crate) fn name(&self) -> String {
        let kind = match self.kind {
            Kind::Plain => "plain replica",
        };
        let server = match self.server_setting {
            true => ", `min-replicas-to-write 1`",
            false => "",
        };
        let client = match self.min_replicas {
            0 => "",
            _ => ", `min_replicas(1)`",
        };
        format!("{kind}{server}{client}")
    }

    /// What the servers are started with.
    pub(crate) fn server_args(&self) -> Vec<&'static str> {
        match self.server_setting {
            true => vec!["--min-replicas-to-write", "1"],
            false => Vec::new(),
        }
    }

    /// The settings of a client.
    pub(crate) fn builder(&self) -> Builder {
        RedisSemaphore::builder()
            .lease(LEASE)
            .min_replicas(self.min_replicas)
    }
}
