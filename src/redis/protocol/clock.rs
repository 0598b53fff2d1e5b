//! clock: reads the server's time, and the highest time that any process has seen on the server. See
//! `clock.lua`.

use super::{
    call::{Call, Protocol},
    command::Verb,
    reply::micros,
    script::Script,
    store_key::StoreKey,
};
use crate::redis::error::Error;
use std::{sync::LazyLock, time::Instant};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Clock));

/// What the key's name ends with.
const KEY: &str = "clock";

impl Protocol {
    /// The key that is read.
    pub(in crate::redis) fn clock_key(&self) -> String {
        format!("{}{KEY}", self.owner.prefix)
    }

    /// Reads the server's time, and exchanges the highest time that this process has seen for the
    /// highest that any process has seen.
    pub(in crate::redis) async fn clock(&self, deadline: Instant) -> Result<(), Error> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms, self.clock.floor()],
            deadline,
            is_confirmed: false,
        };
        let key = StoreKey {
            prefix: &self.owner.prefix,
            end: KEY,
            names_process: false,
        };
        let highest = self.run_for(&call, key).await?;
        self.clock.raise(micros(highest)?);
        Ok(())
    }
}
