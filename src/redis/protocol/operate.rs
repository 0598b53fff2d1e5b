//! usage: lists what is held, and what waits. revoke: takes a permit from whoever holds it. See `usage.lua` and
//! `revoke.lua`.

use super::{
    pause::PauseEntry,
    script::{Form, Script},
};
use crate::{redis::error::CallError, semaphore::MAX_WEIGHT};
use proto::verbs::{UnitId, Verb, millis};
use redis::{Cmd, Value, cmd, from_redis_value};
use std::{collections::BTreeMap, fmt, sync::LazyLock};

static USAGE: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Usage));
static REVOKE: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Revoke));

/// How many members of each of a semaphore's keys a server lists in one call, about: for a millisecond or two.
const PAGE: usize = 1_000;

/// What a server has of a semaphore. Times are ms of its clock.
#[derive(Default)]
pub(in crate::redis) struct Listed {
    pub(in crate::redis) now: u64,
    /// The members of a permit's units, and their ends.
    pub(in crate::redis) held: BTreeMap<String, u64>,
    /// The ids of waiters, and their places in the queue.
    queue: BTreeMap<String, f64>,
    /// Until when waiters count as alive.
    alive: BTreeMap<String, u64>,
}

/// Where the lists of a semaphore's keys go on.
pub(in crate::redis) struct Next([String; 3]);

impl Next {
    pub(in crate::redis) fn first() -> Self {
        Self(["0"; 3].map(str::to_owned))
    }
}

/// Asks for a page of what is held of a semaphore, and of what waits for it.
pub(in crate::redis) fn usage(name: &str, Next([held, queue, alive]): &Next) -> Cmd {
    USAGE.run_for(Form::Source, name, &[&PAGE, &3, held, queue, alive])
}

/// Some members of a key with their scores, and where the list goes on.
type Page = (String, Vec<(Vec<u8>, f64)>);

impl Listed {
    /// Adds a page, which is the reply to that. Where the lists go on, unless all have ended.
    pub(in crate::redis) fn add(&mut self, page: Value) -> Result<Option<Next>, CallError> {
        let (now, held, queue, alive): (i64, Page, Page, Page) =
            from_redis_value(page).map_err(|_| CallError::Reply)?;
        let now = millis(now).ok_or(CallError::Reply)?;
        self.now = now;
        self.held.extend(ends_after(now, held.1));
        self.queue
            .extend(queue.1.into_iter().map(|(id, place)| (text(&id), place)));
        self.alive.extend(ends_after(now, alive.1));
        let next = [held.0, queue.0, alive.0];
        let is_last = next.iter().all(|cursor| cursor == "-");
        Ok((!is_last).then_some(Next(next)))
    }

    /// The pause of the semaphore, and its end.
    pub(in crate::redis) fn pause(&self) -> Option<(PauseEntry, u64)> {
        let mut entries = self.queue.keys();
        entries.find_map(|id| Some((PauseEntry::read(id)?, *self.alive.get(id)?)))
    }

    /// The waiters in the order of the queue, and until when they count as alive. One that was granted between two
    /// pages holds.
    pub(in crate::redis) fn waiting(&self) -> Vec<(&str, u64)> {
        let queue = self.queue.iter();
        let queue = queue.filter(|(id, _)| !self.held.contains_key(*id));
        let mut queue: Vec<_> = queue.collect();
        // Those of one place are in the order of their ids, as in the server's set.
        queue.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let alive = |(id, _): (&'_ String, _)| self.alive.get_key_value(id);
        let waiting = queue.into_iter().filter_map(alive);
        waiting.map(|(id, ends)| (id.as_str(), *ends)).collect()
    }
}

/// What has not ended. What is no time has.
fn ends_after(now: u64, list: Vec<(Vec<u8>, f64)>) -> impl Iterator<Item = (String, u64)> {
    list.into_iter().filter_map(move |(id, ends)| {
        let ends = millis(ends as i64).filter(|ends| *ends > now)?;
        Some((text(&id), ends))
    })
}

/// What is no text is not an id of ours.
fn text(id: &[u8]) -> String {
    String::from_utf8_lossy(id).into_owned()
}

/// Asks how many units of a semaphore are held, how many entries its queue has, and which is the first, at this time in
/// ms of the server's clock.
pub(in crate::redis) fn counting(name: &str, now: u64) -> [Cmd; 3] {
    let count = |end| {
        let mut count = cmd("ZCOUNT");
        count.arg(format!("{name}{end}")).arg(format!("({now}"));
        count.arg("+inf").take()
    };
    let first = cmd("ZRANGE")
        .arg(format!("{name}:queue"))
        .arg(0)
        .arg(0)
        .take();
    [count(":held"), count(":alive"), first]
}

/// The counts of a semaphore, and its pause.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::redis) struct Counted {
    pub(in crate::redis) units: u32,
    pub(in crate::redis) waiting: u32,
    /// The pause, and its end in ms of the server's clock.
    pub(in crate::redis) pause: Option<(PauseEntry, u64)>,
}

