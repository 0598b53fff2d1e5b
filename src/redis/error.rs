//! Errors of the store in Redis.

use crate::semaphore::timer::Elapsed;
use redis::RedisError;
use std::{error::Error as StdError, fmt, io, time::Duration};

/// A failure of the store in Redis. It never means that a limit is reached.
///
/// The [`source`](StdError::source) of an [`AcquireError::Store`](crate::AcquireError::Store)
/// downcasts to this type.
///
/// # Examples
///
/// ```
/// use std::error::Error as _;
/// use tower_semaphore::{AcquireError, redis, semaphore::StoreError};
///
/// fn is_congested(error: &AcquireError) -> bool {
///     let source = error.source().and_then(|source| source.downcast_ref());
///     matches!(source, Some(redis::Error::Congested))
/// }
///
/// let error = AcquireError::Store(StoreError::new(redis::Error::Congested));
/// assert!(is_congested(&error));
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection, so the command was not sent.
    Unavailable(RedisError),
    /// More claims arrived than the connection carries. The claim was not sent, because its answer
    /// would probably have come too late.
    Congested,
    /// No answer came within this time. The command may have run.
    Timeout(Duration),
    /// The command reached the server after its deadline, so the server did not run it. The number
    /// is the server's time then, in milliseconds since the Unix epoch.
    Late(u64),
    /// Only so many replicas are known to have what the command has written, in time, which is fewer
    /// than [`min_replicas`](super::Builder::min_replicas). The command has run.
    NotReplicated(u32),
    /// The connection broke, or the server answered with an error, for example because it loads its
    /// data, is a replica, is out of memory, or does not permit the command.
    Redis(RedisError),
    /// The claim was granted, but its future was not polled within this time, the lease, so that the
    /// grant has ended. The task, or its runtime, was held up.
    Expired(Duration),
    /// Tokio's time is paused, so a time was over long before it had passed. The store needs real time, because
    /// its servers go by it. The command may have run.
    PausedClock,
    /// The server's answer has a shape that no script of this crate returns.
    Reply,
}

impl Error {
    /// An attempt to connect has failed.
    pub(super) fn unconnected(error: impl Into<RedisError>) -> Self {
        Self::Unavailable(error.into())
    }

    /// Whether the connection is gone, so that the command may succeed on a new one.
    pub(super) fn is_disconnect(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_unrecoverable_error() || error.is_io_error())
    }

    /// Whether the server does not know the script.
    pub(super) fn is_no_script(&self) -> bool {
        self.code() == Some("NOSCRIPT")
    }

    /// Whether a server has said it.
    pub(super) fn is_an_answer(&self) -> bool {
        matches!(self, Self::Unavailable(error) | Self::Redis(error) if error.code().is_some())
    }

    /// Whether the keys of a call have no node for a moment, because they are moving or their node has
    /// died. A node that names another one is followed, unless that one cannot be reached, or does not
    /// have them either.
    pub(super) fn is_moving(&self) -> bool {
        const CODES: [&str; 4] = ["ASK", "CLUSTERDOWN", "MOVED", "TRYAGAIN"];
        self.code().is_some_and(|code| CODES.contains(&code))
    }

    /// Where a node has sent the command, and whether the slot is only moving there.
    pub(super) fn redirect(&self) -> Option<(&str, bool)> {
        let Self::Redis(error) = self else {
            return None;
        };
        let (address, _) = error.redirect_node()?;
        Some((address, self.code() == Some("ASK")))
    }

    /// Whether some keys of the command have moved, and some not yet.
    pub(super) fn is_try_again(&self) -> bool {
        self.code() == Some("TRYAGAIN")
    }

    /// Whether another node may have the keys by now.
    pub(super) fn is_of_the_topology(&self) -> bool {
        let codes = ["CLUSTERDOWN", "MOVED"];
        self.is_disconnect() || self.code().is_some_and(|code| codes.contains(&code))
    }

    /// Whether this server has become a replica, so that a new connection may find the primary.
    pub(super) fn is_read_only(&self) -> bool {
        self.code() == Some("READONLY")
    }

    /// Whether the server has ended a command that waited, because it has become a replica.
    pub(super) fn is_unblocked(&self) -> bool {
        self.code() == Some("UNBLOCKED")
    }

    /// What redis-rs said, or this.
    pub(super) fn into_cause(self) -> RedisError {
        match self {
            Self::Unavailable(error) | Self::Redis(error) => error,
            other => io::Error::other(other).into(),
        }
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
            Self::NotReplicated(have) => {
                write!(
                    f,
                    "only {have} replicas of Redis have it, fewer than min_replicas"
                )
            }
            Self::Expired(lease) => write!(f, "granted, but not taken within {lease:?}"),
            Self::PausedClock => f.write_str(
                "Tokio's time is paused (`tokio::time::pause` or `start_paused`), but a store in Redis \
                 needs real time",
            ),
            Self::Redis(_) => f.write_str("Redis failed"),
            Self::Reply => f.write_str("Redis gave an answer that no script of ours gives"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Unavailable(error) | Self::Redis(error) => Some(said(error)),
            _ => None,
        }
    }
}

impl Elapsed {
    /// This error, unless the time has not passed: then Tokio's clock is paused.
    pub(super) fn or(self, error: Error) -> Error {
        match self.is_early {
            true => Error::PausedClock,
            false => error,
        }
    }
}

/// What an error of redis-rs says. One that has a source only repeats its text.
pub(super) fn said(error: &RedisError) -> &(dyn StdError + 'static) {
    error.source().unwrap_or(error)
}

#[cfg(test)]
mod tests;
