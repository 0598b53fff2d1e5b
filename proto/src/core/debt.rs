//! Debts: units that a server may have although this process has given them up.
//!
//! Units that are given up become a debt if a server may have them. The release of a permit, a smaller weight and a new id all
//! give units up. Releases name debts only. A debt is paid in one of three ways: a release is answered after which no
//! acquire of the units can run (rule 3), the last acquire is refused, or the server forgets the units by itself.

use super::{
    Core,
    call::{Acquires, Flight, Sent},
    id::{At, CallId, DebtId, PermitId},
    lease::{Lease, State},
    permit::{Own, Permit},
    remote::Route,
    time::Time,
    timers::Owner,
};
use crate::verbs::Acquired;
use slab::Slab;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{Index, IndexMut},
};

#[derive(Debug, Default)]
pub(super) struct Debt {
    pub(super) id: DebtId,
    /// The permit whose caller receives the outcome of the releases. It outlives the debt. `None` if no caller waits.
    pub(super) permit: Option<PermitId>,
    /// The units, by semaphore. All semaphores are in one slot, so one script may name them.
    pub(super) levels: Vec<Own>,
    pub(super) route: Route,
    /// The time at which its next release is due.
    pub(super) next: Time,
    /// The server in whose queue it was put. `None` once it was sent.
    pub(super) waits_for: Option<usize>,
    /// The time of its timer (rule 10).
    pub(super) scheduled: Option<Time>,
    acquires: Acquires,
    /// The time at which the server has forgotten the units by itself.
    forgotten_at: Time,
    /// The time until which the units were known to be held.
    held_until: Time,
    /// The number of releases without an answer.
    in_flight: usize,
    last: Option<Sent>,
    /// True if no acquire can run after the last release.
    is_settled: bool,
    /// True once such a release was answered. The answer to another release may still report that it found the units.
    is_over: bool,
    /// True if an unanswered release may have run, at least in part.
    may_have_run: bool,
    /// True if the releases have found all of the units.
    was_held: bool,
    /// True if the thread should send a second release, because the runtime that sent the first may be stalled.
    is_stalled: bool,
}

impl Debt {
    /// A debt for units of a lease: all of them, some, or those that it has under an old id.
    pub(super) fn new(lease: &Lease, levels: Vec<Own>, now: Time) -> Self {
        let held_until = match lease.state {
            State::Held(end) => end,
            _ => Time::ZERO,
        };
        Self {
            levels,
            route: lease.route.clone(),
            next: now,
            acquires: lease.remote.acquires.clone(),
            forgotten_at: lease.remote.lasts().max(now),
            held_until,
            ..Self::default()
        }
    }

    /// True if it needs a release now. A release that was sent while an acquire could run is followed by another once none
    /// can.
    fn needs_release(&self) -> bool {
        let can_settle = !self.is_settled && self.acquires.are_over();
        let is_due = self.in_flight == 0 || can_settle || self.is_stalled;
        is_due && !self.is_over
    }

    /// The server in whose queue it waits.
    pub(super) fn waits(&self) -> Option<usize> {
        self.waits_for.filter(|_| self.needs_release())
    }

    /// Its earliest timer.
    fn timer(&self) -> Time {
        let is_to_be_queued = self.needs_release() && self.waits().is_none();
        let send = is_to_be_queued.then_some(self.next);
        send.map_or(self.forgotten_at, |send| send.min(self.forgotten_at))
    }

    /// Notes that a call with a release of it is sent.
    pub(super) fn send(&mut self, flight: &Flight) {
        self.waits_for = None;
        self.in_flight += 1;
        self.is_stalled = false;
        self.last = Some(Sent::in_call(flight));
        self.is_settled = self.acquires.are_before(flight);
    }

    /// True if its last release settles it.
    pub(super) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// True if a release of it is in this call.
    pub(super) fn is_released_in(&self, call: CallId) -> bool {
        self.last.as_ref().is_some_and(|last| last.call == call)
    }

    /// True if a release of it is before this call on the same connection, and another release would not settle more.
    pub(super) fn is_released_before(&self, flight: &Flight) -> bool {
        self.last.as_ref().is_some_and(|last| {
            let is_before = self.in_flight > 0 && last.is_before(flight);
            let settles = !self.is_settled && self.acquires.are_before(flight);
            is_before && !settles
        })
    }

    /// Counts the units as found if an unanswered release may have run before their end.
    fn count_unanswered(&mut self, now: Time) {
        self.was_held |= self.may_have_run && now < self.held_until;
    }
}

