//! Errors of making a store, and what a check warns of.

use super::error::{Error, said};
use redis::RedisError;
use std::{error::Error as StdError, fmt, iter::successors, sync::Arc};

/// Why a [`RedisSemaphore`](super::RedisSemaphore) could not be made, or what a
/// [check](super::RedisSemaphore::check) has found.
///
/// After [`Unavailable`](Self::Unavailable) another attempt may succeed. After any other error it fails
/// too, until a person has changed something: a setting of this process, or of the server.
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
///     Err(ConnectError::Unavailable { source, .. }) => panic!("start Redis, then try again: {source}"),
///     outcome => panic!("{outcome:?}"),
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// A setting cannot work: by itself, or with the server that was found.
    #[non_exhaustive]
    Setting {
        /// The setting's name: a method of [`Builder`](super::Builder), or `url`.
        name: &'static str,
        /// What is wrong with its value.
        reason: &'static str,
        /// The error of the server or of another library that refused the value, if one did.
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// Another attempt may succeed: no server answers, or one accepts no connections or no writes just
    /// now, for example because it loads its data or has too few replicas.
    #[non_exhaustive]
    Unavailable {
        /// What the last attempt met with.
        source: RedisError,
    },
    /// Tokio's time is paused. The store needs real time, because its servers go by it.
    PausedClock,
    /// The server refuses the user or the password.
    #[non_exhaustive]
    Credentials {
        /// The setting that has them: `url` or `credentials`.
        name: &'static str,
        /// What is wrong with them.
        reason: &'static str,
        /// What the server said.
        source: RedisError,
    },
    /// One side of a TLS connection refuses the other's certificate, or they have no version of TLS in
    /// common. A server that refuses a client certificate may end the connection before its reason is
    /// read: that attempt is [`Unavailable`](Self::Unavailable), and a later one is this error.
    #[non_exhaustive]
    Tls {
        /// What the TLS library said.
        source: Arc<dyn StdError + Send + Sync>,
    },
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
    /// The server refuses for another reason.
    #[non_exhaustive]
    Refused {
        /// What the server said.
        source: RedisError,
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
            *source = Some(Arc::new(Once(error.into())));
        }
        self
    }

    pub(super) fn unavailable(error: impl Into<RedisError>) -> Self {
        let source = error.into();
        Self::Unavailable { source }
    }

    pub(super) fn tls(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = Arc::new(Once(error.into()));
        Self::Tls { source }
    }

    /// A URL that redis-rs does not accept.
    pub(super) fn url(error: RedisError) -> Self {
        let said = error.to_string();
        // redis-rs tells it by its words only. Without TLS it does not parse `rediss://`.
        let reason = match cfg!(any(feature = "tls-rustls", feature = "tls-native-tls")) {
            false if said.contains("TLS") => {
                "`rediss://` needs the feature `tls-rustls` or `tls-native-tls`"
            }
            _ if said.contains("did not parse") => {
                "redis-rs does not accept it (is \"redis://\" missing?)"
            }
            _ => "redis-rs does not accept it",
        };
        Self::setting("url", reason).with_source(error)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting { name, reason, .. } | Self::Credentials { name, reason, .. } => {
                write!(f, "{name}: {reason}")
            }
            Self::Unavailable { .. } => f.write_str("Redis is unavailable"),
            Self::PausedClock => Error::PausedClock.fmt(f),
            Self::Tls { .. } => f.write_str("no TLS connection to Redis"),
            Self::Version { found } => write!(f, "Redis {found} is older than 6.2"),
            Self::Replica => f.write_str("the server is a replica"),
            Self::Command { name } => write!(f, "the server does not permit {name}"),
            Self::Keys { pattern } => write!(f, "the user may not use the keys {pattern}"),
            Self::Channels { pattern } => write!(f, "the user may not use the channels {pattern}"),
            Self::Refused { .. } => f.write_str("the server refuses what the store needs"),
        }
    }
}

impl StdError for ConnectError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Setting { source, .. } => source.as_deref().map(|source| source as _),
            Self::Tls { source } => Some(&**source),
            Self::Unavailable { source }
            | Self::Refused { source }
            | Self::Credentials { source, .. } => Some(said(source)),
            _ => None,
        }
    }
}

/// An error without the causes that it repeats itself.
#[derive(Debug)]
struct Once(Box<dyn StdError + Send + Sync>);

impl fmt::Display for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Once {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let text = self.0.to_string();
        let is_news = |cause: &&(dyn StdError + 'static)| !text.contains(&cause.to_string());
        successors(self.0.source(), |&cause| cause.source()).find(is_news)
    }
}

/// What a check has found.
pub(super) type Checked = Result<Vec<Risk>, ConnectError>;

/// What works, but may fail later. [`RedisSemaphore::check`](crate::redis::RedisSemaphore::check) returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Risk {
    /// When its memory is full, the server may evict keys of the store, and with them permits; a policy of the kind
    /// `allkeys-…` also the limits that operators have set. Set `maxmemory-policy` to `noeviction`.
    #[non_exhaustive]
    Eviction {
        /// The server's `maxmemory-policy`.
        policy: String,
    },
    /// The server is the only node of a cluster. Once the cluster has another one, the keys of that one
    /// cannot be used: connect with [`Builder::connect_cluster`](crate::redis::Builder::connect_cluster).
    ClusterNode,
    /// The server does not permit `INFO`, so its version, its role and its eviction policy are not
    /// known.
    NoInfo,
    /// The limits that operators have set cannot be read, for example because the slot of their key is stuck in a move.
    /// Claims go on under the limits that are known, else under their own.
    NoLimits,
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::ErrorKind;
    use std::io;

    fn chain(error: &ConnectError) -> Vec<String> {
        let causes = successors(Some(error as &dyn StdError), |&error| error.source());
        causes.map(ToString::to_string).collect()
    }

    #[test]
    fn a_setting_that_another_library_refuses_has_its_error_as_the_source() {
        let error = ConnectError::setting("root_certificate", "it is no certificate");
        let text = "root_certificate: it is no certificate";
        assert_eq!(chain(&error), [text]);
        let error = error.with_source("no PEM");
        assert_eq!(chain(&error), [text, "no PEM"]);
    }

    #[test]
    fn what_a_cause_repeats_is_said_once() {
        let refused = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let causes = ["Redis is unavailable", "connection refused"];
        assert_eq!(chain(&ConnectError::unavailable(refused())), causes);
        let causes = ["no TLS connection to Redis", "connection refused"];
        assert_eq!(chain(&ConnectError::tls(refused())), causes);
    }

    #[test]
    fn a_scheme_is_missed_where_a_text_is_no_url() {
        let url = |text| {
            chain(&ConnectError::url(
                (ErrorKind::InvalidClientConfig, text).into(),
            ))
        };
        assert!(url("Redis URL did not parse")[0].ends_with("(is \"redis://\" missing?)"));
        assert!(url("Invalid database number")[0].ends_with("redis-rs does not accept it"));
    }
}
