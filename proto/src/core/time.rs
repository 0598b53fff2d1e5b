//! Instants, and the lengths of time that follow from the settings.

use super::policy::OutagePolicy;
use std::time::Duration;

/// An instant of this machine's clock, since it has booted.
pub type Time = Duration;

/// After all that is to come.
pub const FOREVER: Time = Duration::from_secs(u32::MAX as u64);

/// The pause before a command is sent again that a server could not run, or whose slot was reported as moved twice.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The longest tick where claims wait for it, whatever the lease.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// The longest time between two polls of a waiter, whatever the lease: a lost message delays a waiter
/// no longer than this.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// How long a semaphore counts as full after an answer that reported it. Longer than the interval between two polls of
/// a waiter. A client that keeps to its limit leaves its key full most of the time, but not always.
pub(super) const FULL_FOR: Duration = Duration::from_secs(10);

/// The longest time between two calls that announce this process, whatever the lease: shares are
/// computed from a count of processes that is no older.
const LONGEST_ANNOUNCEMENT: Duration = Duration::from_secs(5);

/// The longest time between two tries of a lost lease to come back, whatever the lease.
const LONGEST_ABSENCE: Duration = Duration::from_secs(5);

/// What a core is told at the start.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How long a grant lasts without a refresh.
    pub lease: Duration,
    /// How long the answer to a call may take.
    pub timeout: Duration,
    /// The slots of the store's keys: of the highest time, and of the processes.
    pub slots_of_store: [u16; 2],
    /// The slot in which this process says who it is. `None`: it does not.
    pub slot_of_process: Option<u16>,
    /// Whether it claims, and so counts among the processes that are alive. One that does not writes nothing of itself.
    pub claims: bool,
    /// How many replicas must have a grant before it counts.
    pub replicas: u32,
    /// What becomes of claims while one is unavailable.
    pub policy: OutagePolicy,
}

impl Settings {
    /// How often a lease is refreshed: three times in its length, so that it survives the loss of one.
    pub(super) fn refresh_interval(&self) -> Duration {
        self.lease / 3
    }

    /// Refreshes of one tick travel together.
    pub(super) fn tick(&self) -> Duration {
        self.refresh_interval() / 16
    }

    /// A tick, however long the lease is.
    pub(super) fn short_tick(&self) -> Duration {
        self.tick().min(LONGEST_TICK)
    }

    /// How often a waiter polls. Each poll is a heartbeat.
    pub(super) fn heartbeat(&self) -> Duration {
        (self.lease / 12).min(LONGEST_HEARTBEAT)
    }

    /// How long a waiter counts as alive after a poll: three heartbeats, but at least one and two timeouts,
    /// so that a poll that times out can be sent again.
    pub(super) fn alive(&self) -> Duration {
        (self.heartbeat() * 3).max(self.heartbeat() + self.timeout * 2)
    }

    /// How long before the server's end of a lease its holder is told that it is lost.
    pub(super) fn margin(&self) -> Duration {
        self.lease / 20
    }

    /// Until when a lease counts as held if what was sent then lasts so long on the server.
    pub(super) fn held_until(&self, sent: Time, lasts: Duration) -> Time {
        sent + lasts - self.margin().min(lasts / 5)
    }

    /// How late the thread may be with an end before a holder goes by the clock: half of what is left until the server's
    /// own. So a permit that goes on without its server is not taken for lost in between.
    pub(super) fn lateness(&self) -> Duration {
        self.margin().min(self.alive() / 5) / 2
    }

    /// How long claims and releases wait while no call of their runtime leaves or comes back (rule 17). Then the thread sends
    /// them.
    pub(super) fn patience(&self) -> Duration {
        self.timeout / 4
    }

    pub(super) fn announcement(&self) -> Duration {
        self.refresh_interval().min(LONGEST_ANNOUNCEMENT)
    }

    /// How long a lost lease waits before it tries to come back once more.
    pub(super) fn absence(&self) -> Duration {
        self.refresh_interval().min(LONGEST_ABSENCE)
    }

    /// How long a claim may take beside its wait: a call, and a second one.
    pub fn budget(&self) -> Duration {
        self.timeout * 2
    }
}
