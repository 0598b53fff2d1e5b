//! Errors of making a store, what a check warns of, and what an error of a server means for a person: something to wait for, or something to
//! mend.
//!
//! [`Judge`] is the only table of what servers say: connecting and checking read it, for every topology.

use super::{
    error::{Error, said},
    transport::{Place, Unfit},
};
use redis::{ErrorKind, RedisError, make_extension_error};
use std::{error::Error as StdError, fmt, io, iter::successors, sync::Arc};

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
        /// The setting's name: a method of [`Builder`](super::Builder), `url`, or `connection` for one
        /// that was supplied.
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
        /// The setting that has them: `url`, `credentials`, or `connection` for one that was supplied.
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
        // The only thing that redis-rs tells of a text that is no URL of its schemes.
        let reason = match error.to_string().contains("did not parse") {
            true => "redis-rs does not accept it (is \"redis://\" missing?)",
            false => "redis-rs does not accept it",
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
    /// When its memory is full, the server may evict keys of the store, and with them permits. Set
    /// `maxmemory-policy` to `noeviction`.
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

/// Where an error comes from.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) place: Place,
    /// What the names of the store's keys and channels begin with.
    pub(super) prefix: &'a str,
}

impl Judge<'_> {
    /// What the error of a connection means.
    pub(super) fn connecting(&self, error: Error) -> ConnectError {
        self.judge("", error)
    }

    /// What the error of a command means.
    pub(super) fn judge(&self, command: &str, error: Error) -> ConnectError {
        let error = match error {
            Error::PausedClock => return ConnectError::PausedClock,
            Error::Reply => return ConnectError::setting(self.setting(), NO_REDIS),
            error => error.into_cause(),
        };
        let known = self.of_kind(&error);
        let known = known.or_else(|| self.of_answer(command, &error));
        known.unwrap_or_else(|| {
            let is_passing = may_pass(&error) || is_unknown(&error);
            let source = of_command(command, error);
            match is_passing {
                true => ConnectError::Unavailable { source },
                false => ConnectError::Refused { source },
            }
        })
    }

    /// A server that has said that it is a replica. Where another one takes its place, it is soon found.
    pub(super) fn replica(&self) -> ConnectError {
        match self.is_found() {
            true => ConnectError::unavailable(io::Error::other("the server is a replica")),
            false => ConnectError::Replica,
        }
    }

    /// A server that has said that it is a Sentinel.
    pub(super) fn is_sentinel(&self) -> ConnectError {
        let reason = "the server is a Sentinel, which `connect_sentinel` connects to";
        ConnectError::setting(self.setting(), reason)
    }

    /// What was found before a server has answered, or instead of an answer.
    fn of_kind(&self, error: &RedisError) -> Option<ConnectError> {
        let reason = match (Unfit::of(error), error.kind()) {
            (Some(Unfit::Handshake(error)), _) => return Some(ConnectError::tls(error.clone())),
            (Some(Unfit::WrongName), _) if self.place == Place::Sentinel => {
                return Some(ConnectError::setting("connect_sentinel", WRONG_NAME));
            }
            (Some(Unfit::SpeaksTls), _) => "the server speaks TLS: it needs `rediss://`",
            (Some(Unfit::SpeaksNoTls), _) => "the server speaks no TLS: it needs `redis://`",
            (_, ErrorKind::InvalidClientConfig) => "redis-rs cannot connect with it",
            (_, ErrorKind::RESP3NotSupported) => PROTOCOL,
            // The answer has ended too soon, because the server or a proxy has.
            (_, ErrorKind::Parse) if is_cut(error) => {
                return Some(ConnectError::unavailable(error.clone()));
            }
            (_, ErrorKind::Parse) => NO_REDIS,
            (_, ErrorKind::AuthenticationFailed) => return Some(self.credentials(REFUSED, error)),
            _ => return None,
        };
        let said = error.to_string();
        let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(ConnectError::setting(self.setting(), reason).with_source(line))
    }

    /// What a server has said, by its code.
    fn of_answer(&self, command: &str, error: &RedisError) -> Option<ConnectError> {
        let wrong = |name, reason| {
            let error = of_command(command, error.clone());
            Some(ConnectError::setting(name, reason).with_source(error))
        };
        match error.code()? {
            "NOAUTH" => Some(self.credentials(NO_PASSWORD, error)),
            "WRONGPASS" => Some(self.credentials(REFUSED, error)),
            "NOPROTO" => wrong(self.setting(), PROTOCOL),
            "WRONGTYPE" => wrong("prefix", "another program uses keys of this name"),
            "READONLY" => Some(self.replica()),
            "MOVED" | "ASK" if !self.is_found() => wrong(self.setting(), NODE),
            _ if may_pass(error) => None,
            _ => self.of_text(command, error),
        }
    }

    /// What a server has said, by its words, because many mistakes have the same code.
    fn of_text(&self, command: &str, error: &RedisError) -> Option<ConnectError> {
        let said = error.detail()?.to_lowercase();
        let pattern = || format!("{}*", self.prefix);
        let wrong =
            |name, reason| Some(ConnectError::setting(name, reason).with_source(error.clone()));
        // Whole phrases, because the text may have the user's name.
        let says = |phrases: &[&str]| phrases.iter().any(|phrase| said.contains(phrase));
        if says(&["without any password configured"]) {
            return Some(self.credentials(NEEDLESS, error));
        }
        if says(&["db index", "select is not allowed"]) {
            return wrong(self.setting(), "the server has no such database");
        }
        if says(&["cluster support disabled", "unknown command 'cluster'"]) {
            return wrong("connect_cluster", "the server is not a node of a cluster");
        }
        if self.place == Place::Sentinel && says(&["unknown command"]) {
            return wrong("connect_sentinel", "the server is not a Sentinel");
        }
        if says(&["of the channels", "the channel", "a channel"]) {
            return Some(ConnectError::Channels { pattern: pattern() });
        }
        if says(&["of the keys", "access a key"]) {
            return Some(ConnectError::Keys { pattern: pattern() });
        }
        let is_refused = says(&["permission", "can't run", "unknown", "not allowed"]);
        is_refused.then(|| ConnectError::Command {
            name: name(command, &said),
        })
    }

    fn credentials(&self, reason: &'static str, source: &RedisError) -> ConnectError {
        let name = match self.place {
            Place::Primary => "credentials",
            _ => self.setting(),
        };
        ConnectError::Credentials {
            name,
            reason,
            source: source.clone(),
        }
    }

    /// The setting that says where the server is.
    fn setting(&self) -> &'static str {
        match self.place {
            Place::Supplied => "connection",
            _ => "url",
        }
    }

    /// Whether the server was found through others, which may name another one a moment later.
    fn is_found(&self) -> bool {
        matches!(self.place, Place::Primary | Place::Node)
    }
}

