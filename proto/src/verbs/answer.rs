//! The answers to commands, decoded from the replies of scripts. A reply that its script never returns is no answer.

use super::{
    command::{Command, Group, Part, Wanted},
    id::{LeaseName, number as number_of},
    reply::Reply,
};
use std::time::Duration;

/// The answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The acquire arrived after its deadline and changed nothing. The server's time in ms.
    Late(u64),
    /// The server's time in ms, and the outcome of each claim.
    Acquired(u64, Vec<Acquired>),
    /// For each permit of each group, true if it is held.
    Held(Vec<bool>),
    /// No answer was requested.
    Done,
    /// The server's time in ms; the highest time that any process has seen, in microseconds, if the command names the
    /// clock; the number of live processes, if it names these; and the limits that operators have set, if they differ
    /// from those that this process knows.
    Presence(u64, Option<u64>, Option<u32>, Option<OperatorLimits>),
    /// The number of replicas that have the writes.
    Replicas(u32),
    /// The server did not know the script, so it has run nothing. The next call sends the script's text.
    NotRun,
    /// The server could not run the command, or not to its end.
    Failed(CommandFault),
}

/// The limits that operators have set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OperatorLimits {
    /// Grows with each change. 0 if the server knows of no limit that was ever set.
    pub version: u64,
    /// The version with which the first limit was set. A different value means that the server has lost its data.
    pub first: u64,
    /// By `POLICY:KEY` or `POLICY`, as in the names of semaphores.
    pub limits: Vec<(Box<str>, u32)>,
}

/// Why a server has not run a command, or not to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandFault {
    /// The server can run no command now.
    Unavailable,
    /// No server serves the slot of the command. This server works, and serves its own slots.
    Unserved,
    /// The server refuses this command: a key has another type, or a permission is missing.
    Mistake,
    /// The server of this number has the slot.
    Moved(usize),
    /// The server of this number has the keys, if they are anywhere: the slot is moving there.
    Ask(usize),
    /// The slot is moving: some keys of the command have moved, and some have not.
    Again,
    /// The slot is moving, so the script stopped midway: a part of it has run. It may be sent again.
    Interrupted,
}

/// The answer for a claim. Its levels count from 0. `held` is the number of units that are held at the level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// The token of each level, and the number of units that are held there.
    Granted(Vec<(u64, u32)>),
    Full {
        level: usize,
        held: u32,
        /// For a budget: the time after which the claim fits even if nothing is settled or released, if it ever does.
        retry_after: Option<Duration>,
    },
    QueueFull {
        level: usize,
        held: u32,
    },
    /// An operator has revoked the claim.
    Revoked,
    /// The level is still paused for the time `left`.
    Paused {
        level: usize,
        left: Duration,
    },
    Queued(Queued),
}

/// How a claim waits in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    /// The level in whose queue it waits. It holds the narrower ones.
    pub level: usize,
    /// Names its place in the queue. The next poll sends it back.
    pub arrival: u64,
    /// The time after which it should poll before its heartbeat is due, for example because the first lease ends then.
    pub recheck: Option<Duration>,
    /// The last token of the level. The claim holds nothing there, so its grant will have a higher one.
    pub last_token: u64,
    /// How long the level is still paused.
    pub pause: Option<Duration>,
    /// For a budget: the time for which the claim cannot be granted, whatever is settled.
    pub earliest: Option<Duration>,
}

/// A message that a script has sent to this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The lease of this name was granted with this token, and this number of units is held. Token 0: nothing was
    /// granted, and the lease should poll.
    Granted(LeaseName, u64, u32),
    /// An operator has revoked the permit of this number.
    Revoked(u64),
    /// This process receives messages from now on. Earlier ones may have been lost.
    Subscribed,
}

impl Message {
    /// Reads `PERMIT.LEASE.GENERATION TOKEN HELD`, or `PERMIT revoked`.
    pub fn read(text: &str) -> Option<Self> {
        let (named, rest) = text.split_once(' ')?;
        if rest == "revoked" {
            return Some(Self::Revoked(number_of(named)?));
        }
        let (token, held) = rest.split_once(' ')?;
        let (token, held) = (token.parse().ok()?, held.parse().ok()?);
        Some(Self::Granted(LeaseName::read(named)?, token, held))
    }
}

/// The scripts' numbers are exact up to this. A clock in microseconds reaches it in the year 2255, so a later time is
/// invalid.
const LATEST_MICROS: i64 = 1 << 53;
const LATEST_MILLIS: i64 = LATEST_MICROS / 1_000;

/// The server's time in ms. `None` if the number is no valid time.
pub fn millis(time: i64) -> Option<u64> {
    (0..=LATEST_MILLIS).contains(&time).then_some(time as u64)
}

/// The same in microseconds.
pub(super) fn micros(time: i64) -> Option<u64> {
    (0..=LATEST_MICROS).contains(&time).then_some(time as u64)
}

impl Command {
    /// Reads the reply to this command. `None` if its script never returns such a reply.
    pub fn decode(&self, reply: &Reply) -> Option<Answer> {
        match self {
            Self::Acquire { claims, .. } => acquired(reply, claims),
            Self::Refresh { groups, .. } => match reply.integer() {
                Some(now) => millis(now).map(|_| Answer::Held(vec![true; permits(groups)])),
                None => held(reply, groups),
            },
            Self::Release {
                with_answer: true,
                groups,
                ..
            } => held(reply, groups),
            Self::Release { .. } => (reply.integer()? == 0).then_some(Answer::Done),
            Self::Presence(parts) => presence(reply, parts),
            Self::Leave => timed(reply).map(|_| Answer::Done),
            Self::Asking => Some(Answer::Done),
            Self::Confirm { .. } => number(reply).map(Answer::Replicas),
        }
    }
}

