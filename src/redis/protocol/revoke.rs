//! revoke: takes a permit from whoever holds it. See `revoke.lua`.

use super::{
    call::{Call, Protocol},
    id::Owner,
    read_id::ReadId,
    reply::Reply,
    script::Script,
    share::{Numbers, Share},
};
use crate::{redis::error::Error, semaphore::MAX_WEIGHT};
use redis::{Cmd, Value};
use std::{iter, sync::LazyLock, time::Instant};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(
        include_str!("common.lua"),
        include_str!("grant.lua"),
        include_str!("revoke.lua")
    );
    Script::new("revoke", source, &[":held", ":queue", ":alive", ":token"])
});

/// How long the id of a revoked permit is remembered at least, in ms: its holder may have no connection
/// for so long, and does not get the permit back then.
const REMEMBERED_MS: u64 = 60 * 60 * 1_000;

/// As many leases, if that is longer.
const LEASES: u64 = 8;

/// The longest lease, in ms.
const LONGEST_LEASE_MS: u64 = 24 * 60 * 60 * 1_000;

/// The permit of a semaphore that is revoked.
struct Revoked<'a> {
    name: &'a str,
    id: &'a str,
}

impl Share for Revoked<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(self.name)
    }

    fn args(&self) -> usize {
        1
    }

    fn units(&self) -> usize {
        1
    }

    fn write(&self, _: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        command.arg(self.id);
    }

    fn items(&self, _: Option<&Value>) -> usize {
        1
    }
}

impl Protocol {
    /// Revokes a permit. `false`: there is none of this id, or the text is no id.
    pub(in crate::redis) async fn revoke(
        &self,
        name: &str,
        id: &str,
        deadline: Instant,
    ) -> Result<bool, Error> {
        let Some(read) = ReadId::read(id).filter(|id| id.weight <= MAX_WEIGHT) else {
            return Ok(false);
        };
        let remembered = REMEMBERED_MS.max(LEASES * read.lease_ms.min(LONGEST_LEASE_MS));
        let call = Call {
            script: &SCRIPT,
            head: &[self.clock.floor(), remembered],
            deadline,
            is_confirmed: true,
        };
        let reply = self.run(&call, &[Revoked { name, id }]).await.pop();
        match reply.ok_or(Error::Reply)?? {
            Reply::Items(_, items) => match items[..] {
                [Value::Int(revoked)] => Ok(revoked == 1),
                _ => Err(Error::Reply),
            },
            _ => Err(Error::Reply),
        }
    }
}
