//! What an error of redis-rs, or of a server, means. This is the only table of what servers say: it tells claims what
//! may pass, and whoever connects what is to be mended.

use super::{
    connect_error::ConnectError,
    error::Error,
    transport::{Place, Unfit},
};
use redis::{ErrorKind, RedisError, make_extension_error};
use std::io;

/// What an error means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// There is no connection, or the server cannot work now.
    Down,
    /// It has become a replica, or is one.
    Replica,
    /// What answers is no Redis.
    NoRedis,
    /// Another node has the keys.
    Elsewhere,
    /// No node has all of the keys just now, or a proxy says what is not known: its backend may be starting.
    Passing,
    /// It refuses the user or the password, for this reason.
    Credentials(&'static str),
    /// A setting cannot work, for this reason: that of where the server is, unless it has a name.
    Setting(&'static str, &'static str),
    /// It has no such command, or does not permit it.
    Command,
    /// It does not permit keys.
    Keys,
    /// It does not permit channels.
    Channels,
    /// A key has another type.
    Type,
    /// Only a person mends it.
    Mistake,
}

/// What servers say by their words, because many mistakes have the same code. Whole phrases, because the text may have
/// the user's name; the first counts.
const PHRASES: [(&str, Meaning); 22] = [
    ("max number of clients", Meaning::Down),
    // Before a client says who it is, a server takes commands of a few words only, as if longer ones were none.
    ("protocol error: unauthenticated", NO_PASSWORD),
    ("without any password configured", NEEDLESS),
    ("db index", NO_DATABASE),
    ("select is not allowed", NO_DATABASE),
    ("cluster support disabled", NO_NODE),
    ("unknown command 'cluster'", NO_NODE),
    ("of the channels", Meaning::Channels),
    ("the channel", Meaning::Channels),
    ("a channel", Meaning::Channels),
    ("of the keys", Meaning::Keys),
    ("access a key", Meaning::Keys),
    ("permission", Meaning::Command),
    ("can't run", Meaning::Command),
    ("unknown", Meaning::Command),
    ("not allowed", Meaning::Command),
    ("invalid", Meaning::Mistake),
    ("not supported", Meaning::Mistake),
    ("protocol error", Meaning::Mistake),
    ("syntax error", Meaning::Mistake),
    ("user_script", Meaning::Mistake),
    ("wrong number of arguments", Meaning::Mistake),
];

const NO_PASSWORD: Meaning =
    Meaning::Credentials("the server requires a password, and there is none");
const NEEDLESS: Meaning = Meaning::Credentials("the server has no password, but there is one here");
const REFUSED: Meaning = Meaning::Credentials("the server refuses the user or the password");
const NO_DATABASE: Meaning = Meaning::Setting("", "the server has no such database");
const PROTOCOL: Meaning =
    Meaning::Setting("", "the server does not know this version of its protocol");
const NO_NODE: Meaning =
    Meaning::Setting("connect_cluster", "the server is not a node of a cluster");

impl Meaning {
    pub(super) fn of(error: &RedisError) -> Self {
        let said = error.detail().unwrap_or_default();
        match error.kind() {
            ErrorKind::AuthenticationFailed => REFUSED,
            ErrorKind::InvalidClientConfig => Self::Setting("", "redis-rs cannot connect with it"),
            ErrorKind::RESP3NotSupported => PROTOCOL,
            // The answer has ended too soon, because the server or a proxy has.
            ErrorKind::Parse if said.contains("nexpected end of input") => Self::Down,
            ErrorKind::Parse => Self::NoRedis,
            _ => error
                .code()
                .map_or(Self::Down, |code| Self::of_answer(code, said)),
        }
    }

    fn of_answer(code: &str, said: &str) -> Self {
        match code {
            "BUSY" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "MISCONF" | "NOREPLICAS"
            | "OOM" => Self::Down,
            "ASK" | "MOVED" => Self::Elsewhere,
            "NOAUTH" => NO_PASSWORD,
            "NOPROTO" => PROTOCOL,
            "READONLY" => Self::Replica,
            "TRYAGAIN" => Self::Passing,
            "WRONGPASS" => REFUSED,
            "WRONGTYPE" => Self::Type,
            _ => match of_script(said) {
                Some(code) => Self::of_answer(code, ""),
                None => Self::of_text(code, &said.to_lowercase()),
            },
        }
    }

    fn of_text(code: &str, said: &str) -> Self {
        let mut known = PHRASES.iter().filter(|(phrase, _)| said.contains(phrase));
        match (known.next(), code) {
            (Some((_, meaning)), _) => *meaning,
            (None, "CROSSSLOT" | "DENIED" | "EXECABORT" | "NOPERM" | "NOSCRIPT") => Self::Mistake,
            (None, _) => Self::Passing,
        }
    }

