//! What a store does in the background: it refreshes, releases, and tells holders of loss.
//!
//! The keeper runs on a thread of its own, with a runtime and a connection of its own. So handlers
//! that block every worker of the application's runtime lose no permit, and runtimes that share a
//! store may end in any order. It is the only one to refresh and to release, so no refresh
//! outlives a release.

mod pulse;
mod refresh;
mod registry;
mod releases;
mod schedule;
mod task;
mod thread;

use super::{
    clock::{ServerClock, Times},
    dispatch::Dispatch,
    lease::Lease,
};
use registry::{Registry, ReleaseCounts};
use std::{io, sync::Arc, time::Instant};
use task::Command;
use thread::Thread;
use tokio::sync::{mpsc, oneshot};

/// The keeper, as its store sees it.
pub(super) struct Keeper {
    core: Arc<Core>,
    commands: mpsc::UnboundedSender<Command>,
    thread: Thread,
}

/// What the keeper's callers and its tasks share.
struct Core {
    dispatch: Arc<Dispatch>,
    times: Times,
    clock: Arc<ServerClock>,
    registry: Registry,
    released: ReleaseCounts,
}

impl Keeper {
    /// A keeper that runs once it is [started](Self::start), together with `others`. It ends when
    /// this is dropped and what it had to release is released.
    pub(super) fn new(
        dispatch: Arc<Dispatch>,
        times: Times,
        clock: Arc<ServerClock>,
        others: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let core = Arc::new(Core {
            dispatch,
            times,
            clock,
            registry: Registry::default(),
            released: ReleaseCounts::default(),
        });
        let (commands, received) = mpsc::unbounded_channel();
        let keeper = task::run(Arc::clone(&core), received);
        let thread = Thread::new(async move {
            tokio::spawn(others);
            keeper.await;
        });
        Self {
            core,
            commands,
            thread,
        }
    }

    /// Starts the keeper's thread unless it runs.
    ///
    /// # Errors
    ///
    /// When the system gives no thread.
    pub(super) fn start(&self) -> io::Result<()> {
        self.thread.start()
    }

    /// Makes a lease known, before anything is sent for it.
    pub(super) fn register(&self, lease: &Arc<Lease>) {
        self.core.registry.insert(Arc::clone(lease));
    }

    /// The owner of a lease is done with it: releases it if the server may have something of it.
    /// `answer` is told whether it was still held.
    pub(super) fn release(&self, lease: &Arc<Lease>, answer: Option<oneshot::Sender<bool>>) {
        self.core.registry.remove(lease.permit.serial);
        if lease.release() {
            self.send(Command::Release(Arc::clone(lease), answer));
        }
    }

    /// How many releases of a semaphore were answered, roughly: what matters is whether it changes.
    pub(super) fn released(&self, name: &str) -> u64 {
        self.core.released.get(name)
    }

    /// Waits until the releases of a semaphore that are in flight now are completed. Whether there
    /// were any.
    pub(super) async fn settled(&self, name: Arc<str>) -> bool {
        let (answer, settled) = oneshot::channel();
        self.send(Command::Settle(name, answer));
        settled.await.unwrap_or(false)
    }

    /// Releases everything, and returns what it could not by the deadline.
    pub(super) async fn shutdown(&self, deadline: Instant) -> Vec<Arc<Lease>> {
        if !self.thread.has_started() {
            return Vec::new();
        }
        let (answer, rest) = oneshot::channel();
        self.send(Command::Shutdown(deadline, answer));
        rest.await.unwrap_or_default()
    }

    /// A keeper is gone only when its thread has died, and then leases end by themselves.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}
