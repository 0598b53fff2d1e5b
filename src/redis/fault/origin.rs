//! Turns a failure into the error that users see: its kind, the setting to change, and the remedy.

use super::{
    class::{Class, Failed, Unfit},
    face::{ConnectError, Error, Fault, Kind, Source},
};
use crate::redis::{error::CallError, transport::ServerRole};
use redis::{RedisError, make_extension_error};
use std::borrow::Cow;

/// The servers that have failed, and the settings that their errors name.
#[derive(Clone, Copy)]
pub(in crate::redis) struct Origin<'a> {
    pub(in crate::redis) role: ServerRole,
    /// The setting that has the user and the password.
    pub(in crate::redis) login: &'static str,
    /// The prefix of the names of the store's keys and channels.
    pub(in crate::redis) prefix: &'a str,
}

impl Origin<'_> {
    /// The error of a claim, or of an operator's call.
    pub(in crate::redis) fn error(&self, error: &CallError) -> Error {
        let cause = error.redis_error();
        let mistake = cause.and_then(|cause| self.mistake("", cause));
        let fault = mistake.unwrap_or_else(|| Fault {
            setting: setting_of(error),
            source: cause.cloned().map(Source::Redis),
            ..Fault::new(Kind::Unavailable, error.to_string())
        });
        let kind = kind_of(error);
        Error(Fault { kind, ..fault })
    }

    /// The error of an attempt to connect.
    pub(in crate::redis) fn connect_error(&self, error: CallError) -> ConnectError {
        self.check_error("", error)
    }

    /// The error of a command that a check has sent. `command` is empty if no check sent one.
    pub(in crate::redis) fn check_error(&self, command: &str, error: CallError) -> ConnectError {
        let kind = match &error {
            CallError::NotReplicated(_) => Kind::Unavailable,
            CallError::PausedClock => Kind::Misconfigured,
            CallError::Reply => return ConnectError::of_setting("url", NO_REDIS),
            _ => {
                let error = error.into_cause();
                let mistake = self.mistake(command, &error).map(ConnectError);
                return mistake
                    .unwrap_or_else(|| ConnectError::unavailable(with_command(command, &error)));
            }
        };
        ConnectError(Fault {
            setting: setting_of(&error),
            ..Fault::new(kind, error.to_string())
        })
    }

    /// The error of a server that reports to be a replica. Where Sentinels or a cluster name a new primary, a retry
    /// soon finds it.
    pub(in crate::redis) fn replica(&self) -> ConnectError {
        let error = make_extension_error("READONLY".to_owned(), Some(IS_REPLICA.to_owned()));
        let mistake = self.mistake("", &error).map(ConnectError);
        mistake.unwrap_or_else(|| ConnectError::unavailable(error))
    }

    /// The fault of an error, if only a change of settings can correct it, or if a user's function has failed.
    fn mistake(&self, command: &str, error: &RedisError) -> Option<Fault> {
        if let Some(unfit) = Unfit::find_in(error) {
            return Some(unfit_fault(unfit, error));
        }
        if let Some(failed) = Failed::find_in(error) {
            return Some(Fault {
                setting: Some(failed.setting),
                source: Some(Source::Redis(error.clone())),
                ..Fault::new(Kind::Unavailable, FAILED)
            });
        }
        let prefix = self.prefix;
        let is_unknown = || {
            let text = error.detail();
            text.is_some_and(|text| text.contains("unknown command"))
        };
        let (setting, text): (_, Cow<'static, str>) = match Class::classify(error) {
            Class::Address(reason) => (Some("url"), reason.into()),
            Class::Credentials(reason) => (Some(self.login), reason.into()),
            Class::Command if self.role == ServerRole::Sentinel && is_unknown() => {
                (Some("connect_sentinel"), NO_SENTINEL.into())
            }
            Class::Command => (None, not_permitted(command, error)),
            Class::Keys => {
                let text = format!("the user may not use the keys {prefix}*: allow `~{prefix}*`");
                (None, text.into())
            }
            Class::Channels => {
                let text =
                    format!("the user may not use the channels {prefix}*: allow `&{prefix}*`");
                (None, text.into())
            }
            Class::Mistake => (None, REFUSED.into()),
            Class::Moved if !self.is_named_by_others() => (Some("url"), NODE.into()),
            Class::NoNode => (Some("connect_cluster"), NO_NODE.into()),
            Class::NoRedis => {
                let wrong = ConnectError::of_setting("url", NO_REDIS);
                return Some(wrong.with_source(in_one_line(error)).0);
            }
            Class::Replica if !self.is_named_by_others() => (Some("url"), REPLICA.into()),
            Class::Type => (Some("prefix"), TYPE.into()),
            Class::Again
            | Class::Down
            | Class::Interrupted
            | Class::Moved
            | Class::Replica
            | Class::Unknown
            | Class::Unserved => return None,
        };
        Some(Fault {
            setting,
            source: Some(Source::Redis(with_command(command, error))),
            ..Fault::new(Kind::Misconfigured, text)
        })
    }

    /// True if other servers have named the server, because they may name another one a moment later.
    fn is_named_by_others(&self) -> bool {
        matches!(self.role, ServerRole::Primary | ServerRole::Node)
    }
}

