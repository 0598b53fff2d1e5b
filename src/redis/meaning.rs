//! What servers say, and redis-rs: this is the only table of that. It tells claims what may pass, and whoever connects
//! what is to be mended.

use redis::{ErrorKind, RedisError};

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
    /// A script has ended before its end, because its slot is moving. A part of it has run.
    Interrupted,
    /// No node serves the slot. The node that answers serves its own slots.
    Unserved,
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
const PHRASES: [(&str, Meaning); 24] = [
    ("hash slot not served", Meaning::Unserved),
    ("access a non local key", Meaning::Interrupted),
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
        let is_cut = || said.to_lowercase().contains("unexpected end of input");
        match error.kind() {
            ErrorKind::AuthenticationFailed => REFUSED,
            ErrorKind::InvalidClientConfig => Self::Setting("", "redis-rs cannot connect with it"),
            ErrorKind::RESP3NotSupported => PROTOCOL,
            // The answer has ended too soon, because the server or a proxy has.
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

    /// What is known of an answer: words that anybody may see, which mean the same.
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

    /// Whether the policy decides claims.
    pub(super) fn is_unavailable(self) -> bool {
        matches!(
            self,
            Self::Down | Self::Replica | Self::NoRedis | Self::Unserved
        )
    }

    /// Whether claims for other keys of the server need not fail.
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

/// The first phrase of a text in lower case.
fn of_phrase(said: &str) -> Option<&'static (&'static str, Meaning)> {
    PHRASES.iter().find(|(phrase, _)| said.contains(phrase))
}

/// The code of an error in a script, which comes before Redis 7 as text: `-CODE` behind the place in the script.
fn of_script(said: &str) -> Option<&str> {
    let place = said.starts_with("Error running script").then_some(said)?;
    let mut words = place.split(' ').filter_map(|word| word.strip_prefix('-'));
    words.find(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()))
}
