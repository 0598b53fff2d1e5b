//! The spent and reserved units of a budget.
//!
//! Spent units return evenly with time, the limit within a window. They are counted in nanoseconds of the window, so
//! that nothing is rounded: a unit counts as `window` nanoseconds, and each nanosecond that passes returns `limit`.

use super::units::HeldUnits;
use crate::{
    observe::BudgetUse,
    semaphore::{Charge, PermitEnd, Settled, TakenUnits, Window},
};
use std::time::Duration;
use tokio::time::Instant;

/// The first waiter looks at least this often whether its units fit, also while its key is paused. The others look less
/// often the further behind they are. So they notice if all waiters before them are not polled, and a crowd costs
/// little.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The first waiter loses its place if its units fit and it has not looked for this time, in which it should have
/// looked four times: it is not polled.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time after which a waiter behind this number of others looks at the latest.
pub(super) fn next_look(others: usize) -> Duration {
    const LONGEST: Duration = Duration::from_secs(60);
    let turns = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
    LOOK_INTERVAL.saturating_mul(turns).min(LONGEST)
}

pub(super) struct BudgetState {
    window: Window,
    /// The units that were spent and have not returned at `at`, in nanoseconds: see the module docs.
    spent: u128,
    at: Instant,
    /// How many units return within a window: the limit of the last grant.
    limit: u32,
    /// In units, not in nanoseconds.
    reserved: u64,
    head: Option<NotifiedHead>,
}

/// When units of a claim fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(Instant),
    /// Time alone does not make room, because too many units are reserved.
    Unknown,
}

/// The last waiter that was notified as the head of the queue.
struct NotifiedHead {
    serial: u64,
    /// When its units fit, as the last notice reported.
    due: Due,
    /// When it last looked, or became the head.
    seen: Instant,
}

/// A notice for the head of the queue.
pub(super) enum HeadNotice {
    /// The time at which its units fit has changed.
    Look,
    /// It has lost its place.
    Lapsed,
}

impl BudgetState {
    pub(super) fn new(window: Window) -> Self {
        Self {
            window,
            spent: 0,
            at: Instant::now(),
            limit: 0,
            reserved: 0,
            head: None,
        }
    }

    pub(super) fn window(&self) -> Window {
        self.window
    }

    pub(super) fn reserved(&self) -> u32 {
        u32::try_from(self.reserved).unwrap_or(u32::MAX)
    }

    /// The spent units that have not returned yet, rounded up.
    pub(super) fn spent(&self) -> u32 {
        let units = self.spent_at(Instant::now()).div_ceil(self.unit());
        u32::try_from(units).unwrap_or(u32::MAX)
    }

    pub(super) fn used(&self) -> u32 {
        self.spent().saturating_add(self.reserved())
    }

    fn unit(&self) -> u128 {
        self.window.time().as_nanos()
    }

    fn spent_at(&self, now: Instant) -> u128 {
        let passed = now.saturating_duration_since(self.at).as_nanos();
        self.spent.saturating_sub(passed * u128::from(self.limit))
    }

    /// When these units fit.
    #[inline(never)]
    pub(super) fn due(&self, weight: u32, limit: u32) -> Due {
        self.due_beside(weight, limit, self.reserved)
    }

    /// When these units fit at the earliest, if all reservations end without any use.
    pub(super) fn earliest(&self, weight: u32, limit: u32) -> Due {
        self.due_beside(weight, limit, 0)
    }

    /// When these units fit beside this number of reserved units. The instant stays the same until something is spent,
    /// reserved or freed.
    fn due_beside(&self, weight: u32, limit: u32, reserved: u64) -> Due {
        let Some(room) = u64::from(limit).checked_sub(reserved + u64::from(weight)) else {
            return Due::Unknown;
        };
        let over = self.spent.saturating_sub(u128::from(room) * self.unit());
        let nanos = over.div_ceil(u128::from(self.limit.max(1)));
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        match self.at.checked_add(Duration::from_nanos(nanos)) {
            Some(at) if at <= Instant::now() => Due::Now,
            Some(at) => Due::At(at),
            None => Due::Unknown,
        }
    }

