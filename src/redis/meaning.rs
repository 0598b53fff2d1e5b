//! Classifies the errors of servers and of redis-rs. This is the only such table. It determines which failures leave
//! claims to the policy, and what a failed connect reports as the remedy.

use redis::{ErrorKind, RedisError};

/// The class of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// There is no connection, or the server cannot work now.
    Down,
    /// The server is a replica, or has become one.
    Replica,
    /// The answer does not come from a Redis server.
    NoRedis,
    /// Another node has the keys.
    Elsewhere,
    /// A script was aborted, because its slot is moving. It has run in part.
    Interrupted,
    /// No node serves the slot. The node that answers serves its own slots.
    Unserved,
    /// No node has all of the keys at the moment, or the answer is unknown: a proxy's backend may be starting.
    Passing,
    /// The server refuses the user or the password, for this reason.
    Credentials(&'static str),
    /// A setting cannot work. First its name, or `""` for the server's address, and then the reason.
    Setting(&'static str, &'static str),
    /// The server does not have the command, or does not permit it.
    Command,
    /// The server does not permit the keys.
    Keys,
    /// The server does not permit the channels.
    Channels,
    /// A key has another type.
    Type,
    /// An error that only a person can correct.
    Mistake,
}

/// Phrases in error texts, because many errors share a code. They are whole phrases, because a text may contain the
/// user's name. The first match counts.
const PHRASES: [(&str, Meaning); 24] = [
    ("hash slot not served", Meaning::Unserved),
    ("access a non local key", Meaning::Interrupted),
    ("max number of clients", Meaning::Down),
    // Before authentication, a server rejects longer commands as protocol errors.
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
        let is_cut = || said.to_lowercase().contains("unexpected end of input");
        match error.kind() {
            ErrorKind::AuthenticationFailed => REFUSED,
            ErrorKind::InvalidClientConfig => Self::Setting("", "redis-rs cannot connect with it"),
            ErrorKind::RESP3NotSupported => PROTOCOL,
            // The answer is incomplete, because the server or a proxy has ended.
            ErrorKind::Parse if is_cut() => Self::Down,
            ErrorKind::Parse => Self::NoRedis,
            _ => error
                .code()
                .map_or(Self::Down, |code| Self::of_answer(code, said)),
        }
    }

    fn of_answer(code: &str, said: &str) -> Self {
        match code {
            "CLUSTERDOWN" if is_unserved(said) => Self::Unserved,
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

    /// The known code and phrase of an error. They have the same meaning as the error, and are safe to show to anyone.
    pub(super) fn known<'a>(code: &'a str, said: &str) -> (&'a str, &'static str) {
        let means_more = Self::of_answer(code, "") != Self::of_answer("ERR", "");
        let known = of_phrase(&said.to_lowercase());
        let phrase = known.map_or("", |(phrase, _)| phrase);
        (if means_more { code } else { "ERR" }, phrase)
    }

    fn of_text(code: &str, said: &str) -> Self {
        match (of_phrase(said), code) {
            (Some((_, meaning)), _) => *meaning,
            (None, "CROSSSLOT" | "DENIED" | "EXECABORT" | "NOPERM" | "NOSCRIPT") => Self::Mistake,
            (None, _) => Self::Passing,
        }
    }

    /// True if the policy decides claims after this error.
    pub(super) fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::Down | Self::Replica | Self::NoRedis | Self::Unserved
        )
    }

    /// True if claims for other keys of the server may still succeed.
    pub(super) fn is_of_one_key(self) -> bool {
        matches!(
            self,
            Self::Elsewhere
                | Self::Interrupted
                | Self::Unserved
                | Self::Passing
                | Self::Keys
                | Self::Type
                | Self::Mistake
        )
    }
}

fn is_unserved(said: &str) -> bool {
    let known = of_phrase(&said.to_lowercase());
    known.is_some_and(|(_, meaning)| *meaning == Meaning::Unserved)
}

/// The first phrase in a lowercase text.
fn of_phrase(said: &str) -> Option<&'static (&'static str, Meaning)> {
    PHRASES.iter().find(|(phrase, _)| said.contains(phrase))
}

/// The code of an error in a script. Before Redis 7 it is part of the text: `-CODE` after the place in the script.
fn of_script(said: &str) -> Option<&str> {
    let place = said.starts_with("Error running script").then_some(said)?;
    let mut words = place.split(' ').filter_map(|word| word.strip_prefix('-'));
    words.find(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()))
}
