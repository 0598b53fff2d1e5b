//! The lengths of time that follow from the settings, and an estimate of the server's clock.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Lengths of time that follow from the lease and the timeout, and this process's own clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Nothing was sent before.
    pub(super) birth: Instant,
    pub(super) lease: Duration,
    pub(super) timeout: Duration,
}

/// Slots of the refresh schedule. The permits of a slot are refreshed once per refresh interval. As
/// many, so that two ticks are shorter than the [margin](Times::margin) of a lease.
pub(super) const SLOTS: u32 = 16;

/// The longest time between two ticks of the keeper, whatever the lease.
const LONGEST_TICK: Duration = Duration::from_secs(1);

/// The longest time between two polls of a waiter, whatever the lease: a lost message delays a waiter
/// no longer than this.
const LONGEST_HEARTBEAT: Duration = Duration::from_secs(5);

/// The longest time between two calls that announce this process, whatever the lease: shares are
/// computed from a count of processes that is no older. A thousand processes make 200 such calls/s.
const LONGEST_ANNOUNCEMENT: Duration = Duration::from_secs(5);

/// The longest time between two acquires of a permit that is lost or degraded, whatever the lease: until
/// it has a place again its owner goes on beside the limit.
const LONGEST_ABSENCE: Duration = Duration::from_secs(5);

/// How long connecting may take.
pub(super) const CONNECT: Duration = Duration::from_secs(1);

/// How long callers are refused after an attempt to connect has failed.
pub(super) const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The cap of a duration that is added to an instant, so that the sum cannot overflow.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Times {
    pub(super) fn new(lease: Duration, timeout: Duration) -> Self {
        Self {
            birth: Instant::now(),
            lease,
            timeout,
        }
    }

    /// How long calls to the server may be used for one claim: a call and one retry.
    pub(super) fn budget(&self) -> Duration {
        self.timeout * 2
    }

    /// How often a lease is refreshed: three times in its length, so that a lease survives the loss
    /// of one refresh.
    pub(super) fn refresh_interval(&self) -> Duration {
        self.lease / 3
    }

    /// How long after one slot of the refresh schedule the next is due.
    pub(super) fn slot_interval(&self) -> Duration {
        self.refresh_interval() / SLOTS
    }

    /// How often the keeper ticks.
    pub(super) fn tick(&self) -> Duration {
        self.slot_interval().min(LONGEST_TICK)
    }

    /// How often this process announces itself, and is told how many there are.
    pub(super) fn announcement_interval(&self) -> Duration {
        self.refresh_interval().min(LONGEST_ANNOUNCEMENT)
    }

    /// How often lost and degraded permits are acquired again, if that is more often than leases are
    /// refreshed.
    pub(super) fn reacquire_interval(&self) -> Option<Duration> {
        (self.refresh_interval() > LONGEST_ABSENCE).then_some(LONGEST_ABSENCE)
    }

    /// The least time that a call has to have left when it is sent. With less it would mostly end without an
    /// answer, which counts as a failure of its server.
    pub(super) fn least(&self) -> Duration {
        self.timeout / 4
    }

    /// How often a waiter polls. Each poll is a heartbeat.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        (self.lease / 12).min(LONGEST_HEARTBEAT)
    }

    /// How long a waiter counts as alive after a heartbeat: three intervals, but at least an interval
    /// and two timeouts, so that a heartbeat that times out can be sent again.
    pub(super) fn alive(&self) -> Duration {
        let retried = self.heartbeat_interval() + self.timeout * 2;
        retried.max(self.heartbeat_interval() * 3)
    }

    /// How long before the server's end of a lease its permit is reported lost. More than
    /// two ticks, so that the keeper is never late.
    fn margin(&self) -> Duration {
        self.lease / 20
    }

    /// Microseconds from the store's creation until now.
    pub(super) fn now(&self) -> u64 {
        self.micros(Instant::now())
    }

    /// Until when a lease counts as held if its acquire or refresh was sent at `sent`.
    pub(super) fn held_until(&self, sent: Instant) -> u64 {
        self.micros(sent + self.lease - self.margin())
    }

    /// Until when a grant from the queue counts as held if the waiter's last heartbeat was sent at
    /// `sent`.
    pub(super) fn provisional_until(&self, sent: Instant) -> u64 {
        self.micros(sent + self.alive() - self.margin().min(self.alive() / 5))
    }

    pub(super) fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.birth).as_micros() as u64
    }
}