    /// Reserves the units of a claim. From now on spent units return at the rate of this limit. Returns the units in
    /// use.
    #[inline(never)]
    pub(super) fn reserve(&mut self, weight: u32, limit: u32) -> u32 {
        // Brings `spent` up to date before the rate changes.
        self.spend(0);
        self.limit = limit;
        self.reserved += u64::from(weight);
        self.used()
    }

    fn spend(&mut self, units: u32) {
        let now = Instant::now();
        let spent = u128::from(units) * self.unit();
        (self.spent, self.at) = (self.spent_at(now).saturating_add(spent), now);
    }

    /// Charges a claim that has all of its levels: a rate spends its units, and an estimate counts as used unless it is
    /// settled. Returns the use and the number of these units.
    pub(super) fn charge(&mut self, held: &HeldUnits, charge: Charge) -> (BudgetUse, u32) {
        match charge {
            Charge::Grant => self.settle(held, held.weight()),
            Charge::Settlement => {
                held.set_settled(Settled::Estimate);
                (BudgetUse::Reserved, held.weight())
            }
        }
    }

    /// Moves units from reserved to spent, up to this total. A total never shrinks. Returns the use, and the number of
    /// units that became spent.
    pub(super) fn settle(&mut self, held: &HeldUnits, total: u32) -> (BudgetUse, u32) {
        let (weight, before) = (held.weight(), held.settled());
        if weight == 0 {
            return (BudgetUse::Spent, 0);
        }
        let settled = before.total().unwrap_or(0);
        let total = total.max(settled);
        self.reserved -= u64::from(total.min(weight) - settled.min(weight));
        self.spend(total - settled);
        held.set_settled(Settled::Total(total));
        (BudgetUse::Spent, total - settled)
    }

    /// Ends the units that a permit has reserved and not settled. Returns the use and the number of these units, if
    /// they were charged.
    pub(super) fn end(&mut self, taken: TakenUnits, end: PermitEnd) -> Option<(BudgetUse, u32)> {
        let (used, rest) = (taken.use_of_unsettled(end), taken.unsettled());
        self.reserved -= u64::from(rest);
        if used != BudgetUse::Freed {
            self.spend(rest);
        }
        (taken.settled != Settled::Uncharged).then_some((used, rest))
    }

    /// True once time has returned all spent units and nothing is reserved, so that the state can be forgotten.
    pub(super) fn is_whole(&self) -> bool {
        self.reserved == 0 && self.spent_at(Instant::now()) == 0
    }

    /// Notes that a waiter has looked, if it is the head.
    pub(super) fn note_look(&mut self, serial: u64) {
        let head = self.head.as_mut().filter(|head| head.serial == serial);
        if let Some(head) = head {
            head.seen = Instant::now();
        }
    }

    /// Forgets that the head was notified: it has looked in vain, because its key is paused.
    pub(super) fn forget_notice(&mut self) {
        if let Some(head) = &mut self.head {
            head.due = Due::Unknown;
        }
    }

    /// Returns the notice that the head of the queue needs. `None` if it knows already when its units fit.
    pub(super) fn notice(&mut self, serial: u64, due: Due) -> Option<HeadNotice> {
        let now = Instant::now();
        let known = self.head.as_ref().filter(|head| head.serial == serial);
        let seen = known.map_or(now, |head| head.seen);
        if due == Due::Now && now.saturating_duration_since(seen) > PATIENCE {
            return Some(HeadNotice::Lapsed);
        }
        let is_new = known.is_none_or(|head| head.due != due);
        self.head = Some(NotifiedHead { serial, due, seen });
        is_new.then_some(HeadNotice::Look)
    }
}
