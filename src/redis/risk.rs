//! The warnings of a check.

use super::fault::ConnectError;
use std::{fmt, time::Duration};

/// The result of a check.
pub(super) type Checked = Result<Vec<Risk>, ConnectError>;

/// A problem that does not stop the store now. [`RedisSemaphore::check`](crate::redis::RedisSemaphore::check) returns
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Risk {
    /// When its memory is full, the server may evict keys of the store, and with them permits. With an `allkeys-…`
    /// policy it may also evict the limits that operators have set. Set `maxmemory-policy` to `noeviction`.
    #[non_exhaustive]
    Eviction {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server is the only node of a cluster. If nodes are added, the store cannot use their
    /// keys: connect with [`Builder::connect_cluster`](crate::redis::Builder::connect_cluster).
    ClusterNode,
    /// The server does not permit `INFO`, so its version, its role and its eviction policy are not
    /// known.
    NoInfo,
    /// The limits that operators have set cannot be read, for example because the slot of their key is stuck in a move.
    /// Claims continue under the limits that were read last, or else under their own.
    NoLimits,
    /// A claim of this process has a [window](crate::Claim::with_window) of an hour or more, and the server does not
    /// write an append-only file. A restarted server may have lost spent units, which it then grants again. Set
    /// `appendonly yes`.
    #[non_exhaustive]
    NoPersistence {
        /// The longest window of this process's claims so far.
        window: Duration,
    },
    /// The user may not run commands that [`Operate`](crate::Operate) needs, for example `ZSCAN` for
    /// [`usage`](crate::Operate::usage). Calls that need them fail. Of these commands, claims with a
    /// [window](crate::Claim::with_window) need `HDEL`, `HMGET` and `HSET`, and other claims need none. So
    /// [`Builder::connect`](crate::redis::Builder::connect) does not log this risk.
    #[non_exhaustive]
    NoOperate {
        /// The commands, in capitals.
        commands: Vec<String>,
    },
}

impl Risk {
    /// True if the risk may affect claims, not only operators' calls.
    pub(super) fn is_of_claims(&self) -> bool {
        !matches!(self, Self::NoOperate { .. })
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eviction { policy } => {
                let limits = match policy.starts_with("allkeys") {
                    true => " and the limits that operators set",
                    false => "",
                };
                write!(
                    f,
                    "the server may evict permits{limits} when its memory is full: maxmemory-policy is {policy}"
                )
            }
            Self::ClusterNode => {
                f.write_str("the server is the only node of a cluster: keys of further nodes cannot be used")
            }
            Self::NoInfo => f.write_str(
                "the server does not permit INFO: its version, role and eviction policy are not known",
            ),
            Self::NoLimits => f.write_str(
                "the limits that operators set cannot be read now: claims go on under those that are known",
            ),
            Self::NoPersistence { window } => write!(
                f,
                "the server may forget units that were spent within {} h when it restarts: appendonly is no",
                window.as_secs() / 3_600
            ),
            Self::NoOperate { commands } => write!(
                f,
                "the user may not run {}, so operators' calls that need them fail: allow them (`+{}`), or operate as \
                 another user",
                commands.join(", "),
                commands.join(" +").to_lowercase()
            ),
        }
    }
}
