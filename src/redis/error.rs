//! What can go wrong between here and Redis.

use redis::RedisError;
use std::{error::Error as StdError, fmt, time::Duration};

/// A failure of the store in Redis. It never means that a limit is reached.
///
/// In an [`AcquireError::Store`](crate::AcquireError::Store) it is the
/// [`source`](StdError::source), which downcasts to this type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection, and the command was not sent.
    Unavailable(RedisError),
    /// More claims arrived than the connection carries, and this one was not sent: it could not have
    /// been answered within its time.
    Congested,
    /// No answer within the store's own timeout. The command may have run.
    Timeout(Duration),
    /// The server got the command after its end, and did not run it. It was this time there, in
    /// milliseconds.
    Late(u64),
    /// The connection broke, or the server answered with an error: it is loading, read-only, out
    /// of memory, without permission and so on. The source is the reason.
    Redis(RedisError),
    /// An answer of a shape that no script of this crate has.
    Reply,
}

impl Error {
    /// Whether the command never left this process.
    pub(super) fn was_not_sent(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::Congested)
    }

    /// Whether the command had no effect for sure: it was not sent, or the server refused it
    /// whole, since it accepts no command, or no write, or not there.
    pub(super) fn had_no_effect(&self) -> bool {
        const CODES: [&str; 11] = [
            "ASK",
            "BUSY",
            "CLUSTERDOWN",
            "CROSSSLOT",
            "LOADING",
            "MASTERDOWN",
            "MISCONF",
            "MOVED",
            "NOAUTH",
            "NOREPLICAS",
            "READONLY",
        ];
        let is_refused = self.code().is_some_and(|code| CODES.contains(&code));
        is_refused || self.was_not_sent() || matches!(self, Self::Late(_))
    }

    /// Whether the same command may do better a moment later.
    pub(super) fn is_transient(&self) -> bool {
        self.was_not_sent()
            || self.is_disconnect()
            || matches!(self, Self::Timeout(_) | Self::Late(_))
    }

    /// Whether the connection is gone, so that another may do better.
    pub(super) fn is_disconnect(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_unrecoverable_error() || error.is_io_error())
    }

    /// Whether the server does not know the script.
    pub(super) fn is_no_script(&self) -> bool {
        self.code() == Some("NOSCRIPT")
    }

    /// Whether the cause may lie with one key of several.
    pub(super) fn is_of_a_key(&self) -> bool {
        const CODES: [&str; 5] = ["CROSSSLOT", "WRONGTYPE", "NOPERM", "TRYAGAIN", "ERR"];
        self.code().is_some_and(|code| CODES.contains(&code))
    }

    /// Whether the keys of a call live on several nodes.
    pub(super) fn is_cross_slot(&self) -> bool {
        self.code() == Some("CROSSSLOT")
    }

    /// Whether this server is a replica by now, so that a new connection may find the primary.
    pub(super) fn is_read_only(&self) -> bool {
        self.code() == Some("READONLY")
    }

    fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(_) => f.write_str("no connection to Redis"),
            Self::Congested => f.write_str("more claims than the connection to Redis carries"),
            Self::Timeout(bound) => write!(f, "no answer from Redis within {bound:?}"),
            Self::Late(_) => f.write_str("Redis got the command too late"),
            Self::Redis(_) => f.write_str("Redis failed"),
            Self::Reply => f.write_str("Redis gave an answer that no script of ours gives"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Unavailable(error) | Self::Redis(error) => Some(error),
            _ => None,
        }
    }
}
