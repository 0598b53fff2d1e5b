//! Debts: units that a server may have although this process has given them up.
//!
//! Every way to give units up makes a debt: the release of a permit, a smaller weight, a new id. Releases name debts only.
//! A debt is paid once a server has answered a release after which no acquire of the units can run (rule 3), or once the
//! server has forgotten the units by itself.

use super::{
    Core,
    call::{Acquires, Flight, Sent},
    id::{At, CallId, DebtId, Due, PermitId},
    lease::{Lease, State},
    permit::{Own, Permit},
    reply::full_keys,
    time::Time,
};
use crate::verbs::Acquired;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

#[derive(Debug, Default)]
pub(super) struct Debt {
    pub(super) id: DebtId,
    /// The permit whose caller learns what the releases have found. `None` if the permit goes on under a new id.
    pub(super) permit: Option<PermitId>,
    /// The units, by semaphore. All semaphores are in one slot, so one script may name them.
    pub(super) levels: Vec<Own>,
    pub(super) slot: u16,
    /// The server for the next release, if the slot is moving to that server.
    pub(super) asks: Option<usize>,
    /// True if a separate command must name it, because a command for several debts has failed with an error of a key.
    pub(super) is_alone: bool,
    /// The time at which its next release is due.
    pub(super) next: Time,
    /// The server for which it was last queued.
    pub(super) waits_for: Option<usize>,
    /// Its key in `Core::due`.
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
    /// A debt for all of a lease.
    pub(super) fn of_lease(lease: &Lease, levels: Vec<Own>, now: Time) -> Self {
        let held_until = match lease.state {
            State::Held(end) => end,
            _ => Time::ZERO,
        };
        Self {
            asks: lease.asks,
            is_alone: lease.is_alone,
            held_until,
            ..Self::of_part(lease, levels, now)
        }
    }

    /// A debt for some units of a lease, or for units that it has under an old id.
    pub(super) fn of_part(lease: &Lease, levels: Vec<Own>, now: Time) -> Self {
        Self {
            levels,
            slot: lease.slot,
            next: now,
            acquires: lease.acquires.clone(),
            forgotten_at: lease.lasts.max(now),
            ..Self::default()
        }
    }

    /// True if it needs a release now. A release that was sent while an acquire could run is followed by another once none
    /// can.
    fn needs_release(&self) -> bool {
        let is_useless = !self.is_settled && self.acquires.are_over();
        let is_due = self.in_flight == 0 || is_useless || self.is_stalled;
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

    /// Takes the units for found if a release without an answer may have run before their end.
    fn count_unanswered(&mut self, now: Time) {
        self.was_held |= self.may_have_run && now < self.held_until;
    }
}

impl Core {
    pub(super) fn debt(&mut self, id: DebtId) -> Option<&mut Debt> {
        let debt = self.debts.get_mut(id.slot);
        debt.filter(|debt| debt.id == id)
    }

    pub(super) fn server_of_debt(&self, debt: &Debt) -> usize {
        debt.asks.unwrap_or(self.slots.server_of(debt.slot))
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
        if let Some(permit) = permit {
            self.permits[permit].debts.push(id);
        }
        self.release_if_due(id);
        self.schedule_debt(id);
    }

    /// Handles the answer to an acquire of units that were given up since it was sent. A refusal pays a debt only if no other
    /// acquire could still run when the refused one was sent: calls may run in another order than they were sent in.
    pub(super) fn debts_acquired(&mut self, flight: &Flight, at: At, acquired: &Acquired) {
        let is_refusal = !matches!(acquired, Acquired::Granted(_) | Acquired::Queued(_));
        for id in self.debts_in(flight.id, at) {
            let Some(debt) = self.debt(id) else {
                continue;
            };
            let is_settled = is_refusal && debt.acquires.run_until() <= flight.sent;
            for key in full_keys(&debt.levels, acquired) {
                self.keys[key].note_full(self.now);
            }
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
                if debt.is_over && !debt.was_held && debt.in_flight > 1 {
                    self.release_again(id, now);
                    continue;
                }
            }
            if is_settled {
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

    /// Schedules a release again, unless nothing of the debt is left.
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
            self.follow_no_more(id);
        }
    }

    /// Notes that claims of this process no longer have to follow the release of a debt.
    fn follow_no_more(&mut self, id: DebtId) {
        let keys = self.debts[id.slot].levels.iter().map(|level| level.key);
        for key in keys.collect::<Vec<_>>() {
            self.keys[key].debts.remove(&id);
        }
    }

    /// Schedules the next release of a debt.
    pub(super) fn release_at(&mut self, id: DebtId, then: Time) {
        if let Some(debt) = self.debt(id) {
            debt.next = then;
            self.release_if_due(id);
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

    /// Sends a release at once that pauses after a failure, because this process may be about to end.
    pub(super) fn release_soon(&mut self, id: DebtId) {
        let now = self.now;
        let pauses = |debt: &mut Debt| debt.next > now && debt.acquires.run_until() <= now;
        if self.debt(id).is_some_and(pauses) {
            self.release_at(id, now);
        }
    }

    /// Queues a debt if its next release is due.
    pub(super) fn release_if_due(&mut self, id: DebtId) {
        let debt = &self.debts[id.slot];
        if !debt.needs_release() || debt.waits().is_some() || debt.next > self.now {
            return;
        }
        let (server, is_urgent) = (self.server_of_debt(debt), self.is_urgent(debt));
        self.debts[id.slot].waits_for = Some(server);
        self.servers[server].release(self.now, id, is_urgent);
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
        let debt = &self.debts[id.slot];
        let server = self.server_of_debt(debt);
        if debt.waits_for.is_some_and(|waits| waits != server) || debt.asks.is_some() {
            let debt = &mut self.debts[id.slot];
            (debt.waits_for, debt.asks) = (None, None);
            self.release_if_due(id);
            self.schedule_debt(id);
        }
    }

    /// Handles the due timers of a debt. Its end comes before its release.
    pub(super) fn debt_due(&mut self, id: DebtId) {
        self.unschedule_debt(id);
        if self.debts[id.slot].forgotten_at <= self.now {
            self.pay(id);
        } else {
            self.release_if_due(id);
            self.schedule_debt(id);
        }
    }

    /// Removes a debt of which no server has anything any more.
    fn pay(&mut self, id: DebtId) {
        if self.debt(id).is_none() {
            return;
        }
        self.follow_no_more(id);
        self.unschedule_debt(id);
        let debt = self.debts.remove(id.slot);
        for level in &debt.levels {
            self.keys.leave(level.key, self.now);
        }
        if let Some(id) = debt.permit {
            let permit = &mut self.permits[id];
            permit.debts.retain(|other| *other != debt.id);
            permit.was_held &= debt.was_held;
            self.end_if_over(id);
        }
    }

    fn schedule_debt(&mut self, id: DebtId) {
        let debt = &self.debts[id.slot];
        let (old, next) = (debt.scheduled, debt.timer());
        if old.is_none_or(|old| next < old) {
            self.debts[id.slot].scheduled = Some(next);
            self.due.insert((next, Due::Debt(id)));
            self.due.remove(&(old.unwrap_or(Time::MAX), Due::Debt(id)));
        }
    }

    fn unschedule_debt(&mut self, id: DebtId) {
        let scheduled = mem::take(&mut self.debts[id.slot].scheduled);
        self.due
            .remove(&(scheduled.unwrap_or(Time::MAX), Due::Debt(id)));
    }
}
