//! What is known of a server, and what waits to be sent to it.

use super::{
    health::Health,
    id::{DebtId, LeaseRef, RuntimeId},
    lane::{FEW, MORE, MOST},
    time::{Settings, Time},
};
use std::{
    collections::{BTreeSet, VecDeque},
    ops::Range,
    time::Duration,
};

/// What has become of servers, and of a runtime's connection to one.
#[derive(Debug, Clone)]
pub enum Change {
    Connected(RuntimeId, usize),
    /// A new connection has replaced a mute one. Calls that were sent over the old one may still run.
    Replaced(RuntimeId, usize),
    /// Calls in flight fail one by one.
    Gone(RuntimeId, usize),
    /// These slots are on that server.
    Slots(Vec<(Range<usize>, usize)>),
    /// No connection was made.
    NotConnected {
        server: usize,
        /// True if the server refused it, for example because of a wrong password.
        is_denied: bool,
    },
}

/// How long the release of a key that is not full waits for a call that can include it. The thread's timers count full
/// milliseconds, so without such a call 1.2 to 2.4 ms pass.
const RIDE: Duration = Duration::from_micros(250);

/// A lower sample moves the estimate by one part in so many, so that the estimate follows drift and
/// slow answers hardly change it.
const WEIGHT: i64 = 256;

#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) health: Health,
    /// The server's clock less ours, microseconds: a lower bound.
    offset: Option<i64>,
    /// When the last call was sent that has not found a lease, or messages were lost.
    pub(super) lost_before: Time,
    /// When this process announces itself again. `None`: there is no connection, or it waits to be
    /// sent, or is in flight.
    pub(super) presence_at: Option<Time>,
    /// Whether it is asked once more when an announcement on its way is answered: a key has come to it since.
    pub(super) is_asked_again: bool,
    /// Whether the announcement waits to be sent.
    pub(super) announces: bool,
    /// Whether it has refused a connection since a call was done.
    pub(super) is_denied: bool,
    /// The debts whose release waits to be sent.
    pub(super) releases: VecDeque<DebtId>,
    /// When releases are sent that no call has included.
    pub(super) release_at: Option<Time>,
    /// True if the first runtime that enters the core should send the releases.
    pub(super) releases_now: bool,
    /// By the end of the lease.
    pub(super) refreshes: BTreeSet<(Time, LeaseRef)>,
    pub(super) polls: VecDeque<LeaseRef>,
}

impl Server {
    /// Whether no process can have taken it for unavailable, and acts on that yet.
    pub(super) fn is_well(&self, now: Time, settings: &Settings) -> bool {
        !self.is_denied && self.health.is_well(now, settings)
    }

    // Its clock. Every answer carries the server's time, which its script read before the answer arrived. So
    // the server's clock stands at that time plus what has passed since, at least.

    /// Takes the server's time, in ms, from the answer to a call that was sent then, and has just arrived. An estimate
    /// that is too high even for a server that has answered at once is from before its clock was set back.
    pub(super) fn observe(&mut self, server_ms: u64, (sent, now): (Time, Time)) {
        let time = server_ms as i64 * 1_000;
        let (sample, highest) = (time - micros(now), time + 1_000 - micros(sent));
        self.offset = Some(match self.offset {
            Some(old) if sample < old && old <= highest => old - (old - sample) / WEIGHT,
            _ => sample,
        });
    }

    pub(super) fn is_known(&self) -> bool {
        self.offset.is_some()
    }

    /// What its clock shows then at the earliest, ms.
    pub(super) fn at(&self, then: Time) -> u64 {
        (self.offset.unwrap_or_default() + micros(then)).max(0) as u64 / 1_000
    }

    // What waits.

    /// A release waits for a call that it can ride on.
    pub(super) fn release(&mut self, now: Time, debt: DebtId, is_urgent: bool) {
        self.releases.push_back(debt);
        let by = if is_urgent { now } else { now + RIDE };
        self.releases_now |= is_urgent;
        self.release_at = Some(self.release_at.map_or(by, |other| other.min(by)));
    }

    /// How many calls of the thread may be in flight when another one leaves.
    pub(super) fn most_calls(&self) -> usize {
        match (self.refreshes.is_empty(), self.releases_now) {
            (false, _) => MOST,
            (true, true) => MORE,
            (true, false) => FEW,
        }
    }

    /// All releases that waited have left.
    pub(super) fn carried(&mut self) {
        if self.releases.is_empty() {
            (self.release_at, self.releases_now) = (None, false);
        }
    }

    pub(super) fn timer(&self) -> Option<Time> {
        let release = self.release_at.filter(|_| !self.releases_now);
        release.into_iter().chain(self.presence_at).min()
    }

    /// Its time has come.
    pub(super) fn pass(&mut self, now: Time) {
        if self.release_at.is_some_and(|at| at <= now) {
            self.releases_now = true;
        }
        if self.presence_at.is_some_and(|at| at <= now) {
            (self.announces, self.presence_at) = (true, None);
        }
    }
}

/// The highest time that any server has shown to any process, less our clock then, in microseconds. So tokens grow when
/// a clock is set back, and when a semaphore moves to a server whose clock is behind.
#[derive(Debug, Default)]
pub(super) struct Highest(i64);

impl Highest {
    pub(super) fn raise(&mut self, micros_then: u64, now: Time) {
        self.0 = self.0.max(micros_then as i64 - micros(now));
    }

    /// What the clock that was ahead would show now.
    pub(super) fn floor(&self, now: Time) -> u64 {
        (self.0 + micros(now)).max(0) as u64
    }
}

fn micros(time: Time) -> i64 {
    time.as_micros() as i64
}