/// Of a debt that is not paid. A slot is used again, so what outlives a debt (a flight, a queue) asks [`Core::debt`] first.
impl Index<DebtId> for Slab<Debt> {
    type Output = Debt;

    fn index(&self, id: DebtId) -> &Debt {
        let debt = &self[id.slot];
        debug_assert_eq!(debt.id, id, "another debt has its slot");
        debt
    }
}

impl IndexMut<DebtId> for Slab<Debt> {
    fn index_mut(&mut self, id: DebtId) -> &mut Debt {
        let debt = &mut self[id.slot];
        debug_assert_eq!(debt.id, id, "another debt has its slot");
        debt
    }
}

impl Core {
    pub(super) fn debt(&mut self, id: DebtId) -> Option<&mut Debt> {
        let debt = self.debts.get_mut(id.slot);
        debt.filter(|debt| debt.id == id)
    }

    pub(super) fn server_of_debt(&self, debt: &Debt) -> usize {
        self.slots.server_for(&debt.route)
    }

    /// Adds a debt for units of a lease, and schedules its release. The keys of its levels count the levels already. `call` is
    /// the acquire or refresh of the lease in flight: its answer concerns the units that it has named.
    pub(super) fn owe(
        &mut self,
        permit: Option<PermitId>,
        (at, call): (At, Option<CallId>),
        mut debt: Debt,
    ) {
        self.last_debt += 1;
        let id = DebtId {
            slot: self.debts.vacant_key(),
            serial: self.last_debt,
        };
        if let Some(call) = call {
            self.owed_in.entry(call).or_default().push((at, id));
        }
        for level in &debt.levels {
            self.keys[level.key].debts.insert(id);
        }
        (debt.id, debt.permit) = (id, permit);
        self.debts.insert(debt);
        if let Some(ended) = permit.and_then(|permit| self.permits[permit].ended_mut()) {
            ended.debts.push(id);
        }
        self.schedule_debt(id);
    }

    /// Handles the answer to an acquire of units that were given up since it was sent. A refusal pays a debt only if no other
    /// acquire could still run when the refused one was sent: calls may run in another order than they were sent in.
    pub(super) fn debts_acquired(&mut self, flight: &Flight, at: At, acquired: &Acquired) {
        let is_refusal = !matches!(acquired, Acquired::Granted(_) | Acquired::Queued(_));
        for id in self.debts_in(flight.id, at) {
            let debt = self.debts.get(id.slot).filter(|debt| debt.id == id);
            let Some(debt) = debt else {
                continue;
            };
            self.keys.note_answer(&debt.levels, acquired, self.now);
            let is_settled = is_refusal && debt.acquires.run_until() <= flight.sent;
            if is_settled {
                self.pay(id);
            } else {
                self.release_at(id, self.now);
            }
        }
    }

    /// The debts for units of a lease that a call has named.
    pub(super) fn debts_in(&self, call: CallId, at: At) -> Vec<DebtId> {
        let all = self.owed_in.get(&call).into_iter().flatten();
        let own = all.filter(|(lease, _)| *lease == at);
        own.map(|(_, debt)| *debt).collect()
    }

    /// Handles the answer to a release (rule 3). If an answer was requested, `each` reports for each semaphore of each debt
    /// whether the units were found.
    ///
    /// Before the end of a lease, only another release can have removed units that this one did not find. If an
    /// unanswered release has run, the units count as found. If the answer to another release is still on its way, that
    /// answer decides. A release that was sent while an acquire could run is sent again after the acquire.
    pub(super) fn released(&mut self, all: &[(DebtId, bool)], each: Option<&[bool]>) {
        let found = each.into_iter().flatten();
        let missed = all.iter().zip(found).filter(|(_, was_held)| !**was_held);
        let missed: BTreeSet<DebtId> = missed.map(|((id, _), _)| *id).collect();
        let now = self.now;
        // A debt for several semaphores is named once for each.
        for (id, is_settled) in all.iter().copied().collect::<BTreeMap<_, _>>() {
            if let Some(debt) = self.debt(id).filter(|_| each.is_some()) {
                debt.count_unanswered(now);
                debt.was_held |= !missed.contains(&id);
                debt.is_over |= is_settled;
            }
            if is_settled && each.is_none() {
                self.pay(id);
            } else {
                self.release_again(id, now);
            }
        }
    }

    /// Notes that releases may have run, at least in part.
    pub(super) fn may_have_freed(&mut self, all: impl IntoIterator<Item = DebtId>) {
        for id in all {
            if let Some(debt) = self.debt(id) {
                debt.may_have_run = true;
            }
        }
    }

