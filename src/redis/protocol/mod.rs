//! The scripts: one file per verb, with a typed call. Nothing else sends a script.
//!
//! A script works on one semaphore after the other, so that one call serves many: what a call
//! costs the server beyond its work, and both sides to send and to read, is shared by all.

mod acquire;
mod call;
mod clock;
mod id;
mod name;
mod refresh;
mod release;
mod script;

pub(super) use acquire::{AcquireOf, Acquired, Position, Wanted};
pub(super) use call::MAX_ARGS;
pub(super) use id::PermitId;
pub(super) use name::name;
pub(super) use release::{Answers, Group};

use super::{clock::ServerClock, transport::Transport};
use id::Owner;
use script::Script;
use std::sync::{Arc, atomic::AtomicBool};

/// The scripts, and the way to where they run.
pub(super) struct Protocol {
    transport: Box<dyn Transport>,
    clock: Arc<ServerClock>,
    owner: Owner,
    /// The server has refused a call for several semaphores.
    one_each: AtomicBool,
    acquire: Script,
    refresh: Script,
    release: Script,
    clock_script: Script,
    /// What the names of all keys begin with.
    prefix: String,
}

impl Protocol {
    /// Calls in the name of `process`, whose leases last `lease_ms`.
    pub(super) fn new(
        transport: Box<dyn Transport>,
        clock: Arc<ServerClock>,
        prefix: String,
        process: Arc<str>,
        lease_ms: u64,
    ) -> Self {
        Self {
            transport,
            clock,
            owner: Owner { process, lease_ms },
            one_each: AtomicBool::new(false),
            acquire: Script::acquire(),
            refresh: Script::refresh(),
            release: Script::release(),
            clock_script: Script::clock(),
            prefix,
        }
    }
}
