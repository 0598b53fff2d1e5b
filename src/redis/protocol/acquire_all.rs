//! acquire_all: grants the permits of several semaphores together. See `acquire_all.lua`.

use super::{
    acquire::{Acquired, Wanted, units, write},
    call::{Call, Protocol},
    id::Owner,
    reply::Reply,
    script::Script,
    share::{Numbers, Share},
};
use crate::{observe::Outcome, redis::error::Error};
use redis::{Cmd, Value};
use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(
        include_str!("common.lua"),
        include_str!("grant.lua"),
        include_str!("queue.lua"),
        include_str!("acquire_all.lua")
    );
    Script::new(
        "acquire_all",
        source,
        &[":held", ":queue", ":alive", ":token"],
    )
});

/// A claim for several semaphores, from the narrowest limit to the widest: the name of each, and
/// what is wanted of it.
pub(in crate::redis) struct AcquireAll {
    pub(in crate::redis) levels: Vec<(Arc<str>, Wanted)>,
}

impl Share for AcquireAll {
    const OVERLAP: bool = true;

    fn names(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().map(|(name, _)| &**name)
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

    fn items(&self) -> usize {
        1
    }
}

/// The server's answer for several levels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum AllAcquired {
    /// The token of each, and how many units of each are held.
    Granted(Vec<(u64, u32)>),
    Full {
        level: usize,
        held: u32,
    },
    QueueFull {
        level: usize,
    },
    /// An operator has revoked it.
    Revoked,
    /// It waits at this level, and holds the narrower ones. The head polls again after `recheck`.
    Queued {
        level: usize,
        arrival: u64,
        recheck: Option<Duration>,
        last_token: u64,
    },
}

impl Protocol {
    /// Acquires for claims that are for several semaphores each. As many answers, in their order.
    ///
    /// The server refuses to run what it gets after `runs_until`, ms of its own clock.
    pub(in crate::redis) async fn acquire_all(
        &self,
        all: &[AcquireAll],
        runs_until: u64,
        deadline: Instant,
    ) -> Vec<Result<AllAcquired, Error>> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms, runs_until, self.clock.floor()],
            deadline,
            is_confirmed: true,
        };
        let replies = self.run(&call, all).await.into_iter().zip(all);
        replies
            .map(|(reply, claim)| AllAcquired::read(reply?, claim.levels.len()))
            .collect()
    }
}

impl From<Acquired> for AllAcquired {
    fn from(one: Acquired) -> Self {
        let level = 0;
        match one {
            Acquired::Granted { token, held } => Self::Granted(vec![(token, held)]),
            Acquired::Full { held } => Self::Full { level, held },
            Acquired::QueueFull => Self::QueueFull { level },
            Acquired::Revoked => Self::Revoked,
            Acquired::Queued {
                arrival,
                recheck,
                last_token,
            } => Self::Queued {
                level,
                arrival,
                recheck,
                last_token,
            },
        }
    }
}

impl AllAcquired {
    /// What a claim that was in the queue of the level `at` counts as there: a wider level that is full
    /// is refused after a grant of this one.
    pub(in crate::redis) fn outcome(&self, at: usize) -> Outcome {
        match self {
            Self::Granted(_) => Outcome::Admitted,
            Self::Revoked => Outcome::Revoked,
            Self::Full { level, .. } | Self::QueueFull { level } if *level > at => {
                Outcome::Admitted
            }
            _ => Outcome::TimedOut,
        }
    }

    /// The answer to a claim of one level.
    pub(in crate::redis) fn only(self) -> Acquired {
        match self {
            Self::Granted(levels) => {
                let (token, held) = levels.first().copied().unwrap_or_default();
                Acquired::Granted { token, held }
            }
            Self::Full { held, .. } => Acquired::Full { held },
            Self::QueueFull { .. } => Acquired::QueueFull,
            Self::Revoked => Acquired::Revoked,
            Self::Queued {
                arrival,
                recheck,
                last_token,
                ..
            } => Acquired::Queued {
                arrival,
                recheck,
                last_token,
            },
        }
    }

    fn read(reply: Reply, levels: usize) -> Result<Self, Error> {
        let (Reply::Items(_, items) | Reply::Repeated(_, items)) = reply else {
            return Err(Error::Reply);
        };
        let [Value::Array(items)] = &items[..] else {
            return Err(Error::Reply);
        };
        let numbers = items.iter().map(|item| match item {
            Value::Int(number) => Ok(*number),
            _ => Err(Error::Reply),
        });
        let numbers = numbers.collect::<Result<Vec<_>, _>>()?;
        let answer = match numbers[..] {
            [0, level, held] => Self::Full {
                level: index(level, levels)?,
                held: number(held)?,
            },
            [-1, level, _] => Self::QueueFull {
                level: index(level, levels)?,
            },
            [-3, level, _] => index(level, levels).map(|_| Self::Revoked)?,
            [-2, level, _, arrival, recheck, last_token] => Self::Queued {
                level: index(level, levels)?,
                arrival: number(arrival)?,
                recheck: u64::try_from(recheck).ok().map(Duration::from_millis),
                last_token: number(last_token)?,
            },
            _ => Self::read_granted(&numbers, levels)?,
        };
        Ok(answer)
    }

    fn read_granted(numbers: &[i64], levels: usize) -> Result<Self, Error> {
        let granted = numbers.chunks(2).map(|pair| match *pair {
            [token, held] if token > 0 => Ok((number(token)?, number(held)?)),
            _ => Err(Error::Reply),
        });
        let granted = granted.collect::<Result<Vec<_>, _>>()?;
        match granted.len() == levels {
            true => Ok(Self::Granted(granted)),
            false => Err(Error::Reply),
        }
    }
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
