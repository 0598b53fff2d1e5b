//! Replies of redis-rs, as answers are read from them.

use super::answer;
use crate::redis::error::Error;
use redis::Value;

/// The server's time in ms, if it is one.
pub(super) fn millis(time: i64) -> Result<u64, Error> {
    answer::millis(time).ok_or(Error::Reply)
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