fn unfit_fault(unfit: &Unfit, error: &RedisError) -> Fault {
    let (setting, text): (_, Cow<'static, str>) = match unfit {
        Unfit::SpeaksTls => ("url", TLS.into()),
        Unfit::SpeaksNoTls => ("url", NO_TLS.into()),
        Unfit::Handshake(error) => {
            let refusal = error.to_string();
            let has = |words: &str| refusal.contains(words);
            // The server reports by an alert that it refuses this side.
            let (setting, text) = if has("alert") {
                ("client_certificate", ALERT)
            } else if has("not valid for name")
                || has("address mismatch")
                || has("Hostname mismatch")
            {
                ("url", WRONG_HOST)
            } else {
                ("root_certificate", UNTRUSTED)
            };
            return ConnectError::of_setting(setting, text)
                .with_source(error.clone())
                .0;
        }
        Unfit::WrongName => ("connect_sentinel", WRONG_NAME.into()),
        Unfit::WrongConnector => ("connector", IGNORED.into()),
        Unfit::EndsAt(command) => ("url", connection_ends_text(command).into()),
    };
    Fault {
        setting: Some(setting),
        source: Some(Source::Redis(error.clone())),
        ..Fault::new(Kind::Misconfigured, text)
    }
}

const FAILED: &str = "it has failed, so there is no connection to Redis";
const IGNORED: &str = "it must connect with the protocol of the `ConnectionInfo` and with the \
    `AsyncConnectionConfig` that it is given: no message has come over its connection";
const TLS: &str = "the server speaks TLS: it needs `rediss://`";
const NO_TLS: &str = "the server speaks no TLS: it needs `redis://`";
const UNTRUSTED: &str =
    "no TLS connection to Redis: trust the authority of the server's certificate";
const WRONG_HOST: &str = "no TLS connection to Redis: the server's certificate is for another host: use its name in the URL";
const ALERT: &str = "no TLS connection to Redis: the server refuses the certificate of this side, or its versions of TLS";
const NO_REDIS: &str = "what answers there is no Redis: correct the host and the port";
const NO_SENTINEL: &str = "the server is not a Sentinel: name Sentinels, or use `connect`";
const NO_NODE: &str = "the server is not a node of a cluster: name nodes, or use `connect`";
const NODE: &str = "the server is a node of a cluster, which `connect_cluster` connects to";
const WRONG_NAME: &str = "the Sentinels know no primary of this name: correct it";
const REPLICA: &str = "the server is a replica, which grants nothing: connect to its primary";
const IS_REPLICA: &str = "the server is a replica";
const TYPE: &str = "another program uses keys of this name: choose another prefix";
const UNNAMED: &str = "the server does not permit a command of this call, which `check` names";
const REFUSED: &str = "the server refuses what the store needs";

/// The remedy for a command that the server lacks or forbids.
fn not_permitted(command: &str, error: &RedisError) -> Cow<'static, str> {
    let name = command_name(command, error);
    match name.is_empty() {
        true => UNNAMED.into(),
        false => {
            let right = name.to_lowercase();
            format!(
                "the server does not permit {name}: allow `+{right}`, or use a server that has it"
            )
            .into()
        }
    }
}

fn connection_ends_text(command: &str) -> String {
    format!(
        "what answers there ends the connection at {command}, as a proxy does that does not know it: connect to \
         Redis itself, or through a proxy that passes on EVALSHA, EVAL and SUBSCRIBE, and HELLO for a \
         `connector`"
    )
}

fn kind_of(error: &CallError) -> Kind {
    if error.is_unavailable() {
        return Kind::Unavailable;
    }
    match error {
        CallError::Congested | CallError::Expired(_) => Kind::Retry,
        CallError::Redis(cause) if Class::classify(cause) == Class::Unknown => Kind::Retry,
        error if error.may_pass() => Kind::Retry,
        error if error.is_of_one_key() => Kind::OneKey,
        _ => Kind::Misconfigured,
    }
}

fn setting_of(error: &CallError) -> Option<&'static str> {
    matches!(error, CallError::NotReplicated(_)).then_some("min_replicas")
}

/// The same error, with the name of the command.
fn with_command(command: &str, error: &RedisError) -> RedisError {
    match error.code() {
        Some(code) if !command.is_empty() => {
            let text = format!("{command}: {}", error.detail().unwrap_or_default());
            make_extension_error(code.to_owned(), Some(text))
        }
        _ => error.clone(),
    }
}

/// The text of an error in one line, because it may contain a page of HTML.
fn in_one_line(error: &RedisError) -> String {
    let text = error.to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The name of the failed command. The server may quote another command of the same batch.
fn command_name(command: &str, error: &RedisError) -> String {
    let text = error.detail().unwrap_or_default().to_lowercase();
    let rest = text
        .split_once(" run the ")
        .or(text.split_once("unknown command "));
    let quoted = rest.and_then(|(_, rest)| rest.split(['\'', '`']).nth(1));
    let first = command.split(' ').next().unwrap_or_default();
    quoted.unwrap_or(first).to_uppercase()
}

#[cfg(test)]
mod tests;
