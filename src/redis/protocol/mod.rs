//! The scripts: one file per verb, with a typed call. Nothing else sends a script.
//!
//! A script works on one semaphore after the other, so that one call serves many semaphores and its
//! fixed cost is shared by all of them.

mod answer;
mod check;
mod command;
mod id;
mod name;
mod presence;
mod read_id;
mod reply;
mod revoke;
mod script;
mod tag;
mod usage;

pub(super) use answer::Acquired;
pub(super) use answer::{Answer, Fault, Message};
pub(super) use check::Inspected;
pub(super) use check::{elsewhere, own_question, questions};
pub(super) use command::{Command, Sink, Verb};
pub(super) use command::{Group, Position, Wanted};
pub(super) use id::Owner;
pub(super) use id::PermitId;
pub(super) use name::{key_of, name, names_of};
pub(super) use presence::{described, process};
pub(super) use read_id::ReadId;
pub(super) use revoke::{is_revoked, revoke};
pub(super) use script::{Form, Script};
pub(super) use tag::{Of, Tag};
pub(super) use usage::{Ending, Listed};
pub(super) use usage::{listed, usage};

#[cfg(test)]
mod tests;
