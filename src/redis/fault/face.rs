//! The errors that users see.

use crate::{redis::error::own_text, semaphore::BoxError};
use redis::RedisError;
use std::{borrow::Cow, error::Error as StdError, fmt, iter::successors, sync::Arc};

/// The kind of a failure of the store in Redis, by its remedy.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tower_semaphore::{RedisSemaphore, redis::Kind};
///
/// let builder = RedisSemaphore::builder().lease(Duration::ZERO);
/// let error = builder.connect("redis://127.0.0.1/").await.expect_err("no lease is that short");
/// assert_eq!((error.kind(), error.setting()), (Kind::Misconfigured, Some("lease")));
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// The same call may succeed a moment later: its keys are moving to another node, this process was too busy, or the
    /// reply is not recognized, for example from a proxy whose backend is starting.
    Retry,
    /// No server answers, or none can work now: it loads its data, is out of memory, is a replica, or has too few
    /// replicas. Another attempt may succeed. Until then [`WhenUnavailable`](crate::redis::WhenUnavailable) decides
    /// claims.
    Unavailable,
    /// The server refuses this call because of its key. Calls for other keys may succeed.
    OneKey,
    /// A setting of this process or of the server has to be changed. Until then every attempt fails.
    Misconfigured,
}

/// A failure, classified.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    pub(super) setting: Option<&'static str>,
    /// The failure, and the remedy.
    pub(super) text: Cow<'static, str>,
    pub(super) source: Option<Source>,
}

/// The cause of a failure.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Redis(RedisError),
    Other(Arc<DistinctCauses>),
}

