//! The permits and the waiting claims of one key, as operators see them.

use super::{fair::FairTurn, units::HeldUnits};
use crate::{
    semaphore::{Claim, Loss, Permit, PermitInfo, Policy, Process, Units, WeakPermit},
    sync::{Mutex, OnceLock, RandomState},
};
use std::{
    hash::BuildHasher,
    sync::{Arc, atomic::AtomicI64},
    time::{Duration, SystemTime},
};
use tokio::{sync::Notify, time::Instant};

/// An instant, and the system time that a store's clock assigns to it. Other times are computed from the pair by
/// Tokio's clock, which a test can pause.
#[derive(Clone, Copy)]
pub(super) struct Now {
    instant: Instant,
    pub(super) system: SystemTime,
}

impl Now {
    fn read() -> Self {
        // Read in this order, so that nothing is shown as older than it is.
        let instant = Instant::now();
        let system = SystemTime::now();
        Self { instant, system }
    }

    /// The system time of another instant, if it is representable.
    pub(super) fn at(self, instant: Instant) -> Option<SystemTime> {
        match instant.checked_duration_since(self.instant) {
            Some(later) => self.system.checked_add(later),
            None => self.system.checked_sub(self.instant - instant),
        }
    }
}

/// The clock of a store. It assigns the same system time to an instant every time, until the system's clock differs
/// from it by a second.
pub(super) struct Clock(Mutex<Now>);

impl Clock {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Now::read()))
    }

    pub(super) fn now(&self) -> Now {
        const TOLERANCE: Duration = Duration::from_secs(1);
        let mut now = Now::read();
        let mut last = self.0.lock();
        let assigned = last.at(now.instant).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_near =
            |one: SystemTime, other| one.duration_since(other).is_ok_and(|by| by < TOLERANCE);
        if is_near(now.system, assigned) || is_near(assigned, now.system) {
            now.system = assigned;
        } else {
            *last = now;
        }
        now
    }
}

/// A claim and its permit, as operators see them. The details may outlive the claim, so they omit the key and keep the
/// flow in compact form.
pub(super) struct Details {
    /// Unique within the store.
    pub(super) serial: u64,
    pub(super) policy: Policy,
    pub(super) units: Units,
    label: Option<Box<str>>,
    pub(super) turn: FairTurn,
    /// The waiter's rank in the queue. Accessed only under the shard's lock, so relaxed ordering is enough.
    pub(super) rank: AtomicI64,
    since: Instant,
    /// True if the permit is listed.
    is_listed: bool,
    /// The units that the permit holds, if it is listed.
    pub(super) held: HeldUnits,
    /// The loss of the request. The details of all of its claims share it.
    pub(super) loss: Arc<Loss>,
    /// Notified when the key of a waiter is paused, and when the head of a budget's queue should look at it.
    pub(super) changed: Notify,
    /// The permit that this claim is a level of, and the number of that level. Set once the request has the permit.
    permit: OnceLock<(WeakPermit, usize)>,
}

impl Details {
    pub(super) fn new(claim: &Claim, serial: u64, is_listed: bool, loss: &Arc<Loss>) -> Arc<Self> {
        let units = claim.checked_units();
        Arc::new(Self {
            serial,
            policy: claim.policy().clone(),
            units,
            label: claim.label().map(Into::into),
            turn: FairTurn::new(claim),
            rank: AtomicI64::new(0),
            since: Instant::now(),
            is_listed,
            held: HeldUnits::new(units.weight),
            loss: Arc::clone(loss),
            changed: Notify::new(),
            permit: OnceLock::default(),
        })
    }

    /// Returns the details if the permit is listed.
    pub(super) fn listed(self: &Arc<Self>) -> Option<&Arc<Self>> {
        Some(self).filter(|details| details.is_listed)
    }

    /// Records the request's permit, and the number of this claim's level in it.
    pub(super) fn link(&self, permit: &Permit, level: usize) {
        self.permit.get_or_init(|| (permit.downgrade(), level));
    }

    /// Notifies the holder, or the request that still waits, that an operator has revoked the claim.
    pub(super) fn notify_revoked(&self) {
        let linked = self.permit.get();
        let permit = linked.and_then(|(permit, level)| Some((permit.upgrade()?, *level)));
        match permit {
            Some((permit, level)) => permit.level(level).revoked(),
            None => self.loss.set(),
        }
    }

    fn info(&self, units: Units, now: Now) -> PermitInfo {
        let (id, process) = (id(self.serial), Process::current());
        let since = now.at(self.since).unwrap_or(now.system);
        let mut info = PermitInfo::new(id, process, units.weight, units.limit, since);
        info.window = units.budget.map(|budget| budget.window.time());
        info.settled = units.budget.and_then(|_| self.held.settled().total());
        info.label = self.label.as_deref().map(ToOwned::to_owned);
        info.flow = self.turn.flow().map(Into::into);
        info
    }
}

/// The first serial of a store: random, so that ids of another store, or from before a restart,
/// match nothing here.
pub(super) fn first_serial() -> u64 {
    1 + (RandomState::new().hash_one(0) >> 1)
}

/// The id of a claim for operators.
fn id(serial: u64) -> String {
    format!("{serial:x}")
}

/// The serial of an id, if the text is one.
pub(super) fn serial_of(text: &str) -> Option<u64> {
    let serial = u64::from_str_radix(text, 16).ok()?;
    (id(serial) == text).then_some(serial)
}

/// A permit with the units it has, or a waiting claim with the units it waits for, and the limit they are under.
pub(super) type Listed = (Arc<Details>, Units);

/// Converts listed permits and claims to the form that operators see.
pub(super) fn infos(listed: &[Listed], now: Now) -> Vec<PermitInfo> {
    let infos = listed
        .iter()
        .map(|(details, units)| details.info(*units, now));
    infos.collect()
}
