//! What an error means for a person: something to wait for, or something to mend.
//!
//! The only table of what servers say: connecting and checking read it, for every topology.

use super::{
    connect_error::ConnectError,
    error::Error,
    transport::{Place, Unfit},
};
use redis::{ErrorKind, RedisError, make_extension_error};
use std::io;

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
            let error = of_command(command, error);
            match is_passing {
                true => ConnectError::Unavailable(error),
                false => ConnectError::Refused(error),
            }
        })
    }

    /// A server that has said that it is a replica. Where another one takes its place, it is soon found.
    pub(super) fn replica(&self) -> ConnectError {
        match self.is_found() {
            true => ConnectError::Unavailable(io::Error::other("the server is a replica").into()),
            false => ConnectError::Replica,
        }
    }

    /// A server that has said that it is a Sentinel.
    pub(super) fn is_sentinel(&self) -> ConnectError {
        let reason = "the server is a Sentinel, which `sentinel` connects to";
        ConnectError::setting(self.setting(), reason)
    }

    /// What was found before a server has answered, or instead of an answer.
    fn of_kind(&self, error: &RedisError) -> Option<ConnectError> {
        let reason = match (Unfit::of(error), error.kind()) {
            (Some(Unfit::Handshake(error)), _) => return Some(ConnectError::tls(error.clone())),
            (Some(Unfit::SpeaksTls), _) => "the server speaks TLS: it needs `rediss://`",
            (Some(Unfit::SpeaksNoTls), _) => "the server speaks no TLS: it needs `redis://`",
            (_, ErrorKind::InvalidClientConfig) => "redis-rs cannot connect with it",
            (_, ErrorKind::RESP3NotSupported) => PROTOCOL,
            // The answer has ended too soon, because the server or a proxy has.
            (_, ErrorKind::Parse) if is_cut(error) => {
                return Some(ConnectError::Unavailable(error.clone()));
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
            return wrong("cluster", "the server is not a node of a cluster");
        }
        if self.place == Place::Sentinel && says(&["unknown command"]) {
            return wrong("sentinel", "the server is not a Sentinel");
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

const NO_REDIS: &str = "what answers there is no Redis";
const NO_PASSWORD: &str = "the server requires a password, and there is none";
const REFUSED: &str = "the server refuses the user or the password";
const NEEDLESS: &str = "the server has no password, but there is one here";
const PROTOCOL: &str = "the server does not know this version of its protocol";
const NODE: &str = "the server is a node of a cluster, which `cluster` connects to";

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
