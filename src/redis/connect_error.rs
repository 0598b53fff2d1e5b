//! Errors of making a store.

use super::error::Error;
use redis::{ErrorKind, RedisError};
use std::{error::Error as StdError, fmt, sync::Arc};

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
    /// The server is older than Redis 6.2.
    #[non_exhaustive]
    Version {
        /// What it says that it is.
        found: String,
    },
    /// The server is a replica, which grants nothing.
    Replica,
    /// The server has no such command, or the user may not run it.
    #[non_exhaustive]
    Command {
        /// The command's name, in capitals.
        name: String,
    },
    /// The user may not use the store's keys.
    #[non_exhaustive]
    Keys {
        /// The pattern that an access control list has to allow.
        pattern: String,
    },
    /// The user may not use the store's channels, over which waiters are notified.
    #[non_exhaustive]
    Channels {
        /// The pattern that an access control list has to allow.
        pattern: String,
    },
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

    /// A URL that redis-rs does not accept.
    pub(super) fn url(error: RedisError) -> Self {
        Self::setting("url", "redis-rs does not accept it").with_source(error)
    }

    /// The error of a first connection that failed.
    pub(super) fn connecting(error: Error) -> Self {
        match error {
            Error::Unavailable(error) if error.kind() == ErrorKind::InvalidClientConfig => {
                Self::setting("url", "redis-rs cannot connect with it").with_source(error)
            }
            error => Self::Unavailable(error.into_cause()),
        }
    }
}

impl ConnectError {
    /// The error of servers that were queried for where others are.
    pub(super) fn discovering(error: Error) -> Self {
        match error {
            Error::Redis(error) if error.code() == Some("ERR") => {
                Self::setting("cluster", "the server is not a node of a cluster").with_source(error)
            }
            error => Self::connecting(error),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { name, reason, .. } => write!(f, "{name}: {reason}"),
            Self::Unavailable(_) => f.write_str("no connection to Redis"),
            Self::Version { found } => write!(f, "Redis {found} is older than 6.2"),
            Self::Replica => f.write_str("the server is a replica"),
            Self::Command { name } => write!(f, "the server does not permit {name}"),
            Self::Keys { pattern } => write!(f, "the user may not use the keys {pattern}"),
            Self::Channels { pattern } => write!(f, "the user may not use the channels {pattern}"),
        }
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Setting { source, .. } => source.as_deref().map(|source| source as _),
            Self::Unavailable(error) => Some(error),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(error: &ConnectError) -> (String, Option<String>) {
        (error.to_string(), error.source().map(ToString::to_string))
    }

    #[test]
    fn a_setting_that_another_library_refuses_has_its_error_as_the_source() {
        let error = ConnectError::setting("root_certificate", "it is no certificate");
        let text = "root_certificate: it is no certificate".to_owned();
        assert_eq!(said(&error), (text.clone(), None));
        let error = error.with_source("no PEM");
        assert_eq!(said(&error), (text, Some("no PEM".to_owned())));
    }

    #[test]
    fn a_first_connection_fails_because_of_the_url_or_of_the_server() {
        let from = |kind| RedisError::from((kind, "why"));
        let config = Error::Unavailable(from(ErrorKind::InvalidClientConfig));
        let error = ConnectError::connecting(config);
        assert!(matches!(error, ConnectError::Setting { name: "url", .. }));
        assert!(error.source().is_some());
        let io = Error::Unavailable(from(ErrorKind::Io));
        let error = ConnectError::connecting(io);
        assert!(matches!(error, ConnectError::Unavailable(_)));
        assert!(error.source().is_some());
    }
}