    /// Notes that a release is over. Schedules the next one, or pays the debt.
    pub(super) fn release_again(&mut self, id: DebtId, then: Time) {
        let now = self.now;
        let Some(debt) = self.debt(id) else {
            return;
        };
        debt.in_flight = debt.in_flight.saturating_sub(1);
        if !debt.is_over {
            let then = then.max(debt.acquires.run_until());
            return self.release_at(id, then);
        }
        debt.count_unanswered(now);
        if debt.was_held || debt.in_flight == 0 {
            self.pay(id);
        } else {
            self.unlink_from_keys(id);
        }
    }

    /// Notes that claims of this process no longer have to follow the release of a debt.
    fn unlink_from_keys(&mut self, id: DebtId) {
        for level in &self.debts[id].levels {
            self.keys[level.key].debts.remove(&id);
        }
    }

    /// Schedules the next release of a debt.
    pub(super) fn release_at(&mut self, id: DebtId, then: Time) {
        if let Some(debt) = self.debt(id) {
            debt.next = then;
            self.schedule_debt(id);
        }
    }

    /// Sends a release again while an earlier one has no answer.
    pub(super) fn release_beside(&mut self, id: DebtId) {
        if let Some(debt) = self.debt(id) {
            debt.is_stalled = true;
            self.release_at(id, self.now);
        }
    }

    /// Sends a release at once even if it pauses after a failure, because this process may be about to end.
    pub(super) fn release_soon(&mut self, id: DebtId) {
        let now = self.now;
        let pauses = |debt: &mut Debt| debt.next > now && debt.acquires.run_until() <= now;
        if self.debt(id).is_some_and(pauses) {
            self.release_at(id, now);
        }
    }

    /// Queues the next release of a debt if it is due, and sets the debt's timer.
    fn schedule_debt(&mut self, id: DebtId) {
        let debt = &self.debts[id];
        if debt.needs_release() && debt.waits().is_none() && debt.next <= self.now {
            let (server, is_urgent) = (self.server_of_debt(debt), self.is_urgent(debt));
            self.debts[id].waits_for = Some(server);
            self.servers[server].release(self.now, id, is_urgent);
        }
        let debt = &mut self.debts[id];
        let next = debt.timer();
        self.timers.set(Owner::Debt(id), &mut debt.scheduled, next);
    }

    fn clear_timer(&mut self, id: DebtId) {
        let scheduled = &mut self.debts[id].scheduled;
        self.timers.clear(Owner::Debt(id), scheduled);
    }

    /// True if a release should be sent at once instead of with the next call, for one of three reasons. Other claims
    /// may be refused until it arrives (rule 19), a caller waits for a release that the thread sends, or the process
    /// may be about to end.
    fn is_urgent(&self, debt: &Debt) -> bool {
        let permit = debt.permit.map(|id| &self.permits[id]);
        let is_of_thread = permit.is_some_and(Permit::is_awaited_by_thread);
        let is_full = self.is_any_full(&debt.levels);
        let is_awaited = is_full && !self.is_busy(self.server_of_debt(debt));
        self.is_closed || is_of_thread || is_awaited
    }

    /// Moves a debt that waits for the previous server of its slot to the current one.
    pub(super) fn debt_waits_elsewhere(&mut self, id: DebtId) {
        let debt = &self.debts[id];
        let server = self.server_of_debt(debt);
        if debt.waits_for.is_some_and(|waits| waits != server) || debt.route.asks.is_some() {
            let debt = &mut self.debts[id];
            (debt.waits_for, debt.route.asks) = (None, None);
            self.schedule_debt(id);
        }
    }

    /// Handles the due timers of a debt. Its end comes before its release.
    pub(super) fn debt_due(&mut self, id: DebtId) {
        self.clear_timer(id);
        if self.debts[id].forgotten_at <= self.now {
            self.pay(id);
        } else {
            self.schedule_debt(id);
        }
    }

    /// Removes a debt once no server has any of its units.
    fn pay(&mut self, id: DebtId) {
        if self.debt(id).is_none() {
            return;
        }
        self.unlink_from_keys(id);
        self.clear_timer(id);
        let debt = self.debts.remove(id.slot);
        for level in &debt.levels {
            self.keys.leave(level.key, self.now);
        }
        if let Some(id) = debt.permit {
            if let Some(ended) = self.permits[id].ended_mut() {
                ended.debts.retain(|other| *other != debt.id);
                ended.was_held &= debt.was_held;
            }
            self.end_if_over(id);
        }
    }
}
