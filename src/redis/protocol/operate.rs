//! usage: lists what is held, and what waits. revoke: takes a permit from whoever holds it. See `usage.lua` and
//! `revoke.lua`.

use super::{answer::millis, id::ReadId, script::Script};
use crate::{redis::error::Error, semaphore::MAX_WEIGHT};
use redis::{Cmd, Value, from_redis_value};
use std::sync::LazyLock;

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

/// What a server has of a semaphore. Times are ms of its clock.
pub(in crate::redis) struct Listed {
    pub(in crate::redis) now: u64,
    /// The members of a permit's units, and their ends.
    pub(in crate::redis) held: Vec<Ending>,
    /// The ids of waiters in the order of the queue, and until when they count as alive.
    pub(in crate::redis) waiting: Vec<Ending>,
}

/// An id, and when it ends.
pub(in crate::redis) type Ending = (String, u64);

/// Asks what is held of a semaphore, and what waits for it.
pub(in crate::redis) fn usage(name: &str) -> Cmd {
    USAGE.run_for(name, &[&0])
}

/// Reads the reply to that.
pub(in crate::redis) fn listed(reply: Value) -> Result<Listed, Error> {
    let (now, held, waiting) = from_redis_value(reply).map_err(|_| Error::Reply)?;
    Ok(Listed {
        now: millis(now).ok_or(Error::Reply)?,
        held: read(held)?,
        waiting: read(waiting)?,
    })
}

/// Reads members and their scores. What is no text is not an id of ours.
fn read(list: Value) -> Result<Vec<Ending>, Error> {
    let items: Vec<(Vec<u8>, f64)> = from_redis_value(list).map_err(|_| Error::Reply)?;
    let ending = |(id, ends): (Vec<u8>, f64)| {
        let id = String::from_utf8_lossy(&id).into_owned();
        // A time that is none would be of no use to anybody.
        (id, millis(ends as i64).unwrap_or_default())
    };
    Ok(items.into_iter().map(ending).collect())
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
