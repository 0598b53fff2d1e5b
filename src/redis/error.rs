//! The failures of a call to Redis, and the bound on its time.

use super::fault::{Class, known_words};
use crate::semaphore::timer::{Elapsed, timeout_at};
use redis::{RedisConnectionInfo, RedisError, make_extension_error};
use std::{
    error::Error,
    fmt, io,
    time::{Duration, Instant},
};

/// The failure of a call. Users see it as a [`fault`](super::fault).
#[derive(Debug, Clone)]
pub(super) enum CallError {
    /// The store has no connection, so the command was not sent.
    Unavailable(RedisError),
    /// More claims arrived than the connection can carry. The claim was not sent, because its answer would probably
    /// have come too late.
    Congested,
    /// No answer came within this time. The command may have run.
    Timeout(Duration),
    /// The command has run, but only this number of replicas, fewer than `min_replicas`, confirmed its writes in time.
    NotReplicated(u32),
    /// The connection broke, or the server answered with an error, for example because it loads its data, is a replica,
    /// is out of memory, or does not permit the command.
    Redis(RedisError),
    /// The claim was granted, but its task or its runtime was held up: its future was not polled within the lease,
    /// which is this long.
    Expired(Duration),
    /// Tokio's time is paused, so a timeout ended long before its real time had passed. The store needs real time,
    /// because its servers go by it. The command may have run.
    PausedClock,
    /// The server's answer has a shape that no script of this crate returns.
    Reply,
}

impl CallError {
    /// The error of redis-rs, for `Unavailable` and `Redis`.
    pub(super) fn redis_error(&self) -> Option<&RedisError> {
        match self {
            Self::Unavailable(error) | Self::Redis(error) => Some(error),
            _ => None,
        }
    }

    /// The error of a failed attempt to connect.
    pub(super) fn unconnected(error: impl Into<RedisError>) -> Self {
        Self::Unavailable(error.into())
    }

    /// True if the connection is gone, so that the command may succeed on a new one.
    pub(super) fn is_disconnect(&self) -> bool {
        matches!(self, Self::Redis(error) if error.is_unrecoverable_error() || error.is_io_error())
    }

    /// True if connecting failed without a reason: the connection was closed, or no answer came.
    pub(super) fn is_unexplained(&self) -> bool {
        let is_silent = |error: &RedisError| is_ended(error) || error.is_timeout();
        matches!(self, Self::Unavailable(error) if is_silent(error))
    }

    /// True if the command may have run, but has no answer.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_disconnect() || matches!(self, Self::Timeout(_))
    }

    /// True if a server has answered with this error.
    pub(super) fn is_an_answer(&self) -> bool {
        self.redis_error()
            .is_some_and(|error| error.code().is_some())
    }

    /// True if no node serves the keys of a call for a moment, because they are moving or their node has died. A
    /// redirect is followed, so this error remains only if the other node cannot be reached, or does not have the keys
    /// either.
    pub(super) fn is_moving(&self) -> bool {
        self.is_code(&["ASK", "CLUSTERDOWN", "MOVED", "TRYAGAIN"])
    }

    /// True if a script has stopped early, because its slot is moving. A part of it has run.
    pub(super) fn is_interrupted(&self) -> bool {
        matches!(self, Self::Redis(error) if Class::classify(error) == Class::Interrupted)
    }

    /// True if the server does not have the command, or does not permit it.
    pub(super) fn is_denied(&self) -> bool {
        matches!(self, Self::Redis(error) if Class::classify(error) == Class::Command)
    }

    /// The address to which a node redirects the command, and true if the slot is only moving there.
    pub(super) fn redirect(&self) -> Option<(&str, bool)> {
        let Self::Redis(error) = self else {
            return None;
        };
        let (address, _) = error.redirect_node()?;
        Some((address, self.is_code(&["ASK"])))
    }

    /// True if the store is unavailable, so that the policy decides.
    pub(super) fn is_unavailable(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::NotReplicated(_) => true,
            Self::Unavailable(error) | Self::Redis(error) => {
                Class::classify(error).is_unavailable()
            }
            Self::Congested | Self::Expired(_) | Self::PausedClock | Self::Reply => false,
        }
    }

    /// True if the failure may be over a moment later, without a change of settings.
    pub(super) fn may_pass(&self) -> bool {
        self.is_unavailable() || self.is_moving() || self.is_interrupted()
    }

    /// True if only claims for the same key need fail, and those for other keys of the server may succeed.
    pub(super) fn is_of_one_key(&self) -> bool {
        match self {
            Self::Redis(error) => Class::classify(error).is_of_one_key(),
            error => matches!(error, Self::Reply),
        }
    }

    /// Returns the error of redis-rs, or else wraps this error.
    pub(super) fn into_cause(self) -> RedisError {
        match self {
            Self::Unavailable(error) | Self::Redis(error) => error,
            late @ Self::Timeout(_) => io::Error::new(io::ErrorKind::TimedOut, late).into(),
            other => io::Error::other(other).into(),
        }
    }

    /// Removes the connection's password from the error, if a server has repeated it.
    pub(super) fn without_password(self, login: &RedisConnectionInfo) -> Self {
        let password = login.password();
        let has_password = |error: &RedisError| {
            password.is_some_and(|password| error.to_string().contains(password))
        };
        match self {
            Self::Redis(error) if has_password(&error) => {
                Self::Redis(without_password(error, login))
            }
            error => error,
        }
    }

    /// True if a server has answered with one of these codes.
    pub(super) fn is_code(&self, codes: &[&str]) -> bool {
        matches!(self, Self::Redis(error) if error.code().is_some_and(|code| codes.contains(&code)))
    }
}

