//! Instants, and the lengths of time that follow from the settings.

use super::policy::OutagePolicy;
use std::time::Duration;

/// An instant of this machine's clock, since it has booted.
pub type Time = Duration;

/// Later than any other time.
pub const FOREVER: Time = Duration::from_secs(u32::MAX as u64);

/// The pause before a command is sent again that a server could not run, or whose slot was reported as moved twice.
pub(super) const PAUSE: Duration = Duration::from_millis(20);

/// The longest tick for which claims wait, however long a lease is.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// The longest time between two polls of a waiter, however long a lease is: a lost message delays a waiter no longer
/// than this.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// How long a semaphore counts as full after an answer that reported it. Longer than the interval between two polls of
/// a waiter. A client that keeps to its limit leaves its key full most of the time, but not always.
pub(super) const FULL_FOR: Duration = Duration::from_secs(10);

/// The longest time between two announcements of this process, however long a lease is: the count of processes, from
/// which shares are computed, is no older than this.
const LONGEST_ANNOUNCEMENT: Duration = Duration::from_secs(5);

/// The longest time between two acquires of a lost lease, however long a lease is.
const LONGEST_ABSENCE: Duration = Duration::from_secs(5);

/// The settings of a core, which never change.
#[derive(Debug, Clone, Default)]
pub struct CoreSettings {
    /// How long a grant lasts without a refresh.
    pub lease: Duration,
    /// How long the answer to a call may take.
    pub timeout: Duration,
    /// The slots of two keys of the store: of the highest time, and of the processes.
    pub slots_of_store: [u16; 2],
    /// The slot of the key in which this process describes itself. `None` if it does not.
    pub slot_of_process: Option<u16>,
    /// True if this process makes claims. Then it counts among the live processes. A process that only sends questions
    /// writes nothing about itself.
    pub claims: bool,
    /// The number of replicas that must have a grant before it counts.
    pub replicas: u32,
    /// Decides claims while their server is unavailable.
    pub policy: OutagePolicy,
}

impl CoreSettings {
    /// How often a lease is refreshed: three times in its length, so that it survives the loss of one.
    pub(super) fn refresh_interval(&self) -> Duration {
        self.lease / 3
    }

    /// Refreshes that are due within one tick are sent together.
    pub(super) fn tick(&self) -> Duration {
        self.refresh_interval() / 16
    }

    /// A tick, but at most a second.
    pub(super) fn short_tick(&self) -> Duration {
        self.tick().min(LONGEST_TICK)
    }

    /// How often a waiter polls. Each poll is a heartbeat.
    pub(super) fn heartbeat(&self) -> Duration {
        (self.lease / 12).min(LONGEST_HEARTBEAT)
    }

    /// How long a waiter counts as alive after a poll: three heartbeats, or one heartbeat plus two timeouts if that is
    /// longer, so that a poll that times out can be sent again.
    pub(super) fn alive(&self) -> Duration {
        (self.heartbeat() * 3).max(self.heartbeat() + self.timeout * 2)
    }

    /// How long before the end of a lease on the server its holder is notified of the loss.
    pub(super) fn margin(&self) -> Duration {
        self.lease / 20
    }

    /// The time until which a lease counts as held, if a call from `sent` makes it last for `lasts` on the server.
    pub(super) fn lease_end(&self, sent: Time, lasts: Duration) -> Time {
        sent + lasts - self.margin().min(lasts / 5)
    }

    /// How long after the end of a lease the holder waits for news from the thread before it treats the permit as lost:
    /// half of the time until the end on the server. So a permit that goes on without its server does not appear lost
    /// in between.
    pub(super) fn lateness(&self) -> Duration {
        self.margin().min(self.alive() / 5) / 2
    }

    /// If a runtime sends and completes no call for this time, the thread takes over its waiting work (rule 17).
    pub(super) fn patience(&self) -> Duration {
        self.timeout / 4
    }

    /// The time between two announcements.
    pub(super) fn announcement(&self) -> Duration {
        self.refresh_interval().min(LONGEST_ANNOUNCEMENT)
    }

    /// The time between two acquires of a lost lease.
    pub(super) fn absence(&self) -> Duration {
        self.refresh_interval().min(LONGEST_ABSENCE)
    }

    /// How long a claim may take in addition to its wait: two calls.
    pub fn call_time(&self) -> Duration {
        self.timeout * 2
    }
}

#[cfg(test)]
mod tests {
    use super::CoreSettings;
    use crate::core::tests::settings;
    use std::time::Duration;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_lengths_of_time_follow_from_the_lease_and_the_timeout() {
        let mut settings = CoreSettings {
            lease: ms(12_000),
            ..settings()
        };
        assert_eq!(settings.heartbeat(), ms(1_000));
        assert_eq!(settings.alive(), ms(3_000));
        assert_eq!(settings.lease_end(ms(0), ms(12_000)), ms(11_400));
        assert_eq!(settings.lease_end(ms(0), ms(1_000)), ms(800));
        assert_eq!(settings.lateness(), ms(300));
        assert_eq!(settings.patience() * 4, ms(250));
        assert_eq!(settings.absence(), ms(4_000));
        settings.timeout = ms(1_500);
        assert_eq!(settings.alive(), ms(4_000));
        settings.lease = ms(120_000);
        assert_eq!(settings.heartbeat(), ms(5_000));
        assert_eq!(settings.lateness(), ms(1_500));
    }
}
