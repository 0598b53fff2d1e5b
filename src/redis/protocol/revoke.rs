//! revoke: takes a permit from whoever holds it. See `revoke.lua`.

use super::script::run;
use super::{read_id::ReadId, script::Script};
use crate::{redis::error::Error, semaphore::MAX_WEIGHT};
use redis::{Cmd, Value};
use std::sync::LazyLock;

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(
        include_str!("common.lua"),
        include_str!("grant.lua"),
        include_str!("revoke.lua")
    );
    Script::new(source, &[":held", ":queue", ":alive", ":token"])
});

/// How long the id of a revoked permit is remembered at least, in ms: its holder may have no connection
/// for so long, and does not get the permit back then.
const REMEMBERED_MS: u64 = 60 * 60 * 1_000;

/// As many leases, if that is longer.
const LEASES: u64 = 8;

/// The longest lease, in ms.
const LONGEST_LEASE_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long a permit is remembered, in ms. `None`: there is none of this id, or the text is no id.
fn remembered(id: &str) -> Option<u64> {
    let read = ReadId::read(id).filter(|id| id.weight <= MAX_WEIGHT)?;
    Some(REMEMBERED_MS.max(LEASES * read.lease_ms.min(LONGEST_LEASE_MS)))
}

/// Revokes a permit; `floor` is the least token of a semaphore without one, microseconds. `None`: the text is no id.
pub(in crate::redis) fn revoke(name: &str, id: &str, floor: u64) -> Option<Cmd> {
    let remembered = remembered(id)?;
    Some(run(&SCRIPT, name, &[&floor, &remembered, &1, &id]))
}

/// Reads from the reply to that whether there was such a permit.
pub(in crate::redis) fn is_revoked(reply: &Value) -> Result<bool, Error> {
    match reply {
        Value::Array(items) => match items[..] {
            [Value::Int(_), Value::Int(revoked)] => Ok(revoked == 1),
            _ => Err(Error::Reply),
        },
        _ => Err(Error::Reply),
    }
}
