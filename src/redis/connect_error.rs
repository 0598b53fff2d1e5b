//! Errors of making a store.

use super::error::Error;
use redis::{ErrorKind, RedisError};
use std::{error::Error as StdError, fmt, io, sync::Arc};

/// Why a [`RedisSemaphore`](super::RedisSemaphore) could not be made.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tower_semaphore::{RedisSemaphore, redis::ConnectError};
///
/// let builder = RedisSemaphore::builder().lease(Duration::ZERO);
/// match builder.connect("redis://127.0.0.1/").await {
///     Err(ConnectError::Setting { name, .. }) => assert_eq!(name, "lease"),
///     Err(ConnectError::Unavailable(error)) => panic!("start Redis, then try again: {error}"),
///     outcome => panic!("{outcome:?}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting cannot work, so another attempt fails too.
    #[non_exhaustive]
    Setting {
        /// The setting's name: a method of [`Builder`](super::Builder), or `url`.
        name: &'static str,
        /// What is wrong with its value.
        reason: &'static str,
        /// The error of another library that refused the value, if one did.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// No connection was made: no server answered, the server refused the user or the password,
    /// or one side refused the other's certificate. The error is also the
    /// [`source`](StdError::source).
    Unavailable(RedisError),
}

impl ConnectError {
    pub(super) fn setting(name: &'static str, reason: &'static str) -> Self {
        Self::Setting {
            name,
            reason,
            source: None,
        }
    }

    /// Adds the error of another library that refused the setting.
    pub(super) fn with_source(mut self, error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        if let Self::Setting { source, .. } = &mut self {
            *source = Some(error.into().into());
        }
        self
    }

    /// The error of a first connection that failed.
    pub(super) fn connecting(error: Error) -> Self {
        match error {
            Error::Unavailable(error) if error.kind() == ErrorKind::InvalidClientConfig => {
                Self::setting("url", "redis-rs cannot connect with it").with_source(error)
            }
            Error::Unavailable(error) | Error::Redis(error) => Self::Unavailable(error),
            other => Self::Unavailable(io::Error::other(other).into()),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { name, reason, .. } => write!(f, "{name}: {reason}"),
            Self::Unavailable(_) => f.write_str("no connection to Redis"),
        }
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Setting { source, .. } => source.as_deref().map(|source| source as _),
            Self::Unavailable(error) => Some(error),
        }
    }
}
