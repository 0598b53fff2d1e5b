//! Sends the calls that the core (`proto::core`) decides on, from callers' tasks and from the keeper's thread.
//!
//! ```text
//! claim, keeper ─> carry ─> shared ─> cell, runtimes ─> transport <─ wire
//!       └─> end ───────────────^
//! ```
//!
//! | | |
//! |---|---|
//! | [`Shared`](shared::Shared) | the core behind a mutex. After an unlock it wakes tasks and the thread, and handles drops |
//! | [`Cell`](cell::Cell) | the state of a permit, which its holder reads without a lock |
//! | [`Carrier`](carry::Carrier) | a call, and the connection that it uses |
//! | [`Wire`](wire::Wire) | redis-rs: commands as script runs, over a [topology](super::transport::Topology) |
//! | [`keeper`] | the thread: time, refreshes, and the calls that no runtime sends |
//!
//! The rules, and why each holds:
//!
//! 1. *The lock is held only for a step of the core.* The clock is read under the lock, so that time never goes back
//!    between two steps. The events of a step are written to cells under the lock, so that cells change in the order of
//!    the steps. Wakers are called after the unlock, because they run foreign code.
//! 2. *A drop does not block*, except as in rule 6. It adds an entry to the inbox and tries the lock. If another thread
//!    has the lock, that thread checks the inbox after its unlock, which is after the entry was added. A task of the
//!    runtime in which the permit was dropped sends the release of a full key at once. This needs a connection of that
//!    runtime with room, and that no other thread has the lock. Otherwise the keeper's thread sends the release.
//! 3. *Each call has a carrier*, and a carrier that is dropped reports that. So no claim is lost with a task: the
//!    thread makes new calls for the claims and permits that the dropped call named.
//! 4. *The state is not in the thread.* If no thread runs and one is needed, the next use of the store starts a thread,
//!    which connects again. Everything else is unchanged.
//! 5. *A panic under the lock closes the store*, because an aborted step has done only half of its work. Claims fail,
//!    and each lease ends at the time in its cell. A panic elsewhere, for example of a waker, changes nothing here.
//! 6. *The thread ends when it has nothing left to do*: no handle and no permit is left, and the core is empty. No more
//!    work can come then, because claims need a handle. The drop of the last handle or permit waits up to ten
//!    milliseconds until all releases are sent, because the thread ends with the process. In a task of a running
//!    runtime it does not wait.

mod carry;
mod cell;
mod claim;
mod end;
mod keeper;
mod runtimes;
mod shared;
mod transport;
mod wire;

pub(in crate::redis) use cell::ClaimRefusal;
pub(in crate::redis) use claim::{Driver, HeldPermit};
pub(in crate::redis) use shared::StoreHealth;
pub(in crate::redis) use transport::News;
pub(in crate::redis) use wire::{Session, Wire};

#[cfg(test)]
mod tests;