impl Fault {
    /// A fault without a setting and a cause.
    pub(super) fn new(kind: Kind, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            setting: None,
            text: text.into(),
            source: None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.setting {
            Some(setting) => write!(f, "{setting}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// An error without the causes whose text it already contains.
#[derive(Debug)]
pub(super) struct DistinctCauses(BoxError);

impl fmt::Display for DistinctCauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for DistinctCauses {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let text = self.0.to_string();
        let is_news = |cause: &&(dyn StdError + 'static)| !text.contains(&cause.to_string());
        successors(self.0.source(), |&cause| cause.source()).find(is_news)
    }
}

impl ConnectError {
    /// True if no answer came in time.
    pub(in crate::redis) fn is_late(&self) -> bool {
        self.redis_error().is_some_and(RedisError::is_timeout)
    }
}

/// Implements a public error that wraps a fault.
macro_rules! face {
    ($name:ident) => {
        impl $name {
            /// The kind of the failure, which determines the remedy.
            ///
            /// # Examples
            ///
            /// See [`Kind`].
            pub fn kind(&self) -> Kind {
                self.0.kind
            }

            /// The setting to change: a method of [`Builder`](crate::redis::Builder), or `url`. `None` if the cause is
            /// not a setting of the store.
            ///
            /// # Examples
            ///
            /// See [`Kind`].
            pub fn setting(&self) -> Option<&'static str> {
                self.0.setting
            }

            /// The error of redis-rs, which has the server's answer.
            ///
            /// # Examples
            ///
            /// ```
            #[doc = concat!("use tower_semaphore::redis::", stringify!($name), ";")]
            ///
            #[doc = concat!("fn is_out_of_memory(error: &", stringify!($name), ") -> bool {")]
            ///     error.redis_error().and_then(|error| error.code()) == Some("OOM")
            /// }
            /// ```
            pub fn redis_error(&self) -> Option<&RedisError> {
                match &self.0.source {
                    Some(Source::Redis(error)) => Some(error),
                    Some(Source::Other(error)) => error.0.downcast_ref(),
                    None => None,
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl StdError for $name {
            fn source(&self) -> Option<&(dyn StdError + 'static)> {
                match self.0.source.as_ref()? {
                    Source::Redis(error) => Some(own_text(error)),
                    Source::Other(error) => Some(&**error),
                }
            }
        }
    };
}

/// A failure of the store in Redis. It never means that a limit is reached.
///
/// The [`source`](StdError::source) of an [`AcquireError::Store`](crate::AcquireError::Store)
/// downcasts to this type.
///
/// # Examples
///
/// ```
/// use std::error::Error as _;
/// use tower_semaphore::{AcquireError, redis};
///
/// fn needs_a_person(error: &AcquireError) -> bool {
///     let source = error.source().and_then(|source| source.downcast_ref::<redis::Error>());
///     source.is_some_and(|error| error.kind() == redis::Kind::Misconfigured)
/// }
///
/// assert!(!needs_a_person(&AcquireError::Overloaded));
/// ```
#[derive(Debug, Clone)]
pub struct Error(pub(super) Fault);

/// The failure to make a [`RedisSemaphore`](crate::redis::RedisSemaphore), or of a
/// [check](crate::redis::RedisSemaphore::check).
///
/// Its [`kind`](Self::kind) is [`Kind::Unavailable`] if another attempt may succeed, and otherwise
/// [`Kind::Misconfigured`]: then it names the setting and the remedy.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tower_semaphore::{RedisSemaphore, redis::Kind};
///
/// let builder = RedisSemaphore::builder().lease(Duration::ZERO);
/// match builder.connect("redis://127.0.0.1/").await {
///     Err(error) if error.kind() == Kind::Unavailable => panic!("start Redis, then try again: {error}"),
///     Err(error) => assert!(error.to_string().starts_with("lease: ")),
///     Ok(_) => panic!("no lease is that short"),
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ConnectError(pub(super) Fault);

face!(Error);
face!(ConnectError);

impl ConnectError {
    pub(in crate::redis) fn of_setting(
        name: &'static str,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let setting = Some(name);
        let fault = Fault::new(Kind::Misconfigured, reason);
        Self(Fault { setting, ..fault })
    }

    /// Adds the error of another library that refused the setting.
    pub(in crate::redis) fn with_source(mut self, error: impl Into<BoxError>) -> Self {
        self.0.source = Some(Source::Other(Arc::new(DistinctCauses(error.into()))));
        self
    }

    pub(in crate::redis) fn unavailable(error: impl Into<RedisError>) -> Self {
        let source = Some(Source::Redis(error.into()));
        let fault = Fault::new(Kind::Unavailable, "Redis is unavailable");
        Self(Fault { source, ..fault })
    }

    /// A URL that redis-rs does not accept.
    pub(in crate::redis) fn url(error: RedisError) -> Self {
        let text = error.to_string();
        // redis-rs reports the cause only in the text. Without TLS it does not parse `rediss://`.
        let reason = match cfg!(any(feature = "tls-rustls", feature = "tls-native-tls")) {
            false if text.contains("TLS") => {
                "`rediss://` needs the feature `tls-rustls` or `tls-native-tls`"
            }
            _ if text.contains("did not parse") => {
                "redis-rs does not accept it (is \"redis://\" missing?)"
            }
            _ => "redis-rs does not accept it",
        };
        Self::of_setting("url", reason).with_source(error)
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
        let error = ConnectError::of_setting("root_certificate", "it is no certificate");
        let text = "root_certificate: it is no certificate";
        assert_eq!(chain(&error), [text]);
        let error = error.with_source("no PEM");
        assert_eq!(chain(&error), [text, "no PEM"]);
    }

    #[test]
    fn a_text_that_a_cause_repeats_is_shown_once() {
        let refused = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        let (unavailable, setting) = (
            ConnectError::unavailable(refused()),
            ConnectError::of_setting("root_certificate", "untrusted").with_source(refused()),
        );
        let causes = ["Redis is unavailable", "connection refused"];
        assert_eq!(chain(&unavailable), causes);
        let causes = ["root_certificate: untrusted", "connection refused"];
        assert_eq!(chain(&setting), causes);
        for error in [unavailable, setting] {
            assert!(error.redis_error().is_some_and(RedisError::is_io_error));
        }
    }

    #[test]
    fn a_text_that_is_no_url_gets_a_hint_at_the_scheme() {
        let url = |text| {
            chain(&ConnectError::url(
                (ErrorKind::InvalidClientConfig, text).into(),
            ))
        };
        assert!(url("Redis URL did not parse")[0].ends_with("(is \"redis://\" missing?)"));
        assert!(url("Invalid database number")[0].ends_with("redis-rs does not accept it"));
    }
}
