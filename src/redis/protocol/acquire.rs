//! acquire: grants permits, or positions in a queue. See `acquire.lua`.

use super::{
    call::{Call, Protocol},
    id::{Owner, PermitId},
    reply::Reply,
    script::{Script, Text},
    share::{Numbers, Share},
};
use crate::{observe::Outcome, redis::error::Error};
use redis::{Cmd, Value};
use std::{
    fmt,
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

/// A claim for one semaphore or for several, from the narrowest limit to the widest: the name of each,
/// and what is wanted of it.
pub(in crate::redis) struct Acquire {
    pub(in crate::redis) levels: Vec<(Arc<str>, Wanted)>,
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

impl Share for Acquire {
    const OVERLAP: bool = true;

    fn names(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().map(|(name, _)| &**name)
    }

    fn head(shares: &[Self]) -> Option<usize> {
        let mut counts = shares.iter().map(|claim| claim.levels.len());
        let first = counts.next()?;
        Some(if counts.all(|count| count == first) {
            first
        } else {
            0
        })
    }

    fn count(&self) -> usize {
        self.levels.len()
    }

    fn args(&self) -> usize {
        4 * self.levels.len()
    }

    fn units(&self) -> usize {
        self.levels.iter().map(|(_, wanted)| units(wanted)).sum()
    }

    fn write(&self, owner: &Owner, numbers: &Numbers<'_>, command: &mut Cmd) {
        for (name, wanted) in &self.levels {
            command.arg(numbers.of(name));
            write(wanted, owner, command);
        }
    }

    fn items(&self, first: Option<&Value>) -> usize {
        match first {
            Some(Value::Array(_)) => 1,
            _ => 2 * self.levels.len(),
        }
    }
}

/// How many units the script touches for a permit, about. A waiter counts as one unit: the script
/// bounds the units that a call grants to waiters.
fn units(wanted: &Wanted) -> usize {
    match wanted.position {
        Some(_) => 1,
        None => wanted.permit.weight as usize,
    }
}

/// The three arguments of a wanted permit.
fn write(wanted: &Wanted, owner: &Owner, command: &mut Cmd) {
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

/// The server's answer to a claim. Levels count from 0, and `held` units are held at the level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum Acquired {
    /// The token of each level, and how many units of each are held.
    Granted(Vec<(u64, u32)>),
    Full {
        level: usize,
        held: u32,
    },
    QueueFull {
        level: usize,
        held: u32,
    },
    /// An operator has revoked the permit, or the claim while it waited.
    Revoked,
    /// The claim is in the queue of this level, and holds the narrower ones. It polls again after
    /// `recheck`. It holds nothing here, so a notification with a token up to `last_token` is out of date.
    Queued {
        level: usize,
        arrival: u64,
        recheck: Option<Duration>,
        last_token: u64,
    },
}

impl Protocol {
    /// Acquires permits, or positions in a queue. Returns an answer to each claim, in their order.
    ///
    /// The server refuses to run a call that arrives after `runs_until`, ms of the server's clock.
    pub(in crate::redis) async fn acquire(
        &self,
        claims: &[Acquire],
        runs_until: u64,
        deadline: Instant,
    ) -> Vec<Result<Acquired, Error>> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms, runs_until, self.clock.floor()],
            deadline,
            is_confirmed: true,
        };
        let replies = self.run(&call, claims).await.into_iter().zip(claims);
        replies
            .map(|(reply, claim)| Acquired::read(reply?, claim.levels.len()))
            .collect()
    }
}

impl Acquired {
    /// What a claim that was in the queue of the level `at` counts as there: a wider level that is full
    /// is refused after a grant of this one.
    pub(in crate::redis) fn outcome(&self, at: usize) -> Outcome {
        match self {
            Self::Granted(_) => Outcome::Admitted,
            Self::Revoked => Outcome::Revoked,
            Self::Full { level, .. } | Self::QueueFull { level, .. } if *level > at => {
                Outcome::Admitted
            }
            _ => Outcome::TimedOut,
        }
    }

    fn read(reply: Reply, levels: usize) -> Result<Self, Error> {
        let (Reply::Items(_, items) | Reply::Repeated(_, items)) = reply else {
            return Err(Error::Reply);
        };
        match &items[..] {
            [Value::Array(refusal)] => Self::read_refusal(&integers(refusal)?, levels),
            granted => Self::read_granted(&integers(granted)?),
        }
    }

    fn read_refusal(numbers: &[i64], levels: usize) -> Result<Self, Error> {
        let [why, level, held, rest @ ..] = numbers else {
            return Err(Error::Reply);
        };
        let (level, held) = (index(*level, levels)?, number(*held)?);
        match (why, rest) {
            (0, []) => Ok(Self::Full { level, held }),
            (-1, []) => Ok(Self::QueueFull { level, held }),
            (-3, []) => Ok(Self::Revoked),
            (-2, [arrival, recheck, last_token]) => Ok(Self::Queued {
                level,
                arrival: number(*arrival)?,
                recheck: u64::try_from(*recheck).ok().map(Duration::from_millis),
                last_token: number(*last_token)?,
            }),
            _ => Err(Error::Reply),
        }
    }

    fn read_granted(numbers: &[i64]) -> Result<Self, Error> {
        let granted = numbers.chunks(2).map(|pair| match *pair {
            [token, held] if token > 0 => Ok((number(token)?, number(held)?)),
            _ => Err(Error::Reply),
        });
        granted.collect::<Result<_, _>>().map(Self::Granted)
    }
}

fn integers(items: &[Value]) -> Result<Vec<i64>, Error> {
    let integers = items.iter().map(|item| match item {
        Value::Int(number) => Ok(*number),
        _ => Err(Error::Reply),
    });
    integers.collect()
}

/// The script counts levels from 1.
fn index(level: i64, levels: usize) -> Result<usize, Error> {
    let level: usize = number(level)?;
    (1..=levels)
        .contains(&level)
        .then(|| level - 1)
        .ok_or(Error::Reply)
}

fn number<T: TryFrom<i64>>(number: i64) -> Result<T, Error> {
    T::try_from(number).map_err(|_| Error::Reply)
}
