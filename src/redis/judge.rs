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
            Meaning::Command => match name(command, &error) {
                name if name.is_empty() => ConnectError::Refused { source },
                name => ConnectError::Command { name },
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
        let at = self.setting();
        Some(match (Unfit::of(error), Meaning::of(error)) {
            (Some(Unfit::SpeaksTls), _) => (at, "the server speaks TLS: it needs `rediss://`"),
            (Some(Unfit::SpeaksNoTls), _) => (at, "the server speaks no TLS: it needs `redis://`"),
            (Some(Unfit::WrongName), _) if is_of_sentinel => ("connect_sentinel", WRONG_NAME),
            (_, Meaning::Command) if is_of_sentinel && says("unknown command") => {
                ("connect_sentinel", "the server is not a Sentinel")
            }
            (_, Meaning::Elsewhere) if !self.is_found() => (at, NODE),
            (_, Meaning::NoRedis) => (at, NO_REDIS),
            (_, Meaning::Setting("", reason)) => (at, reason),
            (_, Meaning::Setting(name, reason)) => (name, reason),
            (_, Meaning::Type) => ("prefix", "another program uses keys of this name"),
            _ => return None,
        })
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
