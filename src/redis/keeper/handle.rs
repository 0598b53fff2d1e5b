//! The handle through which a store uses its keeper.

use super::{
    core::Core,
    task::{self, Command},
    thread::Thread,
};
use crate::redis::{
    clock::Times, dispatch::Attempts, lease::Lease, notify::Notifications, outage::Outage,
};
use std::{io, sync::Arc, time::Instant};
use tokio::sync::{mpsc, oneshot};

/// See the [module docs](super).
pub(in crate::redis) struct Keeper {
    core: Arc<Core>,
    commands: mpsc::UnboundedSender<Command>,
    thread: Thread,
}

impl Keeper {
    /// A keeper that runs once it is [started](Self::start), together with `others`. The keeper ends
    /// after this handle is dropped and all pending releases are done.
    pub(in crate::redis) fn new(
        attempts: &Arc<Attempts>,
        times: Times,
        outage: &Arc<Outage>,
        (notifications, revoked): (Arc<Notifications>, mpsc::UnboundedReceiver<u64>),
        others: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let outage = Arc::clone(outage);
        let core = Core::new(Arc::clone(attempts), times, outage, notifications);
        let core = Arc::new(core);
        let attempts = Arc::clone(attempts);
        let (commands, received) = mpsc::unbounded_channel();
        let keeper = task::run(Arc::clone(&core), received, revoked);
        let thread = Thread::new(async move {
            let others = tokio::spawn(others);
            keeper.await;
            others.abort();
            // A failure is ignored: the process ceases to count when its lease ends.
            let _ = attempts
                .protocol
                .leave(Instant::now() + times.timeout)
                .await;
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
    /// When the system cannot start a thread.
    pub(in crate::redis) fn start(&self) -> io::Result<()> {
        self.thread.start()
    }

    /// Makes a lease known, before anything is sent for it.
    pub(in crate::redis) fn register(&self, lease: &Arc<Lease>) {
        self.core.registry.insert(Arc::clone(lease));
    }

    /// Releases a lease, with a command to the server if the server may hold anything of the lease.
    /// `answer` receives whether the lease was still held.
    pub(in crate::redis) fn release(
        &self,
        lease: &Arc<Lease>,
        answer: Option<oneshot::Sender<bool>>,
    ) {
        let is_adopted = !self.core.registry.remove(lease.serial);
        let was_degraded = is_adopted && lease.is_degraded();
        let is_sent = lease.release();
        self.core.outage.released(lease);
        if is_sent {
            self.send(Command::Release(Arc::clone(lease), answer));
        } else if was_degraded {
            self.send(Command::Forget);
        }
    }

    /// A counter that changes whenever a release of the semaphore is answered. Semaphores may share
    /// one.
    pub(in crate::redis) fn released(&self, name: &str) -> u64 {
        self.core.released.get(name)
    }

    /// Waits until the releases of a semaphore that are in flight now are completed. Returns
    /// whether there were any.
    pub(in crate::redis) async fn settled(&self, name: Arc<str>) -> bool {
        let (answer, settled) = oneshot::channel();
        self.send(Command::Settle(name, answer));
        settled.await.unwrap_or(false)
    }

    /// Releases everything, and returns what could not be released by the deadline.
    pub(in crate::redis) async fn shutdown(&self, deadline: Instant) -> Vec<Arc<Lease>> {
        if !self.thread.has_started() {
            return Vec::new();
        }
        let (answer, rest) = oneshot::channel();
        self.send(Command::Shutdown(deadline, answer));
        rest.await.unwrap_or_default()
    }

    /// An error is ignored: the receiver is gone only if the keeper's thread has died, and then the
    /// leases end without it.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}