/// Splits a list into the server's time, which is its first item, and the other items.
fn timed(reply: &Reply) -> Option<(u64, &[Reply])> {
    let (now, items) = reply.list()?.split_first()?;
    Some((millis(now.integer()?)?, items))
}

fn presence(reply: &Reply, parts: &[Part]) -> Option<Answer> {
    let (now, items) = timed(reply)?;
    let (mut items, mut highest, mut live, mut limits) = (items.iter(), None, None, None);
    for part in parts {
        match part {
            Part::Clock(_) => highest = Some(micros(items.next()?.integer()?)?),
            Part::Processes => live = Some(number(items.next()?)?),
            Part::Limits(_) => limits = changed_limits(items.next()?)?,
            Part::Process => drop(items.next()?),
        }
    }
    let is_all = items.next().is_none();
    is_all.then_some(Answer::Presence(now, highest, live, limits))
}

/// Reads a number, which means that the limits have not changed, or the fields of `limits.lua` with their values.
fn changed_limits(item: &Reply) -> Option<Option<OperatorLimits>> {
    if item.integer().is_some() {
        return Some(None);
    }
    let mut changed = OperatorLimits::default();
    for pair in item.list()?.chunks(2) {
        let [of, value] = pair else { return None };
        // A field that is no text is not ours.
        let (Some(of), Some(value)) = (of.text(), value.text()) else {
            continue;
        };
        let mut numbers = value.split(' ').map_while(|number| number.parse().ok());
        match numbers.next() {
            Some(version) if of == "*version" => {
                changed.version = version;
                changed.first = numbers.next().unwrap_or_default();
            }
            Some(limit) => {
                let limit = u32::try_from(limit).ok().map(|limit| (of.into(), limit));
                changed.limits.extend(limit);
            }
            None => {}
        }
    }
    Some(Some(changed))
}

fn permits(groups: &[Group]) -> usize {
    groups.iter().map(|group| group.permits.len()).sum()
}

/// Reads a flag for each unit. A permit is held if all of its units are.
fn held(reply: &Reply, groups: &[Group]) -> Option<Answer> {
    let (_, mut items) = timed(reply)?;
    let mut each = Vec::with_capacity(permits(groups));
    for permit in groups.iter().flat_map(|group| &group.permits) {
        let (units, rest) = items.split_at_checked(permit.count() as usize)?;
        items = rest;
        let are_held: Vec<_> = units.iter().map(flag).collect::<Option<_>>()?;
        each.push(!are_held.contains(&false));
    }
    items.is_empty().then_some(Answer::Held(each))
}

fn flag(item: &Reply) -> Option<bool> {
    match item.integer()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn acquired(reply: &Reply, claims: &[Vec<Wanted>]) -> Option<Answer> {
    let (now, mut items) = timed(reply)?;
    if items.is_empty() {
        return Some(Answer::Late(now));
    }
    let mut each = Vec::with_capacity(claims.len());
    for claim in claims {
        let (answer, rest) = Acquired::read(items, claim.len())?;
        items = rest;
        each.push(answer);
    }
    items.is_empty().then_some(Answer::Acquired(now, each))
}

impl Acquired {
    /// Reads the answer to a claim of `levels` levels. Returns the items after it too.
    fn read(items: &[Reply], levels: usize) -> Option<(Self, &[Reply])> {
        let (first, rest) = items.split_first()?;
        if let Some(refusal) = first.list() {
            return Some((Self::refused(refusal, levels)?, rest));
        }
        let (granted, rest) = items.split_at_checked(2 * levels)?;
        let grants = granted.chunks_exact(2).map(|pair| {
            let token = number(&pair[0]).filter(|token| *token > 0);
            Some((token?, number(&pair[1])?))
        });
        Some((Self::Granted(grants.collect::<Option<_>>()?), rest))
    }

    /// Reads the answer to a claim that is not granted. `acquire.lua` lists the codes.
    fn refused(items: &[Reply], levels: usize) -> Option<Self> {
        let [code, level, held, rest @ ..] = items else {
            return None;
        };
        // The script counts levels from 1.
        let level = number::<usize>(level)?.checked_sub(1)?;
        let (level, held) = (Some(level).filter(|level| *level < levels)?, number(held)?);
        match (code.integer()?, rest) {
            (0, retry @ ([] | [_])) => Some(Self::Full {
                level,
                held,
                retry_after: match retry {
                    [left] => Some(duration(left)?),
                    _ => None,
                },
            }),
            (-1, []) => Some(Self::QueueFull { level, held }),
            (-3, []) => Some(Self::Revoked),
            (-4, [left]) => Some(Self::Paused {
                level,
                left: duration(left)?,
            }),
            (-2, [arrival, recheck, last_token, more @ ..]) => Some(Self::Queued(Queued {
                level,
                arrival: number(arrival)?,
                recheck: optional(recheck)?,
                last_token: number(last_token)?,
                pause: match more {
                    [] => None,
                    [left] | [left, _] => optional(left)?,
                    _ => return None,
                },
                earliest: match more {
                    [_, earliest] => optional(earliest)?,
                    _ => None,
                },
            })),
            _ => None,
        }
    }
}

/// A time in ms; -1: none.
fn optional(item: &Reply) -> Option<Option<Duration>> {
    match item.integer()? {
        -1 => Some(None),
        _ => duration(item).map(Some),
    }
}

fn duration(item: &Reply) -> Option<Duration> {
    number(item).map(Duration::from_millis)
}

fn number<T: TryFrom<i64>>(item: &Reply) -> Option<T> {
    T::try_from(item.integer()?).ok()
}
