//! The one table that classifies the answers of servers and the errors of redis-rs.

use crate::semaphore::BoxError;
use redis::{ErrorKind, RedisError};
use std::{error::Error, fmt, io, sync::Arc};

/// The class of an error of a server or of redis-rs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Class {
    /// The store has no connection, or the server cannot work now.
    Down,
    /// The server is a replica, or has become one.
    Replica,
    /// The answer does not come from a Redis server.
    NoRedis,
    /// Another node has the keys.
    Moved,
    /// No node has all of the keys at the moment.
    Again,
    /// A script was aborted, because its slot is moving. It has run in part.
    Interrupted,
    /// No node serves the slot. The node that answers serves its own slots.
    Unserved,
    /// The answer is not in the table, for example because a proxy's backend is starting.
    Unknown,
    /// The server refuses the user or the password. The text is the remedy.
    Credentials(&'static str),
    /// The URL leads to a server that cannot be used in this way. The text is the remedy.
    Address(&'static str),
    /// The server is not a node of a cluster.
    NoNode,
    /// The server does not have the command, or does not permit it.
    Command,
    /// The server does not permit the keys.
    Keys,
    /// The server does not permit the channels.
    Channels,
    /// A key has another type.
    Type,
    /// Another error that only a person can correct.
    Mistake,
}

/// Maps the code of an answer and a phrase of its text, in lowercase, to a class. An empty code or phrase matches all,
/// and the first matching row wins. Many errors share a code, so most rows have a phrase. A text may contain the user's
/// name, so phrases are as specific as possible.
const TABLE: [(&str, &str, Class); 49] = [
    ("CLUSTERDOWN", "hash slot not served", Class::Unserved),
    ("ASK", "", Class::Moved),
    ("BUSY", "", Class::Down),
    ("CLUSTERDOWN", "", Class::Down),
    ("DENIED", "", PROTECTED),
    ("LOADING", "", Class::Down),
    ("MASTERDOWN", "", Class::Down),
    ("MISCONF", "", Class::Down),
    ("MOVED", "", Class::Moved),
    ("NOAUTH", "", NO_PASSWORD),
    ("NOPROTO", "", PROTOCOL),
    ("NOREPLICAS", "", Class::Down),
    ("OOM", "", Class::Down),
    ("READONLY", "", Class::Replica),
    ("TRYAGAIN", "", Class::Again),
    ("WRONGPASS", "", REFUSED),
    ("WRONGTYPE", "", Class::Type),
    ("", "hash slot not served", Class::Unserved),
    ("", "access a non local key", Class::Interrupted),
    ("", "max number of clients", Class::Down),
    // Before authentication, a server rejects longer commands as protocol errors.
    ("", "protocol error: unauthenticated", NO_PASSWORD),
    ("", "without any password configured", NEEDLESS),
    // Servers before Redis 6, and proxies.
    ("", "no password is set", NEEDLESS),
    ("", "invalid password", REFUSED),
    ("", "db index", NO_DATABASE),
    ("", "database out of range", NO_DATABASE),
    ("", "select is not allowed", NO_DATABASE),
    ("", "cluster support disabled", Class::NoNode),
    ("", "unknown command 'cluster'", Class::NoNode),
    ("", "of the channels", Class::Channels),
    ("", "the channel", Class::Channels),
    ("", "a channel", Class::Channels),
    ("", "of the keys", Class::Keys),
    ("", "access a key", Class::Keys),
    ("", "permission", Class::Command),
    ("", "can't run", Class::Command),
    ("", "unknown", Class::Command),
    ("", "not allowed", Class::Command),
    ("", "unauth", NO_PASSWORD),
    ("", "invalid", Class::Mistake),
    ("", "not supported", Class::Mistake),
    ("", "protocol error", Class::Mistake),
    ("", "syntax error", Class::Mistake),
    ("", "user_script", Class::Mistake),
    ("", "wrong number of arguments", Class::Mistake),
    ("CROSSSLOT", "", Class::Mistake),
    ("EXECABORT", "", Class::Mistake),
    ("NOPERM", "", Class::Mistake),
    ("NOSCRIPT", "", Class::Mistake),
];

const NO_PASSWORD: Class =
    Class::Credentials("the server requires a password, and there is none: add it");
const NEEDLESS: Class =
    Class::Credentials("the server has no password, but there is one here: remove it");
const REFUSED: Class =
    Class::Credentials("the server refuses the user or the password: correct them");
const NO_DATABASE: Class =
    Class::Address("the server has no such database: name another one, or none");
const PROTECTED: Class = Class::Address(
    "the server is in protected mode and serves its own machine only: set a password there, and here",
);
const PROTOCOL: Class = Class::Address(
    "the server does not know this version of its protocol: remove `protocol` from it",
);
const CLIENT: Class = Class::Address("redis-rs cannot connect with it");

impl Class {
    /// Classifies an error of a server, or of redis-rs.
    pub(in crate::redis) fn classify(error: &RedisError) -> Self {
        let text = error.detail().unwrap_or_default();
        let is_cut = || text.to_lowercase().contains("unexpected end of input");
        match error.kind() {
            ErrorKind::AuthenticationFailed => REFUSED,
            ErrorKind::InvalidClientConfig => CLIENT,
            ErrorKind::RESP3NotSupported => PROTOCOL,
            // The answer is incomplete, because the server or a proxy has closed the connection.
            ErrorKind::Parse if is_cut() => Self::Down,
            ErrorKind::Parse => Self::NoRedis,
            _ => error.code().map_or(Self::Down, |code| {
                row(code, text).map_or(Self::Unknown, |(.., class)| *class)
            }),
        }
    }

    /// True if [`WhenUnavailable`](crate::redis::WhenUnavailable) decides claims after this failure.
    pub(in crate::redis) fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::Down | Self::Replica | Self::NoRedis | Self::Unserved
        )
    }

    /// True if claims for other keys of the server may still succeed.
    pub(in crate::redis) fn is_of_one_key(self) -> bool {
        matches!(
            self,
            Self::Moved
                | Self::Again
                | Self::Interrupted
                | Self::Unserved
                | Self::Unknown
                | Self::Keys
                | Self::Type
                | Self::Mistake
        )
    }
}

