//! The scripts, one file per verb, and typed runs and replies of each.
//!
//! A script works on one semaphore after the other. So one call serves many semaphores, which share its fixed cost.
//!
//! | file | content |
//! |---|---|
//! | `verb` | the scripts and their texts |
//! | `command` | commands as data, and as a script with its KEYS and ARGV |
//! | `query` | the runs of scripts for operators, likewise |
//! | `reply`, `answer`, `usage` | replies as data, the answers to commands, and the usage of a semaphore |
//! | `id` | the ids of permits and their units, and the names of keys and channels of the store |

mod answer;
mod command;
mod id;
mod query;
mod reply;
mod usage;
mod verb;

pub use answer::{Acquired, Answer, Fault, Message, OperatorLimits, Queued, millis};
pub use command::{Command, CommandSink, Group, Part, Position, Sink, Standing, Wanted};
pub use id::{
    Digits, Flow, LeaseId, LeaseName, Owner, SCHEMA, UnitId, Units, decoded, encoded, number,
    process_name,
};
pub use query::{Query, RevokeQuery};
pub use reply::Reply;
pub use usage::{Cursors, PauseEntry, UsageListing, is_done};
pub use verb::Verb;

#[cfg(test)]
mod tests;
