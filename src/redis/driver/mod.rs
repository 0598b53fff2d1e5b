//! Who carries what the [core](super::core) decides: callers' tasks, and the keeper's thread.
//!
//! ```text
//! claim, keeper ─> carry ─> shared ─> cell, runtimes ─> transport <─ wire
//!       └─> end ───────────────^
//! ```
//!
//! | | |
//! |---|---|
//! | [`Shared`](shared::Shared) | the core behind a mutex. Who unlocks it does what then is to be done: wakes, takes what drops have left in its inbox, rings for the thread |
//! | [`Cell`](cell::Cell) | what a permit's holder reads, which never locks |
//! | [`Carrier`](carry::Carrier) | a call, and the connection that it takes |
//! | [`Wire`](wire::Wire) | redis-rs: commands as runs of scripts, and replies as answers. Where servers are the [topology](super::transport::Topology) says |
//! | [`keeper`] | the thread: time, refreshes, and whatever no runtime carries |
//!
//! Why each holds:
//!
//! 1. *The lock is held for a step of the core alone.* The clock is read under it, so that time never steps
//!    back between two steps. What a step tells is written to cells under it, so that cells change in the
//!    order of the steps. Wakers are called after it, because they run a stranger's code.
//! 2. *A drop does not block*, except as in rule 6. It leaves a line in the inbox and tries the lock. If another has
//!    it, that one looks into the inbox after it has unlocked, which is after the line was left. The release of a full
//!    key is sent at once by a task of the runtime in which the permit was dropped, if that has a connection with room and
//!    nobody else has the lock. Otherwise the thread sends it.
//! 3. *Each call has a carrier*, and a carrier that is dropped says so. So a call that a task was to send is
//!    never forgotten: the thread sends again what it named.
//! 4. *The state is not in the thread.* Who finds that none runs, and one is needed, starts it. It connects
//!    again; all else is as it was.
//! 5. *A panic under the lock closes the store*, because a step that ended midway left half of its work.
//!    Claims fail, and each lease ends at the end that its cell has. A panic elsewhere, as of a waker, changes
//!    nothing here.
//! 6. *The thread ends when it has nothing left to do*: no handle and no permit is left, and the core is empty.
//!    Nothing can come then, because only a handle claims. The drop of the last handle or permit waits up to ten
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

pub(in crate::redis) use cell::Refused;
pub(in crate::redis) use claim::{Driver, Held};
pub(in crate::redis) use shared::Health;
pub(in crate::redis) use transport::News;
pub(in crate::redis) use wire::{Session, Wire};

#[cfg(test)]
mod tests;
