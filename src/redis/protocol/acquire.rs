//! acquire: grants permits, or positions in a queue. See `acquire.lua`.

use super::{
    call::{Call, Protocol},
    id::{Owner, PermitId},
    reply::Reply,
    script::{Script, Text},
    share::{Numbers, Share},
};
use crate::redis::error::Error;
use redis::{Cmd, Value};
use std::{
    fmt, iter,
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(
        include_str!("common.lua"),
        include_str!("grant.lua"),
        include_str!("queue.lua"),
        include_str!("acquire.lua")
    );
    Script::new("acquire", source, &[":held", ":queue", ":alive", ":token"])
});

/// The permits that are wanted of one semaphore in one call.
pub(in crate::redis) struct AcquireOf {
    pub(in crate::redis) name: Arc<str>,
    pub(in crate::redis) wanted: Vec<Wanted>,
}

/// A permit that is wanted, and how it waits if there is no room.
#[derive(Debug, Clone)]
pub(in crate::redis) struct Wanted {
    pub(in crate::redis) permit: PermitId,
    pub(in crate::redis) position: Option<Position>,
    /// Whether the server may know its id: an operator may have revoked it.
    pub(in crate::redis) is_known: bool,
}

/// A position in the queue, sent with each acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) struct Position {
    /// How long the waiter counts as alive after this acquire.
    pub(in crate::redis) alive: Duration,
    /// How many may wait.
    pub(in crate::redis) max_waiting: u32,
    /// The arrival that the server returned before; 0 if there is none.
    pub(in crate::redis) arrival: u64,
    /// How much earlier it counts as arrived.
    pub(in crate::redis) head_start: Duration,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (alive, head_start) = (self.alive.as_millis(), self.head_start.as_micros());
        write!(
            f,
            "{alive} {} {} {head_start}",
            self.max_waiting, self.arrival
        )
    }
}

impl Share for AcquireOf {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(&*self.name)
    }

    fn size(&self) -> usize {
        self.wanted.len()
    }

    fn args(&self) -> usize {
        3 * self.wanted.len()
    }

    fn units(&self) -> usize {
        self.wanted.iter().map(units).sum()
    }

    fn write(&self, owner: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        for wanted in &self.wanted {
            write(wanted, owner, command);
        }
    }

    fn items(&self) -> usize {
        2 * self.wanted.len()
    }
}

/// How many units the script touches for a permit, about. A waiter counts as one unit: the script
/// bounds the units that a call grants to waiters.
pub(super) fn units(wanted: &Wanted) -> usize {
    match wanted.position {
        Some(_) => 1,
        None => wanted.permit.weight as usize,
    }
}

/// The three arguments of a wanted permit.
pub(super) fn write(wanted: &Wanted, owner: &Owner, command: &mut Cmd) {
    let permit = &wanted.permit;
    let limit = match wanted.is_known {
        true => -1,
        false if permit.weight > 1 => 0,
        false => i64::from(permit.limit),
    };
    command.arg(Text(owner.id(permit))).arg(limit);
    match &wanted.position {
        Some(position) => command.arg(Text(position)),
        None => command.arg(""),
    };
}

/// The server's answer for a wanted permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Acquired {
    Granted {
        token: u64,
        held: u32,
    },
    Full {
        held: u32,
    },
    /// The claim is in the queue. The head polls again after `recheck`, when the earliest lease ends.
    /// The claim holds nothing, so a notification with a token up to `last_token` is out of date.
    Queued {
        arrival: u64,
        recheck: Option<Duration>,
        last_token: u64,
    },
    QueueFull,
    /// An operator has revoked the permit, or the claim while it waited.
    Revoked,
}

impl Protocol {
    /// Acquires permits, or positions in a queue. Returns an answer for each permit that is wanted, in
    /// their order.
    ///
    /// The server refuses to run a call that arrives after `runs_until`, ms of the server's clock.
    pub(in crate::redis) async fn acquire(
        &self,
        all: &[AcquireOf],
        runs_until: u64,
        deadline: Instant,
    ) -> Vec<Result<Acquired, Error>> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms, runs_until, self.clock.floor()],
            deadline,
            is_confirmed: true,
        };
        let replies = self.run(&call, all).await;
        let counts = all.iter().map(|of| of.wanted.len());
        let read = counts.zip(replies);
        read.flat_map(|(count, reply)| Acquired::read_all(reply, count))
            .collect()
    }
}

impl Acquired {
    /// Reads the answers for `count` permits.
    fn read_all(reply: Result<Reply, Error>, count: usize) -> Vec<Result<Self, Error>> {
        match reply {
            Ok(Reply::Items(_, items) | Reply::Repeated(_, items)) => {
                items.chunks(2).map(Self::read).collect()
            }
            Ok(Reply::Done) => vec![Err(Error::Reply); count],
            Err(error) => vec![Err(error); count],
        }
    }

    fn read(pair: &[Value]) -> Result<Self, Error> {
        let [first, Value::Int(held)] = pair else {
            return Err(Error::Reply);
        };
        let held = u32::try_from(*held).map_err(|_| Error::Reply)?;
        match first {
            Value::Int(-1) => Ok(Self::QueueFull),
            Value::Int(-3) => Ok(Self::Revoked),
            Value::Int(0) => Ok(Self::Full { held }),
            Value::Int(token @ 1..) => Ok(Self::Granted {
                token: *token as u64,
                held,
            }),
            Value::Array(queued) => Self::read_queued(queued),
            _ => Err(Error::Reply),
        }
    }

    fn read_queued(items: &[Value]) -> Result<Self, Error> {
        let [
            Value::Int(arrival),
            Value::Int(recheck),
            Value::Int(last_token),
        ] = items
        else {
            return Err(Error::Reply);
        };
        Ok(Self::Queued {
            arrival: *arrival as u64,
            recheck: u64::try_from(*recheck).ok().map(Duration::from_millis),
            last_token: *last_token as u64,
        })
    }
}
