//! What the scripts say, read from the server's words.

use super::{error::Error, lease::Lease};
use redis::Value;
use std::{sync::Arc, time::Duration};

/// What `acquire` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Granted {
        token: u64,
        held: u32,
    },
    Full {
        held: u32,
    },
    /// It has this place in the line. The head should look again after a while, when the
    /// earliest lease ends. Whatever it was granted before, under a token up to the last, is over.
    Waiting {
        place: u64,
        look: Option<Duration>,
        last: u64,
    },
    LineFull,
}

impl Answer {
    pub(super) fn read(value: &Value) -> Result<Self, Error> {
        let Value::Array(items) = value else {
            return Err(Error::Reply);
        };
        match items[..] {
            [Value::Int(1), Value::Int(token), Value::Int(held)] => Ok(Self::Granted {
                token: token as u64,
                held: count(held)?,
            }),
            [Value::Int(0), Value::Int(held)] => Ok(Self::Full { held: count(held)? }),
            [
                Value::Int(2),
                Value::Int(place),
                Value::Int(look),
                Value::Int(last),
            ] => Ok(Self::Waiting {
                place: place as u64,
                look: u64::try_from(look).ok().map(Duration::from_millis),
                last: last as u64,
            }),
            [Value::Int(3), Value::Int(_)] => Ok(Self::LineFull),
            _ => Err(Error::Reply),
        }
    }
}

fn count(held: i64) -> Result<u32, Error> {
    u32::try_from(held).map_err(|_| Error::Reply)
}

/// What `refresh` and `release` say of the units of a group.
pub(super) enum Held {
    /// They are all held, or nobody asked.
    All,
    /// For each unit, whether it is held.
    Each(Vec<bool>),
}

impl Held {
    pub(super) fn read(value: Value) -> Result<Self, Error> {
        match value {
            Value::Int(_) => Ok(Self::All),
            Value::Array(items) => {
                let each = items.iter().map(|item| match item {
                    Value::Int(held) => Ok(*held == 1),
                    _ => Err(Error::Reply),
                });
                each.collect::<Result<_, _>>().map(Self::Each)
            }
            _ => Err(Error::Reply),
        }
    }

    /// The units of the leases of a group, one by one: whether all of a lease's units are held.
    pub(super) fn of<'a>(&'a self, leases: &'a [Arc<Lease>]) -> impl Iterator<Item = bool> + 'a {
        let mut start = 0;
        leases.iter().map(move |lease| {
            let end = start + lease.units.weight as usize;
            let units = start..end;
            start = end;
            match self {
                Self::All => true,
                Self::Each(held) => held.get(units).is_some_and(|held| held.iter().all(|&h| h)),
            }
        })
    }
}
