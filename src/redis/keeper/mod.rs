//! The background of a store: refreshes and releases permits, and reports lost ones.
//!
//! The keeper runs on a thread of its own, with a runtime and a connection of its own. So handlers
//! that block every worker of the application's runtime lose no permit, and runtimes that share a
//! store may end in any order. Nothing else refreshes or releases, so no refresh is sent after its
//! permit's release.

mod core;
mod handle;
mod pulse;
mod reacquire;
mod refresh;
mod registry;
mod release;
mod releases;
mod schedule;
mod suspension;
mod task;
mod thread;
mod unreleased;

pub(super) use handle::Keeper;
