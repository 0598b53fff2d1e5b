//! acquire: grants permits, or positions in a queue. See `acquire.lua`.

use super::{
    answer::Acquired,
    call::{Call, Protocol},
    command::{Verb, Wanted},
    id::Owner,
    reply::Reply,
    script::{Script, Text},
    share::{Numbers, Share},
};
use crate::{observe::Outcome, redis::error::Error};
use redis::{Cmd, Value};
use std::{sync::LazyLock, time::Instant};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Acquire));

/// A claim for one semaphore or for several, from the narrowest limit to the widest.
pub(in crate::redis) struct Acquire {
    pub(in crate::redis) levels: Vec<Wanted>,
}

impl Share for Acquire {
    const OVERLAP: bool = true;

    fn names(&self) -> impl Iterator<Item = &str> {
        self.levels.iter().map(|wanted| &*wanted.name)
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
        self.levels.iter().map(units).sum()
    }

    fn write(&self, owner: &Owner, numbers: &Numbers<'_>, command: &mut Cmd) {
        for wanted in &self.levels {
            command.arg(numbers.of(&wanted.name));
            write(wanted, owner, command);
        }
    }

    fn items(&self, first: Option<&Value>) -> usize {
        Acquired::items(first, self.levels.len())
    }
}

/// How many units the script touches for a permit, about. A waiter counts as one unit: the script
/// bounds the units that a call grants to waiters.
fn units(wanted: &Wanted) -> usize {
    match wanted.position {
        Some(_) => 1,
        None => wanted.units.weight as usize,
    }
}

/// The three arguments of a wanted permit.
fn write(wanted: &Wanted, owner: &Owner, command: &mut Cmd) {
    command
        .arg(Text(owner.id(&wanted.units)))
        .arg(wanted.limit());
    match &wanted.position {
        Some(position) => command.arg(Text(position)),
        None => command.arg(""),
    };
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
            head: &[
                self.owner.lease_ms,
                runs_until,
                self.clock.floor(),
                self.owner.lease_ms,
            ],
            deadline,
            is_confirmed: true,
        };
        let replies = self.run(&call, claims).await.into_iter().zip(claims);
        replies
            .map(|(reply, claim)| read(reply?, claim.levels.len()))
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
}

fn read(reply: Reply, levels: usize) -> Result<Acquired, Error> {
    let (Reply::Items(_, items) | Reply::Repeated(_, items)) = reply else {
        return Err(Error::Reply);
    };
    Acquired::read(&items, levels).ok_or(Error::Reply)
}