/// What only a person mends, beside what the table names.
const CODES: [&str; 5] = ["CROSSSLOT", "DENIED", "EXECABORT", "NOPERM", "NOSCRIPT"];
const PHRASES: [&str; 6] = [
    "invalid",
    "not supported",
    "protocol error",
    "syntax error",
    "user_script",
    "wrong number of arguments",
];

const WRONG_NAME: &str = "the Sentinels know no primary of this name";
const NO_REDIS: &str = "what answers there is no Redis";
const NO_PASSWORD: &str = "the server requires a password, and there is none";
const REFUSED: &str = "the server refuses the user or the password";
const NEEDLESS: &str = "the server has no password, but there is one here";
const PROTOCOL: &str = "the server does not know this version of its protocol";
const NODE: &str = "the server is a node of a cluster, which `connect_cluster` connects to";

/// Whether an answer ended too soon.
fn is_cut(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    said.to_lowercase().contains("unexpected end of input")
}

/// Whether a server, or a proxy, has said what is not known to need a person: its backend may be starting.
fn is_unknown(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default().to_lowercase();
    let is_known = |phrase: &&str| said.contains(*phrase);
    let is_of_a_person = |code| CODES.contains(&code) || PHRASES.iter().any(is_known);
    error.code().is_some_and(|code| !is_of_a_person(code))
}

/// Whether another attempt may succeed.
fn may_pass(error: &RedisError) -> bool {
    let error = Error::Redis(error.clone());
    error.is_unavailable() || error.is_moving()
}

/// The same error, which names the command too.
fn of_command(command: &str, error: RedisError) -> RedisError {
    match (error.code(), error.detail()) {
        (Some(code), said) if !command.is_empty() => {
            let said = format!("{command}: {}", said.unwrap_or_default());
            make_extension_error(code.to_owned(), Some(said))
        }
        _ => error,
    }
}

/// The name of a command that failed. What the server has put in quotation marks may be another one,
/// which has travelled with it.
fn name(command: &str, said: &str) -> String {
    let rest = said
        .split_once(" run the ")
        .or(said.split_once("unknown command "));
    let quoted = rest.and_then(|(_, rest)| rest.split(['\'', '`']).nth(1));
    let first = command.split(' ').next().unwrap_or_default();
    quoted.unwrap_or(first).to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

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