/// True if the server has closed the connection.
pub(super) fn is_ended(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal()
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(_) => f.write_str("no connection to Redis"),
            Self::Congested => f.write_str("more claims than the connection to Redis carries"),
            Self::Timeout(bound) => write!(f, "no answer from Redis within {bound:?}"),
            Self::NotReplicated(have) => {
                write!(f, "only {have} replicas of Redis have it in time")
            }
            Self::Expired(lease) => write!(f, "granted, but not taken within {lease:?}"),
            Self::PausedClock => f.write_str(
                "Tokio's time is paused (`tokio::time::pause` or `start_paused`), but a store in Redis \
                 needs real time",
            ),
            Self::Redis(_) => f.write_str("Redis failed"),
            Self::Reply => f.write_str("Redis gave an answer that no script of ours gives"),
        }
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.redis_error().map(own_text)
    }
}

impl Elapsed {
    /// Returns `error`, or `PausedClock` if the real time has not passed, because Tokio's clock is paused then.
    pub(super) fn or(self, error: CallError) -> CallError {
        match self.is_early {
            true => CallError::PausedClock,
            false => error,
        }
    }
}

/// The cap of a duration that is added to an instant, so that the sum cannot overflow.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The instant `time` from now, a year at most.
pub(super) fn deadline_after(time: Duration) -> Instant {
    Instant::now() + time.min(YEAR)
}

/// Returns the outcome of `work`, or the error `late` if the deadline passes first.
pub(super) async fn finish_by<T>(
    deadline: Instant,
    late: CallError,
    work: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let done = timeout_at(deadline, work).await;
    done.unwrap_or_else(|elapsed| Err(elapsed.or(late)))
}

/// The error to show for an error of redis-rs. If it has a source, that is the source, because its own text only
/// repeats the source's text.
pub(super) fn own_text(error: &RedisError) -> &(dyn Error + 'static) {
    error.source().unwrap_or(error)
}

/// Removes the part of a command that a server has repeated in an error. If the rest contains the connection's
/// password, replaces it with a known text of the same meaning.
pub(super) fn without_password(error: RedisError, login: &RedisConnectionInfo) -> RedisError {
    let Some(code) = error.code() else {
        return error;
    };
    let secret = login.password().unwrap_or_default();
    let (code, text) = scrubbed((code, error.detail().unwrap_or_default()), secret);
    make_extension_error(code.to_owned(), Some(text.to_owned()))
}

/// Returns the code and the text of an error without the secret, and without arguments that the server has repeated.
fn scrubbed<'a>((code, text): (&'a str, &'a str), secret: &str) -> (&'a str, &'a str) {
    let text = text.split(", with args beginning with").next();
    let text = text.unwrap_or_default();
    // The secret may contain a space, at which it is divided between code and text.
    let has_secret = || format!("{code} {text}").contains(secret);
    match code {
        // A fixed text, whatever the secret is. A gap in a known text would reveal the secret.
        "NOAUTH" => (code, "Authentication required."),
        "WRONGPASS" => (code, WRONG),
        _ if text.contains(NEEDLESS) => ("ERR", NEEDLESS),
        _ if !secret.is_empty() && has_secret() => known_words(code, text),
        _ => (code, text),
    }
}

/// The texts with which Redis refuses a wrong password, and a password that it does not need.
const WRONG: &str = "invalid username-password pair or user is disabled.";
const NEEDLESS: &str = "called without any password configured";

#[cfg(test)]
mod tests;
