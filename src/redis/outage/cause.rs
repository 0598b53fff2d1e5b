//! Which errors mean that the store is unavailable.

use crate::redis::error::Error;
use redis::{ErrorKind, RedisError};

/// Failures in a row that are an outage, unless they are all within a timeout: one stall of the
/// server, or of this process, fails all calls that are in flight.
pub(super) const MAX_FAILURES: u32 = 3;

/// Answers of a server that cannot work now.
const CODES: [&str; 8] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
];

impl Error {
    /// Whether the store is unavailable, so that the policy decides.
    pub(in crate::redis) fn is_unavailable(&self) -> bool {
        match self {
            Self::Unavailable(error) if error.code().is_none() => !is_refusal(error),
            Self::Timeout(_) | Self::Late(_) | Self::NotReplicated(_) => true,
            // A server that refuses a connection has answered.
            Self::Unavailable(error) | Self::Redis(error) => {
                !is_refusal(error) && (self.is_disconnect() || is_down(error))
            }
            Self::Congested | Self::Expired(_) | Self::PausedClock | Self::Reply => false,
        }
    }

    /// Whether the next claim may well succeed.
    pub(super) fn may_pass(&self) -> bool {
        self.is_unavailable() || self.is_moving()
    }

    /// Whether claims for other keys of the server need not fail.
    pub(super) fn is_of_one_key(&self) -> bool {
        match self {
            Self::Redis(error) if is_refusal(error) => names_key(error),
            Self::Redis(_) | Self::Reply => !self.is_unavailable(),
            _ => false,
        }
    }
}

/// Whether the server, or this client, refuses for a reason that only its owner can mend.
fn is_refusal(error: &RedisError) -> bool {
    const CODES: [&str; 3] = ["NOAUTH", "NOPERM", "WRONGPASS"];
    let is_mistake = matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig
    );
    is_mistake || error.code().is_some_and(|code| CODES.contains(&code)) || lacks_password(error)
}

/// Before a client says who it is, a server takes commands of a few words only, as if longer ones were none.
fn lacks_password(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    said.starts_with("Protocol error: unauthenticated")
}

/// Whether the server says that it cannot work now, or a cluster's connection that it has no node.
fn is_down(error: &RedisError) -> bool {
    match error.code() {
        // Before Redis 7 the error of a command within a script comes as text: `-CODE` behind the
        // place in the script.
        Some("ERR") => error
            .detail()
            .is_some_and(|said| names_code(said) || said.contains("max number of clients")),
        Some(code) => CODES.contains(&code),
        None => error.kind() == ErrorKind::ClusterConnectionNotFound,
    }
}

/// Whether the user lacks a right to a key, and not to a command.
fn names_key(error: &RedisError) -> bool {
    let said = error.detail().unwrap_or_default();
    said.contains(" key") && !said.contains(" run ")
}

fn names_code(detail: &str) -> bool {
    let is_of_script = detail.starts_with("Error running script");
    let mut words = detail.split(' ').filter_map(|word| word.strip_prefix('-'));
    is_of_script && words.any(|word| CODES.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, time::Duration};

    fn answer(text: &str) -> Error {
        let line = format!("-{text}\r\n");
        let value = redis::parse_redis_value(line.as_bytes()).expect("an error is a value");
        let redis::Value::ServerError(error) = value else {
            panic!("{text} is no error");
        };
        Error::Redis(error.into())
    }

    #[test]
    fn a_server_that_cannot_work_is_unavailable() {
        for code in CODES {
            let error = answer(&format!("{code} as it says"));
            assert!(error.is_unavailable(), "{error:?}");
        }
        let old = "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: \
                   -OOM command not allowed when used memory > 'maxmemory'.";
        assert!(answer(old).is_unavailable());
    }

    #[test]
    fn a_mistake_is_an_answer() {
        for text in [
            "NOPERM this user has no permissions",
            "WRONGTYPE Operation against a key",
            "NOAUTH Authentication required.",
            "ERR unknown command",
            "ERR Error running script (call to f_1): @user_script:7: WRONGTYPE Operation -OOM-like",
        ] {
            let error = answer(text);
            assert!(!error.is_unavailable(), "{error:?}");
        }
        let wrong = RedisError::from((ErrorKind::AuthenticationFailed, "a wrong password"));
        assert!(!Error::Unavailable(wrong.clone()).is_unavailable());
        assert!(!Error::Redis(wrong).is_unavailable());
    }

    #[test]
    fn silence_is_a_failure_and_a_crowd_of_ours_is_none() {
        let refused = || RedisError::from(io::Error::from(io::ErrorKind::ConnectionRefused));
        assert!(Error::Unavailable(refused()).is_unavailable());
        assert!(Error::Timeout(Duration::ZERO).is_unavailable());
        assert!(Error::Late(1).is_unavailable());
        assert!(!Error::Congested.is_unavailable());
        assert!(Error::Redis(refused()).is_unavailable());
    }
}
