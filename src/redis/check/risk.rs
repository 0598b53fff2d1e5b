//! What a check warns of.

use crate::observe::events;
use std::fmt;

/// What works, but may fail later. [`RedisSemaphore::check`](crate::redis::RedisSemaphore::check) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Risk {
    /// When its memory is full, the server may evict keys of the store, and with them permits. Set
    /// `maxmemory-policy` to `noeviction`.
    #[non_exhaustive]
    Eviction {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server is the only node of a cluster. Once the cluster has another one, the keys of that one
    /// cannot be used: connect with [`Builder::cluster`](crate::redis::Builder::cluster).
    ClusterNode,
    /// The server does not permit `INFO`, so its version, its role and its eviction policy are not
    /// known.
    NoInfo,
}

impl Risk {
    pub(in crate::redis) fn warn(&self) {
        events::risk(self);
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eviction { policy } => write!(
                f,
                "the server may evict permits when its memory is full: maxmemory-policy is {policy}"
            ),
            Self::ClusterNode => {
                f.write_str("the server is the only node of a cluster: keys of further nodes cannot be used")
            }
            Self::NoInfo => f.write_str(
                "the server does not permit INFO: its version, role and eviction policy are not known",
            ),
        }
    }
}
