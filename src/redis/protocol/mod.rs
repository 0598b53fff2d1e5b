//! The scripts: one file per verb, with a typed call. Nothing else sends a script.
//!
//! A script works on one semaphore after the other, so that one call serves many semaphores and its
//! fixed cost is shared by all of them.

#[cfg(not(tower_semaphore_core))]
mod acquire;
#[cfg_attr(not(tower_semaphore_core), allow(dead_code))]
mod answer;
#[cfg(not(tower_semaphore_core))]
mod call;
mod check;
#[cfg_attr(not(tower_semaphore_core), allow(dead_code))]
mod command;
#[cfg(not(tower_semaphore_core))]
mod count;
mod id;
mod name;
mod presence;
mod read_id;
#[cfg(not(tower_semaphore_core))]
mod refresh;
#[cfg(not(tower_semaphore_core))]
mod release;
mod reply;
mod revoke;
mod script;
#[cfg(not(tower_semaphore_core))]
mod share;
#[cfg(not(tower_semaphore_core))]
mod split;
mod tag;
mod usage;

#[cfg(not(tower_semaphore_core))]
pub(super) use acquire::Acquire;
pub(super) use answer::Acquired;
#[cfg(tower_semaphore_core)]
pub(super) use answer::{Answer, Fault, Message, Reply};
#[cfg(not(tower_semaphore_core))]
pub(super) use call::{MAX_UNITS, Protocol};
pub(super) use check::Inspected;
#[cfg(tower_semaphore_core)]
pub(super) use check::{elsewhere, own_question, questions};
#[cfg(tower_semaphore_core)]
pub(super) use command::{Command, Sink, Verb};
pub(super) use command::{Group, Position, Wanted};
#[cfg(tower_semaphore_core)]
pub(super) use id::Owner;
pub(super) use id::PermitId;
pub(super) use name::{key_of, name, names_of};
#[cfg(tower_semaphore_core)]
pub(super) use presence::{described, process};
pub(super) use read_id::ReadId;
#[cfg(tower_semaphore_core)]
pub(super) use revoke::{is_revoked, revoke};
#[cfg(tower_semaphore_core)]
pub(super) use script::{Form, Script};
pub(super) use tag::{Of, Tag};
pub(super) use usage::{Ending, Listed};
#[cfg(tower_semaphore_core)]
pub(super) use usage::{listed, usage};

#[cfg(all(test, tower_semaphore_core))]
mod tests;