/// The code and the phrase of the table's row for an answer. They have the same class, and contain no secret.
pub(in crate::redis) fn known_words(code: &str, text: &str) -> (&'static str, &'static str) {
    let (code, phrase) = row(code, text).map_or(("", ""), |(code, phrase, _)| (*code, *phrase));
    (if code.is_empty() { "ERR" } else { code }, phrase)
}

/// The first row that matches an answer.
fn row(code: &str, text: &str) -> Option<&'static (&'static str, &'static str, Class)> {
    let code = code_of_script(text).unwrap_or(code);
    let text = text.to_lowercase();
    TABLE.iter().find(|(row_code, phrase, _)| {
        (row_code.is_empty() || *row_code == code) && text.contains(*phrase)
    })
}

/// The code of an error in a script. Before Redis 7 it is part of the text: `-CODE` after the place in the script.
fn code_of_script(text: &str) -> Option<&str> {
    let place = text.starts_with("Error running script").then_some(text)?;
    let mut words = place.split(' ').filter_map(|word| word.strip_prefix('-'));
    words.find(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()))
}

/// A mistake in the settings that a connection shows by its behaviour. It is the cause of an I/O error.
#[derive(Debug)]
pub(in crate::redis) enum Unfit {
    SpeaksTls,
    SpeaksNoTls,
    /// The two sides have not agreed on TLS.
    Handshake(RedisError),
    /// The Sentinels know no primary of this name.
    WrongName,
    /// A supplied connector has ignored what it was given.
    WrongConnector,
    /// The connection closes at this command each time, as with a proxy that does not support it.
    EndsAt(&'static str),
}

impl Unfit {
    /// The cause of an error, if it is one of these.
    pub(in crate::redis) fn find_in(error: &RedisError) -> Option<&Self> {
        io_cause(error)
    }
}

/// The I/O error that redis-rs has wrapped.
pub(in crate::redis) fn io_error(error: &RedisError) -> Option<&io::Error> {
    let shared: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    shared.downcast_ref()
}

/// The cause of an I/O error, if it has this type.
fn io_cause<T: Error + 'static>(error: &RedisError) -> Option<&T> {
    io_error(error)?.get_ref()?.downcast_ref()
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpeaksTls => f.write_str("a TLS alert came"),
            Self::SpeaksNoTls => f.write_str("an answer came that is not TLS"),
            Self::Handshake(error) => error.fmt(f),
            Self::WrongName => f.write_str("no Sentinel knows the primary's name"),
            Self::WrongConnector => f.write_str("the connection brings no messages"),
            Self::EndsAt(command) => write!(f, "the connection was closed at each {command}"),
        }
    }
}

impl Error for Unfit {}

impl From<Unfit> for RedisError {
    fn from(unfit: Unfit) -> Self {
        io::Error::other(unfit).into()
    }
}

/// The failure of a user's function. It is the cause of an I/O error.
#[derive(Debug)]
pub(in crate::redis) struct Failed {
    /// The setting that has the function.
    pub(in crate::redis) setting: &'static str,
    cause: BoxError,
}

impl Failed {
    /// The error of an attempt to connect.
    pub(in crate::redis) fn error(setting: &'static str, cause: BoxError) -> RedisError {
        io::Error::other(Self { setting, cause }).into()
    }

    /// The cause of an error, if it is such a failure.
    pub(in crate::redis) fn find_in(error: &RedisError) -> Option<&Self> {
        io_cause(error)
    }

    /// The error of redis-rs that the function has returned.
    pub(in crate::redis) fn redis_error(&self) -> Option<&RedisError> {
        self.cause.downcast_ref()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` has failed", self.setting)
    }
}

impl Error for Failed {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.cause)
    }
}
