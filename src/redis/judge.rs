//! What an error means for whoever connects or checks: something to wait for, or something to mend.

use super::{
    connect_error::ConnectError,
    error::Error,
    meaning::Meaning,
    transport::{Place, Unfit},
};
use redis::{RedisError, make_extension_error};
use std::io;

/// Where an error comes from.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) place: Place,
    /// The setting that has the user and the password.
    pub(super) login: &'static str,
    /// What the names of the store's keys and channels begin with.
    pub(super) prefix: &'a str,
}

impl Judge<'_> {
    /// What the error of a connection means.
    pub(super) fn connecting(&self, error: Error) -> ConnectError {
        self.judge("", error)
    }

    /// What the error of a command means. All that a person has to mend is named.
    pub(super) fn judge(&self, command: &str, error: Error) -> ConnectError {
        let error = match error {
            Error::PausedClock => return ConnectError::PausedClock,
            Error::Reply => return self.wrong(NO_REDIS),
            error => error.into_cause(),
        };
        let source = of_command(command, &error);
        let wrong = |name, reason| ConnectError::setting(name, reason).with_source(line(&source));
        let pattern = format!("{}*", self.prefix);
        let is_of_sentinel = self.place == Place::Sentinel;
        let says = |phrase| error.detail().is_some_and(|said| said.contains(phrase));
        match (Unfit::of(&error), Meaning::of(&error)) {
            (Some(Unfit::Handshake(error)), _) => ConnectError::tls(error.clone()),
            (Some(Unfit::SpeaksTls), _) => wrong("url", TLS),
            (Some(Unfit::SpeaksNoTls), _) => wrong("url", NO_TLS),
            (Some(Unfit::WrongConnector), _) => wrong("connector", IGNORED),
            (Some(Unfit::WrongName), _) if is_of_sentinel => wrong("connect_sentinel", WRONG_NAME),
            (_, Meaning::Command) if is_of_sentinel && says("unknown command") => {
                wrong("connect_sentinel", "the server is not a Sentinel")
            }
            (_, Meaning::Command) => match name(command, &error) {
                name if name.is_empty() => ConnectError::Refused { source },
                name => ConnectError::Command { name },
            },
            (_, Meaning::Credentials(reason)) => ConnectError::Credentials {
                name: self.login,
                reason,
                source: error,
            },
            (_, Meaning::Elsewhere) if !self.is_found() => wrong("url", NODE),
            (_, Meaning::NoRedis) => wrong("url", NO_REDIS),
            (_, Meaning::Setting("", reason)) => wrong("url", reason),
            (_, Meaning::Setting(name, reason)) => wrong(name, reason),
            (_, Meaning::Type) => wrong("prefix", "another program uses keys of this name"),
            (_, Meaning::Keys) => ConnectError::Keys { pattern },
            (_, Meaning::Channels) => ConnectError::Channels { pattern },
            (_, Meaning::Replica) => self.replica(),
            (_, Meaning::Mistake) => ConnectError::Refused { source },
            (
                _,
                Meaning::Down
                | Meaning::Elsewhere
                | Meaning::Interrupted
                | Meaning::Unserved
                | Meaning::Passing,
            ) => ConnectError::Unavailable { source },
        }
    }

    /// The server cannot be what was meant.
    pub(super) fn wrong(&self, reason: &'static str) -> ConnectError {
        ConnectError::setting("url", reason)
    }

    /// A server that has said that it is a replica. Where another one takes its place, it is soon found.
    pub(super) fn replica(&self) -> ConnectError {
        match self.is_found() {
            true => ConnectError::unavailable(io::Error::other("the server is a replica")),
            false => ConnectError::Replica,
        }
    }

    /// Whether the server was found through others, which may name another one a moment later.
    fn is_found(&self) -> bool {
        matches!(self.place, Place::Primary | Place::Node)
    }
}

const IGNORED: &str = "it must connect with the protocol of the `ConnectionInfo` and with the \
    `AsyncConnectionConfig` that it is given: no message has come over its connection";
const TLS: &str = "the server speaks TLS: it needs `rediss://`";
const NO_TLS: &str = "the server speaks no TLS: it needs `redis://`";
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

/// What answers may be a page of HTTP.
fn line(error: &RedisError) -> String {
    let said = error.to_string();
    said.split_whitespace().collect::<Vec<_>>().join(" ")
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
