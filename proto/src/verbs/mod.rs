//! The scripts, one file per verb, with typed arguments and replies.
//!
//! One run of acquire, refresh or release handles several semaphores, because each run has a fixed cost.
//!
//! | file | content |
//! |---|---|
//! | `verb` | the scripts and their texts |
//! | `command` | commands as data, and as a script with its KEYS and ARGV |
//! | `query` | operators' script runs with their KEYS and ARGV |
//! | `reply`, `answer`, `usage` | replies as data, the answers to commands, and the usage of a semaphore |
//! | `id` | the ids of permits and their units, and the names of keys and channels of the store |

mod answer;
mod command;
mod id;
mod query;
mod reply;
mod usage;
mod verb;

pub use answer::{Acquired, Answer, CommandFault, Message, OperatorLimits, Queued, millis};
pub use command::{Command, CommandSink, Group, Part, Position, Sink, Standing, Wanted};
pub use id::{
    Charge, Digits, Flow, LeaseId, LeaseName, LeaseUnits, Owner, Reservation, SCHEMA, UnitId,
    decoded, encoded, number, process_name, tag_of, window_of,
};
pub use query::{Query, RevokeQuery};
pub use reply::Reply;
pub use usage::{Cursors, PauseEntry, UsageListing, is_done};
pub use verb::Verb;

#[cfg(test)]
mod tests;