/// Reads the three replies to [`counting`].
pub(in crate::redis) fn counted_at(
    now: u64,
    replies: &[Result<Value, CallError>],
) -> Result<Counted, CallError> {
    let [units, entries, first] = replies else {
        return Err(CallError::Reply);
    };
    let number = |reply: &Result<Value, CallError>| {
        from_redis_value::<u32>(reply.clone()?).map_err(|_| CallError::Reply)
    };
    let first: Vec<Vec<u8>> = from_redis_value(first.clone()?).map_err(|_| CallError::Reply)?;
    let pause = first.into_iter().find_map(|id| {
        let entry = PauseEntry::read(&text(&id))?;
        let ends = entry.since.saturating_add(entry.length);
        (ends > now).then_some((entry, ends))
    });
    Ok(Counted {
        units: number(units)?,
        waiting: number(entries)?.saturating_sub(u32::from(pause.is_some())),
        pause,
    })
}

/// Reads the reply to `TIME`, in ms.
pub(in crate::redis) fn now(time: Value) -> Result<u64, CallError> {
    let (seconds, micros): (i64, i64) = from_redis_value(time).map_err(|_| CallError::Reply)?;
    millis(seconds * 1_000 + micros / 1_000).ok_or(CallError::Reply)
}

/// The ids of the processes that are alive then, of all that are listed as `ID:LEASE` with their ends.
pub(in crate::redis) fn alive(list: Value, now: u64) -> Result<Vec<String>, CallError> {
    let list: Vec<(String, f64)> = from_redis_value(list).map_err(|_| CallError::Reply)?;
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

/// The revocation of a permit.
pub(in crate::redis) struct Revocation<'a> {
    /// The prefix of the semaphore's keys.
    name: &'a str,
    /// The permit's id.
    id: &'a str,
    /// The least token of a semaphore that has none yet, in microseconds.
    floor: u64,
    remembered_ms: u64,
}

impl<'a> Revocation<'a> {
    /// `None` if the text is not the id of a permit.
    pub(in crate::redis) fn new(name: &'a str, id: &'a str, floor: u64) -> Option<Self> {
        let is_permit = |id: &UnitId<'_>| id.unit == 1 && id.lease.weight <= MAX_WEIGHT;
        let read = UnitId::read(id).filter(is_permit)?;
        let leases_ms = LEASES * read.lease_ms.min(LONGEST_LEASE_MS);
        Some(Self {
            name,
            id,
            floor,
            remembered_ms: REMEMBERED_MS.max(leases_ms),
        })
    }

    pub(in crate::redis) fn command(&self, form: Form) -> Cmd {
        let args: [&dyn fmt::Display; 4] = [&self.floor, &self.remembered_ms, &1, &self.id];
        REVOKE.run_for(form, self.name, &args)
    }
}

/// Reads from the reply to that, or to what sets a limit, whether it was done.
pub(in crate::redis) fn is_done(reply: Value) -> Result<bool, CallError> {
    let (_, done): (u64, u64) = from_redis_value(reply).map_err(|_| CallError::Reply)?;
    Ok(done == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    /// The reply of a server whose clock shows 100.
    fn page(lists: [(&str, &[&str]); 3]) -> Value {
        let lists = lists.map(|(next, list)| {
            let list = list.iter().map(|word| text(word)).collect();
            Value::Array(vec![text(next), Value::Array(list)])
        });
        Value::Array([Value::Int(100)].into_iter().chain(lists).collect())
    }

    #[test]
    fn pages_are_put_together() {
        let mut listed = Listed::default();
        let first = page([
            ("7", &["a", "200", "gone", "100"]),
            ("8", &["y", "2", "x", "2", "z", "1"]),
            ("-", &["x", "150", "z", "150", "revoked:p.1", "-5e15"]),
        ]);
        let next = listed.add(first).expect("it is a page");
        let Next(next) = next.expect("it goes on");
        assert_eq!(next, ["7", "8", "-"]);
        // One unit is seen twice, and a waiter has been granted meanwhile.
        let last = page([
            ("-", &["a", "300", "z", "400"]),
            ("-", &["w", "3", "dead", "4"]),
            ("-", &["w", "101", "dead", "99", "y", "150"]),
        ]);
        assert!(listed.add(last).expect("it is a page").is_none());
        let held: Vec<_> = listed
            .held
            .iter()
            .map(|(id, ends)| (&**id, *ends))
            .collect();
        assert_eq!(held, [("a", 300), ("z", 400)]);
        assert_eq!(listed.waiting(), [("x", 150), ("y", 150), ("w", 101)]);
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let mut listed = Listed::default();
        for reply in [
            Value::Nil,
            Value::Int(1),
            Value::Array(vec![Value::Int(100)]),
        ] {
            assert!(listed.add(reply).is_err());
        }
    }

    #[test]
    fn a_process_is_alive_until_its_end() {
        let list = ["a:1", "101", "b:1", "100", "strange", "900"].map(text);
        let ids = alive(Value::Array(list.into()), 100);
        assert_eq!(ids.expect("a list"), ["a"]);
    }
}