    /// Whether the policy decides claims.
    pub(super) fn is_unavailable(self) -> bool {
        matches!(self, Self::Down | Self::Replica | Self::NoRedis)
    }

    /// Whether claims for other keys of the server need not fail.
    pub(super) fn is_of_one_key(self) -> bool {
        matches!(
            self,
            Self::Elsewhere | Self::Passing | Self::Keys | Self::Type | Self::Mistake
        )
    }
}

/// The code of an error in a script, which comes before Redis 7 as text: `-CODE` behind the place in the script.
fn of_script(said: &str) -> Option<&str> {
    let place = said.starts_with("Error running script").then_some(said)?;
    let mut words = place.split(' ').filter_map(|word| word.strip_prefix('-'));
    words.find(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()))
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
            Error::Reply => return self.wrong(NO_REDIS),
            error => error.into_cause(),
        };
        if let Some(Unfit::Handshake(error)) = Unfit::of(&error) {
            return ConnectError::tls(error.clone());
        }
        let source = of_command(command, &error);
        if let Some((name, reason)) = self.blamed(&error) {
            // What answers may be a page of HTTP.
            let said = source.to_string();
            let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
            return ConnectError::setting(name, reason).with_source(line);
        }
        let pattern = format!("{}*", self.prefix);
        match Meaning::of(&error) {
            Meaning::Credentials(reason) => self.credentials(reason, error),
            Meaning::Keys => ConnectError::Keys { pattern },
            Meaning::Channels => ConnectError::Channels { pattern },
            Meaning::Command => ConnectError::Command {
                name: name(command, &error),
            },
            Meaning::Replica => self.replica(),
            Meaning::Mistake => ConnectError::Refused { source },
            _ => ConnectError::Unavailable { source },
        }
    }

    /// The setting that cannot work, and why.
    fn blamed(&self, error: &RedisError) -> Option<(&'static str, &'static str)> {
        let is_of_sentinel = self.place == Place::Sentinel;
        let says = |phrase| error.detail().is_some_and(|said| said.contains(phrase));
        let (name, reason) = match (Unfit::of(error), Meaning::of(error)) {
            (Some(Unfit::SpeaksTls), _) => ("", "the server speaks TLS: it needs `rediss://`"),
            (Some(Unfit::SpeaksNoTls), _) => ("", "the server speaks no TLS: it needs `redis://`"),
            (Some(Unfit::WrongName), _) if is_of_sentinel => ("connect_sentinel", WRONG_NAME),
            (_, Meaning::Command) if is_of_sentinel && says("unknown command") => {
                ("connect_sentinel", "the server is not a Sentinel")
            }
            (_, Meaning::Elsewhere) if !self.is_found() => ("", NODE),
            (_, Meaning::NoRedis) => ("", NO_REDIS),
            (_, Meaning::Setting(name, reason)) => (name, reason),
            (_, Meaning::Type) => ("prefix", "another program uses keys of this name"),
            _ => return None,
        };
        Some((
            if name.is_empty() {
                self.setting()
            } else {
                name
            },
            reason,
        ))
    }

    /// The server cannot be what was meant.
    pub(super) fn wrong(&self, reason: &'static str) -> ConnectError {
        ConnectError::setting(self.setting(), reason)
    }

    /// A server that has said that it is a replica. Where another one takes its place, it is soon found.
    pub(super) fn replica(&self) -> ConnectError {
        match self.is_found() {
            true => ConnectError::unavailable(io::Error::other("the server is a replica")),
            false => ConnectError::Replica,
        }
    }

    fn credentials(&self, reason: &'static str, source: RedisError) -> ConnectError {
        let name = match self.place {
            Place::Primary => "credentials",
            _ => self.setting(),
        };
        ConnectError::Credentials {
            name,
            reason,
            source,
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

const WRONG_NAME: &str = "the Sentinels know no primary of this name";
const NO_REDIS: &str = "what answers there is no Redis";
const NODE: &str = "the server is a node of a cluster, which `connect_cluster` connects to";

/// The same error, which names the command too.
fn of_command(command: &str, error: &RedisError) -> RedisError {
    match error.code() {
        Some(code) if !command.is_empty() => {
            let said = format!("{command}: {}", error.detail().unwrap_or_default());
            make_extension_error(code.to_owned(), Some(said))
        }
        _ => error.clone(),
    }
}

/// The name of a command that failed. What the server has put in quotation marks may be another one,
/// which has travelled with it.
fn name(command: &str, error: &RedisError) -> String {
    let said = error.detail().unwrap_or_default().to_lowercase();
    let rest = said
        .split_once(" run the ")
        .or(said.split_once("unknown command "));
    let quoted = rest.and_then(|(_, rest)| rest.split(['\'', '`']).nth(1));
    let first = command.split(' ').next().unwrap_or_default();
    quoted.unwrap_or(first).to_uppercase()
}
