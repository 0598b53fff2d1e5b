//! processes: counts the processes that are alive. See `processes.lua`.

use super::{
    call::{Call, Protocol},
    id::Owner,
    reply::Reply,
    script::{Script, Text},
    share::{Numbers, Share},
};
use crate::redis::error::Error;
use redis::{Cmd, Value};
use std::{borrow::Cow, iter, sync::LazyLock, time::Instant};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("processes.lua"));
    Script::new(source, &[KEY])
});

/// What the key's name ends with.
const KEY: &str = "processes";

/// The prefix of all keys, which takes the part of a semaphore's name.
struct Prefix<'a>(&'a str);

impl Share for Prefix<'_> {
    fn names(&self) -> impl Iterator<Item = &str> {
        iter::once(self.0)
    }

    fn place(&self) -> Cow<'_, str> {
        Cow::Owned(format!("{}{KEY}", self.0))
    }

    fn args(&self) -> usize {
        1
    }

    fn units(&self) -> usize {
        1
    }

    fn write(&self, owner: &Owner, _: &Numbers<'_>, command: &mut Cmd) {
        let Owner { process, lease_ms } = owner;
        command.arg(Text(format_args!("{process}:{lease_ms}")));
    }

    fn items(&self) -> usize {
        1
    }
}

/// How long a probe's own count lasts, in ms: it is of no use.
const PROBE_MS: u64 = 100;

impl Protocol {
    /// The key in which processes are counted.
    pub(in crate::redis) fn processes_key(&self) -> String {
        format!("{}{KEY}", self.prefix)
    }

    /// Says that this process is alive. Returns how many are.
    pub(in crate::redis) async fn live(&self, deadline: Instant) -> Result<u32, Error> {
        let lease_ms = self.owner.lease_ms;
        self.processes(&self.prefix, lease_ms, deadline).await
    }

    /// Says that this process leaves.
    pub(in crate::redis) async fn leave(&self, deadline: Instant) -> Result<u32, Error> {
        self.processes(&self.prefix, 0, deadline).await
    }

    /// Finds out whether the node of a semaphore or of another key can work, by a count of its own that
    /// ends soon. `None` if nothing is known of nodes.
    pub(in crate::redis) fn probe(
        &self,
        place: &str,
        deadline: Instant,
    ) -> Option<impl Future<Output = Result<u32, Error>>> {
        if self.is_one_server() || self.server_of(place).is_none() {
            return None;
        }
        // As a hash tag the whole name of a key has the slot of that key.
        let name = match place.contains('{') {
            true => place.to_owned(),
            false => format!("{}{{{place}}}", self.prefix),
        };
        Some(async move { self.processes(&name, PROBE_MS, deadline).await })
    }

    async fn processes(&self, name: &str, lease_ms: u64, deadline: Instant) -> Result<u32, Error> {
        let call = Call {
            script: &SCRIPT,
            head: &[lease_ms],
            deadline,
            is_confirmed: lease_ms > 0,
        };
        let replies = self.run(&call, &[Prefix(name)]).await;
        let Some(Reply::Items(_, items)) = replies.into_iter().next().transpose()? else {
            return Err(Error::Reply);
        };
        match items[..] {
            [Value::Int(count)] => u32::try_from(count).map_err(|_| Error::Reply),
            _ => Err(Error::Reply),
        }
    }
}