/// The instant `time` from now, capped at one year to avoid overflow.
pub(super) fn after(time: Duration) -> Instant {
    at(Instant::now(), time)
}

/// The instant `time` after another one, capped likewise.
pub(super) fn at(start: Instant, time: Duration) -> Instant {
    start + time.min(YEAR)
}

/// An estimate of the server's clock: a lower bound of its time now, and the highest time that the
/// clock has ever shown.
///
/// Every answer of a script carries the server's time. The script read it before the answer
/// arrived, so the server's clock stands at that time plus what has passed since, at least.
#[derive(Debug)]
pub(super) struct ServerClock {
    times: Times,
    /// The server's time less this process's, in microseconds.
    offset: AtomicI64,
    /// The highest server time seen less this process's time then, in microseconds.
    highest: AtomicI64,
}

/// A sample that is lower than the estimate by more than this, in microseconds, comes from a clock
/// that was set back. It cannot come from a slow answer, because no call waits that long.
const STEP: i64 = 2_000_000;

/// A lower sample moves the estimate by one part in so many, so that the estimate follows drift and
/// slow answers hardly change it.
const WEIGHT: i64 = 256;

impl ServerClock {
    pub(super) fn new(times: Times) -> Self {
        Self {
            times,
            offset: AtomicI64::new(UNKNOWN),
            highest: AtomicI64::new(0),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.offset.load(Ordering::Relaxed) != UNKNOWN
    }

    /// Takes the server's time, in ms, from an answer that has just arrived.
    pub(super) fn observe(&self, server_ms: u64) {
        let sample = server_ms as i64 * 1_000 - self.times.now() as i64;
        self.highest.fetch_max(sample, Ordering::Relaxed);
        let old = self.offset.load(Ordering::Relaxed);
        // Of two concurrent observations one may be lost. The next one corrects the estimate.
        self.offset.store(estimate(old, sample), Ordering::Relaxed);
    }

    /// Takes the highest server time that any process has seen, in microseconds.
    pub(super) fn raise(&self, highest: u64) {
        let sample = highest as i64 - self.times.now() as i64;
        self.highest.fetch_max(sample, Ordering::Relaxed);
    }

    /// The server's time at `at`, at the earliest, in ms.
    pub(super) fn at(&self, at: Instant) -> u64 {
        let offset = self.offset.load(Ordering::Relaxed);
        let micros = offset.saturating_add(self.times.micros(at) as i64);
        micros.max(0) as u64 / 1_000
    }

    /// The server's time now, in ms; if no answer has told it yet, this machine's.
    pub(super) fn now_ms(&self) -> u64 {
        if self.is_known() {
            return self.at(Instant::now());
        }
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
        since_epoch.unwrap_or_default().as_millis() as u64
    }

    /// The time that the server would show now if its clock had never been set back, in
    /// microseconds. The first token of a key is at least this high.
    pub(super) fn floor(&self) -> u64 {
        let highest = self.highest.load(Ordering::Relaxed) + self.times.now() as i64;
        highest.max(0) as u64
    }
}

const UNKNOWN: i64 = i64::MIN;

/// The next estimate of the offset. The highest recent sample is the best, because answers can only be
/// late, unless the clock was set back.
fn estimate(old: i64, sample: i64) -> i64 {
    if old == UNKNOWN || sample >= old || old - sample > STEP {
        return sample;
    }
    old - (old - sample) / WEIGHT
}

#[cfg(test)]
mod tests;
