//! The effects that one script may have on a semaphore, regardless of earlier runs.

use super::{Verdict, Who, check, pauses::Pause};
use crate::{
    server::{Run, Set, View},
    subject::{Acquired, Answer, Command, GENERATION, Id, Key, PermitId, Refused, Wanted},
    wire::IdFields,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A permit under one of its ids, as a server knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) process: usize,
    pub(super) serial: u64,
    pub(super) limit: i64,
    pub(super) weight: i64,
}

impl Name {
    /// Reads the id of a unit.
    pub(crate) fn read(unit: &str) -> Option<Self> {
        let IdFields { process, id, .. } = IdFields::read(unit.split(':').next()?)?;
        Some(Self {
            process: process.strip_prefix('p')?.parse().ok()?,
            serial: id.serial,
            limit: id.limit.into(),
            weight: id.weight.into(),
        })
    }

    /// The id of a permit that has all of its units.
    pub(crate) fn id(&self) -> Id {
        Id {
            serial: self.serial,
            limit: self.limit as u32,
            weight: self.weight as u32,
            units: (1, self.weight as u32),
        }
    }

    pub(super) fn who(&self) -> Who {
        (self.process, PermitId(self.serial % GENERATION))
    }
}

/// The number of a unit within its permit.
pub(super) fn unit_number(unit: &str) -> Option<u32> {
    let number = unit.split_once(':').map(|(_, number)| number.parse());
    number.unwrap_or(Ok(1)).ok()
}

/// The ids of the units that are still held at a time, once per unit.
pub(super) fn live(held: &Set, clock: i64) -> impl Iterator<Item = Name> {
    let live = held.iter().filter(move |(_, end)| *end > clock);
    live.filter_map(|(unit, _)| Name::read(unit))
}

/// The waiters that count as alive at a time, and their scores, in the order of the queue. At `i64::MIN` all do.
pub(super) fn waiting(view: &View, clock: i64) -> impl Iterator<Item = (Name, i64)> {
    let is_alive = move |id: &str| {
        view.alive
            .iter()
            .any(|(other, until)| other == id && *until > clock)
    };
    let alive = view.queue.iter().filter(move |(id, _)| is_alive(id));
    alive.filter_map(|(id, score)| Some((Name::read(id)?, *score)))
}

/// The outcome of an acquire at one level of a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum LevelOutcome {
    /// It is held, with this token.
    Granted(u64),
    /// It is held while the claim waits at a wider level.
    Kept,
    Full,
    QueueFull,
    Queued,
    Revoked,
    Paused,
    /// Nothing of the claim is held there, and it does not wait there.
    Nothing,
}

impl LevelOutcome {
    /// The outcome at level `at`, which follows from the answer for the whole claim.
    fn new(acquired: Acquired, at: usize) -> Self {
        match acquired {
            Acquired::Granted { tokens, .. } => Self::Granted(tokens[at]),
            Acquired::Full { level } if level == at => Self::Full,
            Acquired::QueueFull { level } if level == at => Self::QueueFull,
            Acquired::Revoked { level } if level == at => Self::Revoked,
            Acquired::Paused { level, .. } if level == at => Self::Paused,
            Acquired::Queued { level, .. } if level == at => Self::Queued,
            Acquired::Queued { level, .. } if level > at => Self::Kept,
            _ => Self::Nothing,
        }
    }
}

/// The claims of a run, each with its answer.
fn answered(run: &Run) -> impl Iterator<Item = (&[(Key, Wanted)], &Acquired)> {
    let (claims, each) = match (&run.command, &run.answer) {
        (Command::Acquire { claims, .. }, Answer::Acquired(_, each)) => (&claims[..], &each[..]),
        _ => (&[][..], &[][..]),
    };
    claims.iter().map(|claim| &claim[..]).zip(each)
}

/// Each level that a run acquires, with its outcome.
pub(super) fn acquired(run: &Run) -> impl Iterator<Item = (Key, Wanted, LevelOutcome)> {
    answered(run).flat_map(|(claim, acquired)| {
        let levels = claim.iter().enumerate();
        levels.map(|(at, (key, wanted))| (*key, *wanted, LevelOutcome::new(*acquired, at)))
    })
}

/// The effect of a script on a semaphore.
pub(super) struct Effect<'a> {
    pub(super) run: &'a Run,
    pub(super) key: Key,
    pub(super) before: &'a View,
    pub(super) after: &'a View,
    /// The server's time in ms.
    pub(super) clock: i64,
    /// In ms.
    pub(super) lease: i64,
    /// True if the server may hold units that were given up.
    pub(super) brings_back: bool,
    /// The pause of the semaphore. Its end is not exactly known if `is_uncertain`.
    pub(super) pause: Option<Pause>,
    pub(super) is_uncertain: bool,
}

