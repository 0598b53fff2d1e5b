//! What a store does in the background: it refreshes, releases, and reports lost permits.
//!
//! The keeper runs on a thread of its own, with a runtime and a connection of its own. So handlers
//! that block every worker of the application's runtime lose no permit, and runtimes that share a
//! store may end in any order. It is the only one to refresh and to release, so no refresh
//! outlives a release.

mod core;
mod handle;
mod pulse;
mod refresh;
mod registry;
mod releases;
mod schedule;
mod task;
mod thread;

pub(super) use handle::Keeper;
