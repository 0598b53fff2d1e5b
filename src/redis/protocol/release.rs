//! release: releases units, or leaves the queue. See `release.lua`.

use super::{
    call::{Call, Protocol},
    command::{Group, Verb},
    id::{Owner, PermitId},
    reply::Reply,
    script::{Script, Text},
    share::{Numbers, Share},
};
use crate::redis::error::Error;
use redis::{Cmd, Value};
use std::{iter, sync::LazyLock, time::Instant};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Release));

impl Share for Group {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(&*self.name)
    }

    fn size(&self) -> usize {
        self.permits.len()
    }

    fn args(&self) -> usize {
        Self::units(self)
    }

    fn units(&self) -> usize {
        Self::units(self)
    }

    fn write(&self, owner: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        for permit in &self.permits {
            for unit in owner.units(permit) {
                command.arg(Text(unit));
            }
        }
    }

    fn items(&self, _: Option<&Value>) -> usize {
        Self::units(self)
    }
}

/// The server's answer for the units of a group.
pub(in crate::redis) enum Answers {
    /// All units are held, or no answer was requested.
    All,
    /// For each unit, whether it is held.
    Each {
        /// The server's time in ms.
        now: u64,
        held: Vec<bool>,
        /// Whether a call that was aborted may have released some of the units before.
        is_repeated: bool,
    },
}

impl Answers {
    pub(super) fn read(reply: Reply) -> Result<Self, Error> {
        let (now, items, is_repeated) = match reply {
            Reply::Done => return Ok(Self::All),
            Reply::Items(now, items) => (now, items, false),
            Reply::Repeated(now, items) => (now, items, true),
        };
        let each = items.iter().map(|item| match item {
            Value::Int(held) => Ok(*held == 1),
            _ => Err(Error::Reply),
        });
        Ok(Self::Each {
            now,
            held: each.collect::<Result<_, _>>()?,
            is_repeated,
        })
    }

    /// When the server gave this answer, ms of its clock; 0 if the answer has no time.
    pub(in crate::redis) fn now(&self) -> u64 {
        match self {
            Self::All => 0,
            Self::Each { now, .. } => *now,
        }
    }

    /// Whether a call that was aborted may have released some of the units before.
    pub(in crate::redis) fn is_repeated(&self) -> bool {
        matches!(
            self,
            Self::Each {
                is_repeated: true,
                ..
            }
        )
    }

    /// For each permit of a group, whether all of its units are held.
    pub(in crate::redis) fn of<'a>(
        &'a self,
        permits: &'a [PermitId],
    ) -> impl Iterator<Item = bool> + 'a {
        let mut start = 0;
        permits.iter().map(move |permit| {
            let end = start + permit.units() as usize;
            let units = start..end;
            start = end;
            match self {
                Self::All => true,
                Self::Each { held, .. } => {
                    held.get(units).is_some_and(|held| held.iter().all(|&h| h))
                }
            }
        })
    }
}

impl Protocol {
    /// Releases units. Returns for each group which of its units were held, if `with_answer`.
    pub(in crate::redis) async fn release(
        &self,
        with_answer: bool,
        groups: &[Group],
        deadline: Instant,
    ) -> Vec<Result<Answers, Error>> {
        let call = Call {
            script: &SCRIPT,
            head: &[u64::from(with_answer), self.clock.floor()],
            deadline,
            is_confirmed: false,
        };
        let replies = self.run(&call, groups).await;
        let answers = replies.into_iter();
        answers.map(|reply| reply.and_then(Answers::read)).collect()
    }
}