impl Effect<'_> {
    /// The text of a violation: `what`, the command, and the data before and after it.
    pub(super) fn describe(&self, what: &str) -> String {
        let Self {
            run, before, after, ..
        } = self;
        let command = &run.command;
        format!(
            "{what} by {command:?} of p{}: {before:?} became {after:?}",
            run.process
        )
    }

    /// True if the command names this id.
    fn names(&self, name: &Name) -> bool {
        let mut ids = self.run.command.ids().into_iter();
        name.process == self.run.process && ids.any(|(_, id)| id.serial == name.serial)
    }

    /// True if the command applies to this unit: ids may name a part of a permit's units.
    fn names_unit(&self, unit: &str) -> bool {
        let (Some(name), Some(number)) = (Name::read(unit), unit_number(unit)) else {
            return false;
        };
        let mut ids = self.run.command.ids().into_iter();
        name.process == self.run.process
            && ids.any(|(_, id)| {
                id.serial == name.serial && id.units.0 <= number && number <= id.units.1
            })
    }

    /// How long a unit may last from now, in ms: as long as the command asks for, if it names the unit. A whole lease
    /// is allowed if the end was even later because the clock was ahead: then the script moves it back to one lease.
    fn longest_life(&self, unit: &str) -> i64 {
        let name = Name::read(unit);
        let is_named = name.is_some_and(|name| self.names(&name));
        let ends = self.before.held.iter().chain(&self.before.alive);
        let mut far = ends.filter(|(_, end)| *end > self.clock + self.lease);
        let was_far = far.any(|(id, _)| Name::read(id) == name);
        match is_named && !self.is_release() && !was_far {
            true => self.run.command.lasts().as_millis() as i64,
            false => self.lease,
        }
    }

    fn is_acquire(&self) -> bool {
        matches!(self.run.command, Command::Acquire { .. })
    }

    /// True if an error ended the script halfway.
    pub(super) fn is_cut_short(&self) -> bool {
        matches!(
            self.run.answer,
            Answer::Error(Refused::WrongType | Refused::Midway)
        )
    }

    fn is_release(&self) -> bool {
        matches!(self.run.command, Command::Release { .. })
    }

    pub(super) fn wanted(&self) -> impl Iterator<Item = (Name, Wanted, LevelOutcome)> {
        let own = acquired(self.run).filter(|(key, ..)| *key == self.key);
        own.map(|(_, wanted, acquired)| {
            let id = wanted.id;
            let name = Name {
                process: self.run.process,
                serial: id.serial,
                limit: id.limit.into(),
                weight: id.weight.into(),
            };
            (name, wanted, acquired)
        })
    }

    /// The position of the claim with this id in the command.
    pub(super) fn place(&self, id: &str) -> Option<usize> {
        let name = Name::read(id)?;
        let mut wanted = self.wanted();
        wanted.position(|(other, ..)| other == name && self.names(&name))
    }

    /// The ids that have units now and had none before.
    pub(super) fn granted(&self) -> BTreeSet<Name> {
        let old: BTreeSet<_> = live(&self.before.held, self.clock).collect();
        live(&self.after.held, self.clock)
            .filter(|name| !old.contains(name))
            .collect()
    }

    /// Checks that a unit is added, removed or prolonged only because of the permit to which it belongs.
    pub(super) fn check_units(&self) -> Verdict {
        let before: BTreeMap<_, _> = self.before.held.iter().cloned().collect();
        let after: BTreeMap<_, _> = self.after.held.iter().cloned().collect();
        for (unit, end) in &before {
            let is_named = self.names_unit(unit);
            // If this script was cut short, a unit that it has ended is removed by the next script.
            let now = after
                .get(unit)
                .filter(|now| **now > 0 || !self.is_cut_short());
            let is_right = match now {
                None => {
                    let gives_up = self.is_release() || self.gives_up(unit) || self.is_cut_short();
                    *end <= self.clock || is_named && gives_up
                }
                Some(now) if now == end => true,
                Some(now) if *end > self.clock + self.lease => {
                    let is_lowered = *now == self.clock + self.lease;
                    is_lowered || is_named && !self.is_release()
                }
                // A lease that has ended may only be acquired again.
                Some(_) if *end <= self.clock => is_named && self.is_acquire(),
                Some(_) => is_named && !self.is_release(),
            };
            check(is_right, "S4", || {
                self.describe(&format!("{unit} was touched"))
            })?;
        }
        for unit in after.keys().filter(|unit| !before.contains_key(*unit)) {
            let is_wanted =
                |name: Name| self.is_acquire() && self.names(&name) || self.waited(name);
            let is_right = Name::read(unit).is_some_and(is_wanted);
            check(is_right, "S4", || {
                self.describe(&format!("{unit} was not asked for"))
            })?;
        }
        // A granted waiter lasts until it would have stopped counting as alive. That end was set by an earlier clock,
        // which may have been set back since.
        let is_end_of_wait = |unit: &str, end: i64| {
            let mut alive = self.before.alive.iter();
            let is_end =
                alive.any(|(id, until)| Name::read(id) == Name::read(unit) && *until == end);
            is_end && end <= self.clock + self.lease
        };
        let far = after.iter().find(|(unit, end)| {
            let is_kept = before.get(*unit) == Some(*end) || is_end_of_wait(unit, **end);
            **end > self.clock + self.longest_life(unit) && !is_kept
        });
        check(far.is_none(), "L1", || {
            self.describe(&format!("{far:?} lasts too long"))
        })
    }

    /// True if an acquire gives up the level of a unit: it is refused at another level, or waits at a narrower one.
    fn gives_up(&self, unit: &str) -> bool {
        let is_given_up =
            |outcome| !matches!(outcome, LevelOutcome::Granted(_) | LevelOutcome::Kept);
        let mut wanted = self.wanted();
        wanted.any(|(name, _, outcome)| Name::read(unit) == Some(name) && is_given_up(outcome))
    }

    /// True if an id was in the queue before.
    fn waited(&self, name: Name) -> bool {
        let mut queue = self.before.queue.iter();
        queue.any(|(id, _)| Name::read(id) == Some(name))
    }

    /// Checks that grants fit the limit, and that each permit counts once. `is_released` is true for ids that were
    /// released before.
    pub(super) fn check_limit(&self, is_released: impl Fn(&Name) -> bool) -> Verdict {
        let granted = self.granted();
        let used = live(&self.after.held, self.clock).count() as i64;
        if let Some(limit) = granted.iter().map(|name| name.limit).max() {
            check(used <= limit, "S1", || {
                self.describe(&format!("{used} units are held"))
            })?;
        }
        for name in &granted {
            // The permit's units under an earlier id were released. But an older state still has them, and so does a
            // server that did not know the script of the release.
            let has_old_ids = self.brings_back || self.run.is_fresh;
            let may_be_old = |other: &Name| has_old_ids && other.serial != name.serial;
            let same = |other: &Name| {
                other.who() == name.who() && !may_be_old(other) && !is_released(other)
            };
            let own = live(&self.after.held, self.clock).filter(same).count() as i64;
            check(own <= name.weight, "S5", || {
                self.describe(&format!("{name:?} counts {own} times"))
            })?;
        }
        Ok(())
    }

    /// Checks that each waiter that leaves was granted, has given up or is dead, and that no waiter waits although it
    /// has room.
    pub(super) fn check_queue(&self) -> Verdict {
        // If a clock was ahead, a waiter may hold its permit already.
        let held: BTreeSet<_> = live(&self.after.held, self.clock).collect();
        let stays: BTreeSet<_> = waiting(self.after, i64::MIN)
            .map(|(name, _)| name)
            .collect();
        for (name, _) in waiting(self.before, self.clock) {
            let mut gives_up = self.wanted().filter(|(other, wanted, outcome)| {
                let is_refused = matches!(outcome, LevelOutcome::Nothing | LevelOutcome::Revoked);
                let leaves = wanted.position.is_none() || is_refused;
                *other == name && leaves
            });
            let is_right = stays.contains(&name)
                || held.contains(&name)
                || (self.is_release() || self.is_cut_short()) && self.names(&name)
                || gives_up.next().is_some();
            check(is_right, "S4", || {
                self.describe(&format!("{name:?} has left the queue"))
            })?;
        }
        let head = waiting(self.after, self.clock).next();
        let head = head.filter(|_| self.pause.is_none());
        let idle = head.filter(|(name, _)| self.has_room(name) && self.must_look());
        // A call looks at a limited number of units. Its answer asks for a poll, which looks at the rest of the queue.
        let idle = idle.filter(|(name, _)| !self.is_asked_to_poll(name));
        check(idle.is_none(), "F4", || {
            self.describe(&format!("{idle:?} waits"))
        })
    }

    /// True if a waiter was in the queue before `other` could be granted: since before this call, or by an earlier
    /// claim of it.
    pub(super) fn comes_before(&self, waiter: &Name, other: &Name) -> bool {
        let place = |name: &Name| self.wanted().position(|(wanted, ..)| wanted == *name);
        self.waited(*waiter) || !self.waited(*other) && place(waiter) < place(other)
    }

    /// True if the script had a reason to look at the queue. Units that expire are found by the head's poll.
    fn must_look(&self) -> bool {
        let live = |view: &View| live(&view.held, self.clock).count();
        match self.run.answer {
            Answer::Late(_) | Answer::Error(_) | Answer::Held(_) => false,
            Answer::Acquired(..) => {
                let mut wanted = self.wanted();
                let has_come = wanted.any(|(_, _, outcome)| {
                    !matches!(outcome, LevelOutcome::Nothing | LevelOutcome::Revoked)
                });
                has_come || live(self.after) < live(self.before)
            }
            _ => true,
        }
    }

    /// True if the answer asks a waiter to poll at once.
    fn is_asked_to_poll(&self, name: &Name) -> bool {
        let mut own = answered(self.run).filter(|(claim, _)| {
            let mut levels = claim.iter();
            name.process == self.run.process
                && levels.any(|(_, wanted)| wanted.id.serial == name.serial)
        });
        own.any(|(_, acquired)| {
            matches!(
                acquired,
                Acquired::Queued {
                    recheck: Some(Duration::ZERO),
                    ..
                }
            )
        })
    }

    fn has_room(&self, name: &Name) -> bool {
        has_room(self.after, self.clock, name)
    }

    /// The number of units held when a claim was decided: after the earlier claims of the call, and before the later.
    fn held_before(&self, name: &Name) -> i64 {
        let place = |name: &Name| self.wanted().position(|(other, ..)| other == *name);
        let own = place(name);
        let is_earlier = |other: &Name| place(other).is_some_and(|other| Some(other) < own);
        let before = live(&self.before.held, self.clock).filter(|other| !is_earlier(other));
        let after = live(&self.after.held, self.clock).filter(is_earlier);
        (before.count() + after.count()) as i64
    }

    /// The number of claims that waited at some instant of the call. At most this many waited at once.
    pub(super) fn all_waiters(&self) -> usize {
        let stored = self.before.queue.iter().chain(&self.after.queue);
        let stored = stored.filter_map(|(id, _)| Name::read(id));
        // A claim that joined in this call may have been granted because of a later claim of the call.
        let queued = self.wanted();
        let queued = queued.filter(|(.., outcome)| matches!(outcome, LevelOutcome::Queued));
        let all: BTreeSet<_> = stored.chain(queued.map(|(name, ..)| name)).collect();
        all.len()
    }

    /// Checks that the answers are true.
    pub(super) fn check_answers(&self) -> Verdict {
        let stays: BTreeSet<_> = waiting(self.after, i64::MIN)
            .map(|(name, _)| name)
            .collect();
        let had = |name: &Name| {
            let old = live(&self.before.held, self.clock);
            old.filter(|other| other == name).count()
        };
        for (name, wanted, acquired) in self.wanted() {
            let own = live(&self.after.held, self.clock)
                .filter(|other| *other == name)
                .count();
            let head = waiting(self.after, self.clock).next();
            // True if another claim was in the queue. An earlier or later claim of this call may have moved or revived
            // it.
            let others_waited = waiting(self.before, i64::MIN).any(|(other, _)| other != name);
            let most = wanted
                .position
                .map_or(0, |position| position.wait.max_waiting);
            let had_room = self.held_before(&name) + name.weight <= name.limit;
            let is_true = match acquired {
                // Some of its units may have been released since it was sent.
                LevelOutcome::Granted(_) | LevelOutcome::Kept => {
                    own as i64 == name.weight || own > 0 && had(&name) == own
                }
                LevelOutcome::Nothing | LevelOutcome::Revoked => own == 0 && !stays.contains(&name),
                LevelOutcome::Full => own == 0 && (others_waited || head.is_some() || !had_room),
                // It is held already if a later claim of this call has left the queue.
                LevelOutcome::Queued => head.is_some() || own as i64 == name.weight,
                LevelOutcome::QueueFull => own == 0 && self.all_waiters() >= most as usize,
                LevelOutcome::Paused => own == 0 && !stays.contains(&name),
            };
            check(is_true, "the truth", || {
                self.describe(&format!("{name:?} gets {acquired:?}"))
            })?;
        }
        Ok(())
    }
}

/// True if a waiter's units fit under its limit.
pub(super) fn has_room(view: &View, clock: i64, name: &Name) -> bool {
    let used = live(&view.held, clock).count() as i64;
    used + name.weight <= name.limit
}
