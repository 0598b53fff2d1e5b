//! One permit as this process knows it.

use crate::semaphore::{Loss, Units};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// A permit that was asked for, is held, or is being given back.
///
/// Shared by its holder and the keeper. All times are of this process's monotonic clock, which
/// measures only how long ago something was sent; where leases end is the server's to say.
pub(super) struct Lease {
    /// What its semaphore's keys begin with. Shared with its other permits once the keeper has
    /// brought them together, because a process may hold very many.
    name: Mutex<Arc<str>>,
    pub(super) units: Units,
    pub(super) loss: Loss,
    /// Its number within the process.
    pub(super) serial: u64,
    token: AtomicU64,
    /// Microseconds from the birth of the store until the lease counts as ended.
    deadline: AtomicU64,
    /// The holder is done with it.
    ended: AtomicBool,
    /// An acquire was sent whose answer is not known.
    unsettled: AtomicBool,
    /// The last refresh failed, so that its deadline must be watched.
    troubled: AtomicBool,
    /// It was granted from the line, and lasts only until its owner ceases to count as alive.
    hasty: AtomicBool,
}

impl Lease {
    pub(super) fn new(name: Arc<str>, units: Units, serial: u64) -> Self {
        Self {
            name: Mutex::new(name),
            units,
            loss: Loss::default(),
            serial,
            token: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            unsettled: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            hasty: AtomicBool::new(false),
        }
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes another copy of its own name.
    pub(super) fn share_name(&self, name: &Arc<str>) {
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(name);
    }

    pub(super) fn token(&self) -> u64 {
        self.token.load(Ordering::Acquire)
    }

    /// An acquire is about to be sent.
    pub(super) fn asked(&self) {
        self.ended.store(false, Ordering::Release);
        self.unsettled.store(true, Ordering::Release);
    }

    /// The acquire that was sent, was refused or did not reach the server.
    pub(super) fn refused(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// The acquire that was sent got a place in the line.
    pub(super) fn waits(&self) {
        self.unsettled.store(false, Ordering::Release);
    }

    /// The acquire was granted.
    pub(super) fn granted(&self, token: u64, deadline: u64) {
        self.token.store(token, Ordering::Release);
        self.unsettled.store(false, Ordering::Release);
        self.renewed(deadline);
    }

    /// A message says that it was granted from the line.
    pub(super) fn granted_hastily(&self, token: u64, deadline: u64) {
        self.granted(token, deadline);
        self.hasty.store(true, Ordering::Release);
    }

    /// Whether it must be refreshed soon.
    pub(super) fn is_hasty(&self) -> bool {
        self.hasty.load(Ordering::Acquire)
    }

    /// The server has it until the new deadline at least.
    pub(super) fn renewed(&self, deadline: u64) {
        self.deadline.store(deadline, Ordering::Release);
        self.hasty.store(false, Ordering::Release);
        self.troubled.store(false, Ordering::Release);
        self.loss.clear();
    }

    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Acquire)
    }

    pub(super) fn is_past(&self, now: u64) -> bool {
        now >= self.deadline.load(Ordering::Acquire)
    }

    /// Whether a refresh has failed since the last good one.
    pub(super) fn is_troubled(&self) -> bool {
        self.troubled.load(Ordering::Acquire)
    }

    /// Says so, and whether that is new.
    pub(super) fn trouble(&self) -> bool {
        !self.troubled.swap(true, Ordering::AcqRel)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The holder is done with it: whether that is new.
    pub(super) fn end(&self) -> bool {
        !self.ended.swap(true, Ordering::AcqRel)
    }

    /// The ids under which the server knows its units.
    pub(super) fn members<'a>(
        &'a self,
        process: &'a str,
        lease_ms: u64,
    ) -> impl Iterator<Item = Member<'a>> {
        (1..=self.units.weight).map(move |unit| Member {
            unit,
            ..self.id(process, lease_ms)
        })
    }

    /// The id of the permit, which is that of its first unit.
    pub(super) fn id<'a>(&'a self, process: &'a str, lease_ms: u64) -> Member<'a> {
        Member {
            lease: self,
            process,
            lease_ms,
            unit: 1,
        }
    }
}

/// The id of one unit: `PROCESS.SERIAL.LIMIT.WEIGHT.LEASE`, and `:UNIT` after the first. It tells
/// all that another process's script needs to grant it.
pub(super) struct Member<'a> {
    lease: &'a Lease,
    process: &'a str,
    lease_ms: u64,
    unit: u32,
}

impl fmt::Display for Member<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (process, lease_ms) = (self.process, self.lease_ms);
        let Units { limit, weight } = self.lease.units;
        let serial = self.lease.serial;
        write!(f, "{process}.{serial:x}.{limit}.{weight}.{lease_ms}")?;
        match self.unit {
            1 => Ok(()),
            unit => write!(f, ":{unit}"),
        }
    }
}

/// Lengths of time that follow from the lease.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    birth: Instant,
    pub(super) lease: Duration,
}

/// Turns of the keeper in a beat: each refreshes this part of what is held.
pub(super) const TURNS: u32 = 16;

impl Times {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            birth: Instant::now(),
            lease,
        }
    }

    /// How often a lease is refreshed: three times in its length, so that it survives the loss of
    /// one refresh.
    pub(super) fn beat(&self) -> Duration {
        self.lease / 3
    }

    /// How often the keeper looks.
    pub(super) fn turn(&self) -> Duration {
        self.beat() / TURNS
    }

    /// How long a waiter counts as alive without a further word: three looks.
    pub(super) fn alive(&self) -> Duration {
        self.look() * 3
    }

    /// How often a waiter looks whether it was granted and nobody told it. A dead one holds the
    /// line up for four of these at most, which is a beat.
    pub(super) fn look(&self) -> Duration {
        self.beat() / 4
    }

    /// How long before the server's end of a lease its holder is told: more than two turns, so
    /// that the keeper is never late.
    fn margin(&self) -> Duration {
        self.lease / 20
    }

    pub(super) fn now(&self) -> u64 {
        self.micros(Instant::now())
    }

    /// Until when a lease counts as live whose acquire or refresh was sent at `sent`.
    pub(super) fn deadline(&self, sent: Instant) -> u64 {
        self.micros(sent + self.lease - self.margin())
    }

    /// Until when a grant from the line counts as live whose waiter last looked at `looked`.
    pub(super) fn hasty_deadline(&self, looked: Instant) -> u64 {
        self.micros(looked + self.alive() - self.margin())
    }

    fn micros(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.birth).as_micros() as u64
    }
}
