//! A script's answer, as each semaphore of a call gets it.

use super::answer;
use crate::redis::error::Error;
use redis::Value;

/// A script's answer for one semaphore.
#[derive(Clone)]
pub(super) enum Reply {
    /// All units are held, or no answer was requested.
    Done,
    /// The server's time in ms, and as many items as the share expects.
    Items(u64, Vec<Value>),
    /// The same, but an earlier call that was aborted may have done the work.
    Repeated(u64, Vec<Value>),
}

/// The server's time in ms, if it is one.
pub(super) fn millis(time: i64) -> Result<u64, Error> {
    answer::millis(time).ok_or(Error::Reply)
}

/// The same in microseconds.
pub(super) fn micros(time: i64) -> Result<u64, Error> {
    answer::micros(time).ok_or(Error::Reply)
}

pub(super) type Replies = Vec<Result<Reply, Error>>;

impl Reply {
    pub(super) fn repeated(self) -> Self {
        match self {
            Self::Items(now, items) => Self::Repeated(now, items),
            reply => reply,
        }
    }
}

impl answer::Reply for Value {
    fn integer(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    fn list(&self) -> Option<&[Self]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}
