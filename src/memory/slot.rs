//! One key's count, without a lock as long as nobody waits.
//!
//! Two numbers that only grow: units taken, and units given back. Their difference is held.
//! Whoever takes moves the first from a value that has not changed since the second was read, so
//! that what it saw as held was an upper bound at worst. The first is a token as well: each permit
//! moves it.

use super::{
    Name,
    line::{Line, Place, Taken},
    shard::Shard,
};
use crate::semaphore::{AcquireError, Units};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire},
    },
};

/// In both numbers: somebody waits, and only who has locked the line may take.
const LINE: u64 = 1 << 63;
/// In what was taken: the slot is no longer that of its key.
const RETIRED: u64 = 1 << 62;
const FLAGS: u64 = LINE | RETIRED;

/// What is held of one key, and who waits for it.
///
/// A count is as good as a set here: a permit of this process cannot be lost without its drop.
///
/// What changes lies together, and next to the counts of its `Arc`: a pair moves few cache lines.
#[repr(C)]
pub(super) struct Slot {
    taken: AtomicU64,
    given: AtomicU64,
    /// Where it is to be forgotten as soon as it is idle, if it is. That ends the circle, too.
    crowd: Option<Arc<Shard>>,
    line: Mutex<Line>,
    pub(super) name: Name,
}

/// Why a slot gave nothing.
#[derive(Clone, Copy)]
pub(super) enum Refusal {
    /// Ask the slot that the key has now.
    Retired,
    /// There is no room, or somebody waits; so much is held.
    Full(u32),
}

impl Slot {
    /// A slot whose tokens are greater than `last`.
    pub(super) fn new(name: Name, last: u64, crowd: Option<Arc<Shard>>) -> Self {
        Self {
            taken: AtomicU64::new(last),
            given: AtomicU64::new(last),
            crowd,
            line: Mutex::default(),
            name,
        }
    }

    /// Takes `units` if there is room and nobody waits.
    pub(super) fn take(&self, units: Units) -> Result<Taken, Refusal> {
        let mut taken = self.taken.load(Acquire);
        loop {
            if taken & FLAGS != 0 {
                taken = self.look()?;
                continue;
            }
            // Read after `taken`, so it is behind only if others took meanwhile.
            let Some(held) = taken.checked_sub(self.given()) else {
                taken = self.taken.load(Acquire);
                continue;
            };
            let sum = held + u64::from(units.weight);
            if sum > u64::from(units.limit) {
                return Err(Refusal::Full(held as u32));
            }
            let token = taken + u64::from(units.weight);
            match self
                .taken
                .compare_exchange_weak(taken, token, AcqRel, Acquire)
            {
                Ok(_) => {
                    return Ok(Taken {
                        token,
                        held: sum as u32,
                    });
                }
                Err(now) => taken = now,
            }
        }
    }

    /// What was taken, once nobody waits any more; a refusal as long as somebody does.
    #[cold]
    fn look(&self) -> Result<u64, Refusal> {
        let line = self.line();
        match self.taken.load(Acquire) {
            retired if retired & RETIRED != 0 => Err(Refusal::Retired),
            _ if !line.is_empty() => Err(Refusal::Full(self.held() as u32)),
            taken => Ok(taken),
        }
    }

    /// Joins the line, unless `longest` wait already. With room after all, the place is told so
    /// at once. `None`: ask the slot that the key has now.
    pub(super) fn join(&self, units: Units, longest: u32) -> Result<Option<Place>, AcquireError> {
        let mut line = self.line();
        if line.len() >= longest as usize {
            return Err(AcquireError::QueueFull);
        }
        // From here on nobody takes, and all who give back come and lock the line.
        if self.taken.fetch_or(LINE, AcqRel) & RETIRED != 0 {
            return Ok(None);
        }
        self.given.fetch_or(LINE, AcqRel);
        let place = line.join(units);
        self.advance(&mut line);
        Ok(Some(place))
    }

    /// Gives `weight` units back, and lets the next in.
    pub(super) fn give_back(&self, weight: u32) {
        if self.given.fetch_add(u64::from(weight), AcqRel) & LINE != 0 {
            self.advance(&mut self.line());
        }
        self.tidy();
    }

    /// Leaves the line; or gives back what was granted meanwhile and not taken up.
    pub(super) fn leave(&self, place: u64, weight: u32) {
        let mut line = self.line();
        if !line.leave(place) {
            self.given.fetch_add(u64::from(weight), AcqRel);
        }
        self.advance(&mut line);
        drop(line);
        self.tidy();
    }

    /// Grants to the head of the line while it fits, each under its own limit. Nobody behind the
    /// head is looked at, so no lighter claim starves a heavy one.
    fn advance(&self, line: &mut Line) {
        while let Some(units) = line.head() {
            let (held, weight) = (self.held(), u64::from(units.weight));
            if held + weight > u64::from(units.limit) {
                return;
            }
            let token = (self.taken.fetch_add(weight, AcqRel) & !FLAGS) + weight;
            line.admit(Taken {
                token,
                held: (held + weight) as u32,
            });
        }
        self.given.fetch_and(!LINE, AcqRel);
        self.taken.fetch_and(!LINE, AcqRel);
    }

    fn tidy(&self) {
        if let Some(shard) = &self.crowd
            && self.held() == 0
        {
            shard.forget(self);
        }
    }

    /// Ends the slot if it is idle: the last token that it gave.
    pub(super) fn retire(&self) -> Option<u64> {
        let idle = self.given();
        self.taken
            .compare_exchange(idle, idle | RETIRED, AcqRel, Acquire)
            .ok()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.taken.load(Acquire) != self.given.load(Acquire)
    }

    /// What is held, at most: exact for who has locked a line in which somebody waits.
    fn held(&self) -> u64 {
        let taken = self.taken.load(Acquire) & !FLAGS;
        taken.saturating_sub(self.given())
    }

    fn given(&self) -> u64 {
        self.given.load(Acquire) & !LINE
    }

    /// No code that holds the lock can panic halfway, so a poisoned lock guards a sound line.
    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
