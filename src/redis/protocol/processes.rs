//! processes: counts the processes that are alive. See `processes.lua`.

use super::{
    call::{Call, Protocol},
    script::Script,
    store_key::StoreKey,
};
use crate::redis::error::Error;
use std::{sync::LazyLock, time::Instant};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("processes.lua"));
    Script::new("processes", source, &[KEY])
});

/// What the key's name ends with.
const KEY: &str = "processes";

/// How long a probe's own count lasts, in ms: it is of no use.
const PROBE_MS: u64 = 100;

impl Protocol {
    /// The key in which processes are counted.
    pub(in crate::redis) fn processes_key(&self) -> String {
        format!("{}{KEY}", self.owner.prefix)
    }

    /// Says that this process is alive. Returns how many are.
    pub(in crate::redis) async fn live(&self, deadline: Instant) -> Result<u32, Error> {
        let lease_ms = self.owner.lease_ms;
        self.processes(&self.owner.prefix, lease_ms, deadline).await
    }

    /// Says that this process leaves.
    pub(in crate::redis) async fn leave(&self, deadline: Instant) -> Result<u32, Error> {
        self.processes(&self.owner.prefix, 0, deadline).await
    }

    /// Finds out whether the node of a semaphore or of another key can work, by a count of its own that
    /// ends soon. `None` if there is only one server, or no key.
    pub(in crate::redis) fn probe(
        &self,
        key: &str,
        deadline: Instant,
    ) -> Option<impl Future<Output = Result<u32, Error>>> {
        if self.is_one_server() || key.is_empty() {
            return None;
        }
        // As a hash tag the whole name of a key has the slot of that key.
        let name = match key.contains('{') {
            true => key.to_owned(),
            false => format!("{}{{{key}}}", self.owner.prefix),
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
        let key = StoreKey {
            prefix: name,
            end: KEY,
            names_process: true,
        };
        let count = self.run_for(&call, key).await?;
        u32::try_from(count).map_err(|_| Error::Reply)
    }
}
