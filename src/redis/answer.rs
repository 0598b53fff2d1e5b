//! What the scripts say, read from the server's words.

use super::{error::Error, lease::Lease, script::Reply};
use redis::Value;
use std::{sync::Arc, time::Duration};

/// What `acquire` says of a claim.
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
    /// The answers to as many claims.
    pub(super) fn read_all(reply: Result<Reply, Error>, count: usize) -> Vec<Result<Self, Error>> {
        let items = match reply {
            Ok(Reply::Items(items)) if items.len() == 2 * count => items,
            Ok(_) => return vec![Err(Error::Reply); count],
            Err(error) => return vec![Err(error); count],
        };
        items.chunks(2).map(Self::read).collect()
    }

    fn read(pair: &[Value]) -> Result<Self, Error> {
        let [first, Value::Int(held)] = pair else {
            return Err(Error::Reply);
        };
        let held = u32::try_from(*held).map_err(|_| Error::Reply)?;
        match first {
            Value::Int(-1) => Ok(Self::LineFull),
            Value::Int(0) => Ok(Self::Full { held }),
            Value::Int(token @ 1..) => Ok(Self::Granted {
                token: *token as u64,
                held,
            }),
            Value::Array(waiting) => Self::read_waiting(waiting),
            _ => Err(Error::Reply),
        }
    }

    fn read_waiting(items: &[Value]) -> Result<Self, Error> {
        let [Value::Int(place), Value::Int(look), Value::Int(last)] = items else {
            return Err(Error::Reply);
        };
        Ok(Self::Waiting {
            place: *place as u64,
            look: u64::try_from(*look).ok().map(Duration::from_millis),
            last: *last as u64,
        })
    }
}

/// What `refresh` and `release` say of the units of a group.
pub(super) enum Held {
    /// They are all held, or nobody asked.
    All,
    /// For each unit, whether it is held.
    Each(Vec<bool>),
}

impl Held {
    pub(super) fn read(reply: Reply) -> Result<Self, Error> {
        let Reply::Items(items) = reply else {
            return Ok(Self::All);
        };
        let each = items.iter().map(|item| match item {
            Value::Int(held) => Ok(*held == 1),
            _ => Err(Error::Reply),
        });
        each.collect::<Result<_, _>>().map(Self::Each)
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
