//! The permits of one key and their claims, as operators see them.

use crate::{
    semaphore::{Claim, Label, Permit, PermitInfo, Process, WeakPermit},
    sync::{AtomicBool, Mutex, RandomState},
};
use std::{
    collections::BTreeMap,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Release},
    },
    time::{Duration, SystemTime},
};
use tokio::time::Instant;

/// The system time that a store's clock assigns to an instant. Ages follow Tokio's clock, which a
/// test can pause.
#[derive(Clone, Copy)]
struct Reading {
    instant: Instant,
    system: SystemTime,
}

impl Reading {
    fn now() -> Self {
        // Read in this order, so that ages are never overstated.
        let instant = Instant::now();
        let system = SystemTime::now();
        Self { instant, system }
    }

    /// The system time of another instant, if it is representable.
    fn at(self, instant: Instant) -> Option<SystemTime> {
        match instant.checked_duration_since(self.instant) {
            Some(later) => self.system.checked_add(later),
            None => self.system.checked_sub(self.instant - instant),
        }
    }
}

/// The clock of a store. It assigns the same system time to an instant each time, until the
/// system's clock differs by a second.
pub(super) struct Clock(Mutex<Reading>);

impl Clock {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Reading::now()))
    }

    pub(super) fn now(&self) -> Now {
        const APART: Duration = Duration::from_secs(1);
        let now = Reading::now();
        let mut last = self.0.lock();
        let said = last.at(now.instant).unwrap_or(SystemTime::UNIX_EPOCH);
        let is_near = |one: SystemTime, other| one.duration_since(other).is_ok_and(|by| by < APART);
        if !is_near(now.system, said) && !is_near(said, now.system) {
            *last = now;
        }
        Now {
            instant: now.instant,
            clock: *last,
        }
    }
}

/// Now, by the clock of a store.
#[derive(Clone, Copy)]
pub(super) struct Now {
    instant: Instant,
    clock: Reading,
}

impl Now {
    pub(super) fn shown(self) -> SystemTime {
        self.shown_at(self.instant)
    }

    fn shown_at(self, instant: Instant) -> SystemTime {
        self.clock.at(instant).unwrap_or(self.clock.system)
    }
}

/// The details of a claim for operators.
#[derive(Debug)]
pub(super) struct Details {
    /// Unique within the store.
    serial: u64,
    label: Option<Label>,
    since: Instant,
    limit: u32,
    weight: u32,
    /// Whether its permit is listed.
    is_listed: bool,
    /// Set under the queue's lock when an operator revokes the claim there.
    is_revoked: AtomicBool,
}

impl Details {
    pub(super) fn new(claim: &Claim, serial: u64, is_listed: bool) -> Arc<Self> {
        Arc::new(Self {
            serial,
            label: claim.label.clone(),
            since: Instant::now(),
            limit: claim.limit().unwrap_or_default(),
            weight: claim.weight(),
            is_listed,
            is_revoked: AtomicBool::new(false),
        })
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    pub(super) fn revoke(&self) {
        self.is_revoked.store(true, Release);
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.is_revoked.load(Acquire)
    }

    /// The info of a claim without a permit yet.
    pub(super) fn info(&self, now: Now) -> PermitInfo {
        self.with_weight(self.weight, now)
    }

    fn with_weight(&self, weight: u32, now: Now) -> PermitInfo {
        let (id, process) = (id(self.serial), Process::current());
        let since = now.shown_at(self.since);
        let mut info = PermitInfo::new(id, process, weight, self.limit, since);
        info.label = self.label.as_ref().map(ToString::to_string);
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

/// The permits of a key, if the store lists them.
#[derive(Default)]
pub(super) struct Holders(Mutex<Vec<Holding>>);

struct Holding {
    details: Arc<Details>,
    token: Option<u64>,
    permit: WeakPermit,
}

impl Holders {
    pub(super) fn add(&self, details: Arc<Details>, permit: &Permit) {
        let (token, permit) = (permit.token(), permit.downgrade());
        let holding = Holding {
            details,
            token,
            permit,
        };
        self.0.lock().push(holding);
    }

    /// Forgets the permit of this token, if it is here.
    pub(super) fn forget(&self, token: Option<u64>) {
        self.take(|holding| holding.token == token);
    }

    /// Forgets a permit. Returns it, if it was here and still exists.
    pub(super) fn remove(&self, serial: u64) -> Option<Permit> {
        let found = self.take(|holding| holding.details.serial == serial);
        found?.permit.upgrade()
    }

    fn take(&self, is_it: impl Fn(&Holding) -> bool) -> Option<Holding> {
        let mut holdings = self.0.lock();
        let at = holdings.iter().position(is_it)?;
        Some(holdings.swap_remove(at))
    }

    /// The permits held now, each with its units. Drop them outside of locks: each may be the last
    /// clone, whose drop locks.
    pub(super) fn all(&self) -> Vec<Listed> {
        let holdings = self.0.lock();
        let listed = |holding: &Holding| {
            let permit = holding.permit.upgrade()?;
            let details = Arc::clone(&holding.details);
            Some((details, permit.weight(), permit))
        };
        holdings.iter().filter_map(listed).collect()
    }
}

/// A permit and its units.
type Listed = (Arc<Details>, u32, Permit);

/// The infos of permits and of granted claims. A claim may be in both lists, if its permit was just
/// made.
pub(super) fn infos(permits: &[Listed], granted: &[Arc<Details>], now: Now) -> Vec<PermitInfo> {
    let with_permit = permits.iter().map(|(details, weight, _)| {
        let info = (*weight > 0).then(|| details.with_weight(*weight, now));
        (details.serial, info)
    });
    let granted = granted
        .iter()
        .map(|details| (details.serial, Some(details.info(now))));
    // Ordered by serial, without duplicates.
    let infos: BTreeMap<_, _> = granted.chain(with_permit).collect();
    infos.into_values().flatten().collect()
}
