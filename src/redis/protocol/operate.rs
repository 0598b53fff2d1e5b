//! usage: lists what is held, and what waits. revoke: takes a permit from whoever holds it. See `usage.lua` and
//! `revoke.lua`.

use super::{answer::millis, id::ReadId, script::Script};
use crate::{redis::error::Error, semaphore::MAX_WEIGHT};
use redis::{Cmd, Value, cmd, from_redis_value};
use std::{collections::BTreeMap, sync::LazyLock};

/// Concatenated at compile time.
static USAGE: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("usage.lua"));
    Script::new(source, &[":held", ":queue", ":alive"])
});

static REVOKE: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(
        include_str!("common.lua"),
        include_str!("grant.lua"),
        include_str!("revoke.lua")
    );
    Script::new(source, &[":held", ":queue", ":alive", ":token"])
});

/// How many units, and how many claims that wait, a server lists in one call, about: for a millisecond or two.
const PAGE: usize = 1_000;

/// What a server has of a semaphore. Times are ms of its clock.
#[derive(Default)]
pub(in crate::redis) struct Listed {
    pub(in crate::redis) now: u64,
    /// The members of a permit's units, and their ends.
    pub(in crate::redis) held: BTreeMap<String, u64>,
    /// The ids of waiters, with their places in the queue, and until when they count as alive.
    waiting: BTreeMap<String, (f64, u64)>,
}

/// Where a list goes on, that of units and that of waiters.
pub(in crate::redis) struct Next([String; 2]);

impl Next {
    pub(in crate::redis) fn first() -> Self {
        Self(["0", "0"].map(str::to_owned))
    }

    fn is_last(&self) -> bool {
        self.0.iter().all(|cursor| cursor == "-")
    }
}

/// Asks for a page of what is held of a semaphore, and of what waits for it.
pub(in crate::redis) fn usage(name: &str, next: &Next) -> Cmd {
    let [held, queue] = &next.0;
    USAGE.run_for(name, &[&PAGE, &2, held, queue])
}

impl Listed {
    /// Adds a page, which is the reply to that. Where the list goes on, unless it has ended.
    pub(in crate::redis) fn add(&mut self, page: Value) -> Result<Option<Next>, Error> {
        let (now, held, waiting): (i64, Words, Words) =
            from_redis_value(page).map_err(|_| Error::Reply)?;
        self.now = millis(now).ok_or(Error::Reply)?;
        // What is no text is not an id of ours.
        let text = |word: &Vec<u8>| String::from_utf8_lossy(word).into_owned();
        let [held, waiting] =
            [held, waiting].map(|words| words.iter().map(text).collect::<Vec<_>>());
        let (next_held, held) = parted(&held)?;
        let (next_waiting, waiting) = parted(&waiting)?;
        for [unit, ends] in held.as_chunks().0 {
            self.held.insert(unit.clone(), time(ends));
        }
        for [id, ends, place] in waiting.as_chunks().0 {
            let place = place.parse().unwrap_or_default();
            self.waiting.insert(id.clone(), (place, time(ends)));
        }
        let next = Next([next_held, next_waiting].map(str::to_owned));
        Ok(Some(next).filter(|next| !next.is_last()))
    }

    /// The waiters in the order of the queue, and until when they count as alive. One that was granted between two
    /// pages holds.
    pub(in crate::redis) fn waiting(&self) -> Vec<(&str, u64)> {
        let waiting = self.waiting.iter();
        let waiting = waiting.filter(|(id, _)| !self.held.contains_key(*id));
        let mut waiting: Vec<_> = waiting.collect();
        // Those of one place are in the order of their ids, as in the server's set.
        waiting.sort_by(|(_, (one, _)), (_, (other, _))| one.total_cmp(other));
        let waiting = waiting.into_iter();
        let waiting = waiting.map(|(id, (_, ends))| (id.as_str(), *ends));
        waiting.collect()
    }
}

type Words = Vec<Vec<u8>>;

/// Where a list goes on, and what is on its page.
fn parted(list: &[String]) -> Result<(&str, &[String]), Error> {
    let (next, page) = list.split_first().ok_or(Error::Reply)?;
    Ok((next, page))
}

/// A time that is none would be of no use to anybody.
fn time(score: &str) -> u64 {
    let ms = score.parse::<f64>().unwrap_or_default();
    millis(ms as i64).unwrap_or_default()
}

/// Asks how many units of a semaphore are held, and how many claims wait, at this time in ms of the server's clock.
pub(in crate::redis) fn counting(name: &str, now: u64) -> [Cmd; 2] {
    [":held", ":alive"].map(|end| {
        let mut count = cmd("ZCOUNT");
        count.arg(format!("{name}{end}")).arg(format!("({now}"));
        count.arg("+inf").take()
    })
}

/// Reads the reply to `TIME`, in ms.
pub(in crate::redis) fn now(time: Value) -> Result<u64, Error> {
    let (seconds, micros): (i64, i64) = from_redis_value(time).map_err(|_| Error::Reply)?;
    millis(seconds * 1_000 + micros / 1_000).ok_or(Error::Reply)
}

/// The ids of the processes that are alive then, of all that are listed as `ID:LEASE` with their ends.
pub(in crate::redis) fn alive(list: Value, now: u64) -> Result<Vec<String>, Error> {
    let list: Vec<(String, f64)> = from_redis_value(list).map_err(|_| Error::Reply)?;
    let alive = list.into_iter().filter(|(_, ends)| *ends > now as f64);
    let ids = alive.filter_map(|(member, _)| Some(member.split_once(':')?.0.to_owned()));
    Ok(ids.collect())
}

/// How long the id of a revoked permit is remembered at least, in ms: its holder may have no connection
/// for so long, and does not get the permit back then.
const REMEMBERED_MS: u64 = 60 * 60 * 1_000;

/// As many leases, if that is longer.
const LEASES: u64 = 8;

/// The longest lease, in ms.
const LONGEST_LEASE_MS: u64 = 24 * 60 * 60 * 1_000;

/// Revokes a permit; `floor` is the least token of a semaphore without one, microseconds. `None`: there is none of this
/// id, or the text is no id.
pub(in crate::redis) fn revoke(name: &str, id: &str, floor: u64) -> Option<Cmd> {
    let read = ReadId::read(id).filter(|id| id.weight <= MAX_WEIGHT)?;
    let remembered = REMEMBERED_MS.max(LEASES * read.lease_ms.min(LONGEST_LEASE_MS));
    Some(REVOKE.run_for(name, &[&floor, &remembered, &1, &id]))
}

/// Reads from the reply to that whether there was such a permit.
pub(in crate::redis) fn is_revoked(reply: Value) -> Result<bool, Error> {
    let (_, revoked): (u64, u64) = from_redis_value(reply).map_err(|_| Error::Reply)?;
    Ok(revoked == 1)
}
