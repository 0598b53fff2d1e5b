//! Makes debts, schedules their releases, and applies the answers.

use super::{
    Core,
    call::{Flight, Items},
    debt::{Debt, Next},
    id::{CallId, DebtId, LeaseRef, PermitId},
    lease::Lease,
    permit::PermitState,
    time::Time,
    timers::TimerOwner,
};
use crate::verbs::Acquired;
use std::collections::BTreeSet;

impl Core {
    pub(super) fn target_of_debt(&self, debt: &Debt) -> usize {
        self.slots.target_of(&debt.route)
    }

    /// Adds a debt for units of a lease, and schedules its release. The caller has already counted the debt as a user
    /// of its keys. `call` is the lease's acquire or refresh in flight: its answer concerns the units of the debt too.
    pub(super) fn owe(
        &mut self,
        permit: Option<PermitId>,
        (at, call): (LeaseRef, Option<CallId>),
        mut debt: Debt,
    ) {
        let id = self.debts.next_id();
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

    /// Handles the answer to an acquire of units that were given up since it was sent.
    pub(super) fn handle_acquired_debts(
        &mut self,
        flight: &Flight,
        at: LeaseRef,
        acquired: &Acquired,
    ) {
        let is_refusal = !matches!(acquired, Acquired::Granted(_) | Acquired::Queued(_));
        if is_refusal
            && self.permits.get(at.0).is_some_and(PermitState::has_ended)
            && let Some(lease) = self.lease_in_flight(at, flight.id)
        {
            lease.remote.note_refused(flight.sent);
        }
        for id in self.debts_in(flight.id, at) {
            let Some(debt) = self.debts.get(id) else {
                continue;
            };
            self.keys.note_answer(&debt.levels, acquired, self.now);
            if is_refusal && debt.is_refused(flight.sent) {
                self.pay(id);
            } else {
                self.release_at(id, self.now);
            }
        }
    }

    /// Notes that the acquires of a command, if any, have not run and never will. If none of a debt's acquires may have
    /// run, the debt is paid.
    pub(super) fn note_not_run(&mut self, flight: &Flight, items: &Items) {
        let Items::Acquire(_, all) = items else {
            return;
        };
        for at in all {
            if let Some(lease) = self.lease_in_flight(*at, flight.id) {
                lease.remote.note_not_run();
            }
            for id in self.debts_in(flight.id, *at) {
                if self.debts.get_mut(id).is_some_and(Debt::note_not_run) {
                    self.pay(id);
                }
            }
        }
    }

    /// A lease that waits for the answer to this call. Also finds a lease whose permit an earlier answer of the call
    /// has ended: it becomes a debt at the end of this step.
    fn lease_in_flight(&mut self, at: LeaseRef, call: CallId) -> Option<&mut Lease> {
        let lease = self.permits.get_mut(at.0)?.leases.get_mut(at.1)?;
        (lease.call() == Some(call)).then_some(lease)
    }

    /// The debts for units of a lease that a call has named.
    pub(super) fn debts_in(&self, call: CallId, at: LeaseRef) -> Vec<DebtId> {
        let all = self.owed_in.get(&call).into_iter().flatten();
        let of_lease = all.filter(|(lease, _)| *lease == at);
        of_lease.map(|(_, debt)| *debt).collect()
    }

    /// Handles the answer to a release (rule 3). `all` has each debt, once for each of its semaphores, and true if this
    /// release settles it. If an answer was requested, `each` has a bool for each of these: true if the units were
    /// found.
    ///
    /// Before the end of a lease, only another release can have removed units that this one did not find. So if an
    /// unanswered release may have run, the units count as found. If the answer to another release is still on its way,
    /// that answer decides. A release that does not settle the debt is sent again once no acquire can run.
    pub(super) fn handle_released(&mut self, all: &[(DebtId, bool)], each: Option<&[bool]>) {
        let found = each.into_iter().flatten();
        let missed = all.iter().zip(found).filter(|(_, was_held)| !**was_held);
        let missed: BTreeSet<DebtId> = missed.map(|((id, _), _)| *id).collect();
        let now = self.now;
        // A debt for several semaphores is named once for each.
        let mut each_once = all.to_vec();
        each_once.sort_unstable();
        each_once.dedup();
        for (id, settles) in each_once {
            if let Some(debt) = self.debts.get_mut(id).filter(|_| each.is_some()) {
                debt.note_answer(now, !missed.contains(&id), settles);
            }
            if settles && each.is_none() {
                self.pay(id);
            } else {
                self.finish_release(id, now);
            }
        }
    }

    /// Notes that releases may have run, at least in part.
    pub(super) fn note_may_have_run(&mut self, all: impl IntoIterator<Item = DebtId>) {
        for id in all {
            if let Some(debt) = self.debts.get_mut(id) {
                debt.note_may_have_run();
            }
        }
    }

    /// Notes that a release is over. Schedules the next one, or pays the debt.
    pub(super) fn finish_release(&mut self, id: DebtId, then: Time) {
        let now = self.now;
        let Some(debt) = self.debts.get_mut(id) else {
            return;
        };
        match debt.complete(now, then) {
            Next::Release => self.schedule_debt(id),
            Next::Answers => self.unlink_from_keys(id),
            Next::Paid => self.pay(id),
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
        if let Some(debt) = self.debts.get_mut(id) {
            debt.schedule(then);
            self.schedule_debt(id);
        }
    }

    /// Schedules a second release now, although the first has no answer.
    pub(super) fn release_beside(&mut self, id: DebtId) {
        let now = self.now;
        if let Some(debt) = self.debts.get_mut(id) {
            debt.release_beside(now);
            self.schedule_debt(id);
        }
    }

    /// Makes the next release due now if it only waits for a retry after a failure, because this process may be about
    /// to end.
    pub(super) fn release_soon(&mut self, id: DebtId) {
        let now = self.now;
        if self
            .debts
            .get(id)
            .is_some_and(|debt| debt.is_backing_off(now))
        {
            self.release_at(id, now);
        }
    }

    /// Queues the next release of a debt if it is due, and sets the debt's timer.
    fn schedule_debt(&mut self, id: DebtId) {
        let debt = &self.debts[id];
        if debt.is_due(self.now) {
            let (server, is_urgent) = (self.target_of_debt(debt), self.is_urgent(debt));
            self.debts[id].enqueue(server);
            self.servers[server].release(self.now, id, is_urgent);
        }
        let debt = &mut self.debts[id];
        let next = debt.timer();
        self.timers
            .set(TimerOwner::Debt(id), &mut debt.scheduled, next);
    }

    fn clear_timer(&mut self, id: DebtId) {
        let scheduled = &mut self.debts[id].scheduled;
        self.timers.clear(TimerOwner::Debt(id), scheduled);
    }

    /// True if a release should be sent at once instead of with the next call, for one of three reasons. Other claims
    /// may be refused until it arrives and no busy runtime will include it soon (rule 19), a caller waits for the
    /// release of a permit whose last answer came over the thread, or the process may be about to end.
    fn is_urgent(&self, debt: &Debt) -> bool {
        let permit = debt.permit.map(|id| &self.permits[id]);
        let is_awaited_by_thread = permit.is_some_and(PermitState::is_awaited_by_thread);
        let is_full = self.is_any_full(&debt.levels);
        let blocks_others = is_full && !self.is_busy(self.target_of_debt(debt));
        self.is_closed || is_awaited_by_thread || blocks_others
    }

    /// Moves a debt that waits for the previous server of its slot to the current one.
    pub(super) fn requeue_debt_if_moved(&mut self, id: DebtId) {
        let server = self.target_of_debt(&self.debts[id]);
        if self.debts[id].leave_other_than(server) {
            self.schedule_debt(id);
        }
    }

    /// Handles the due timers of a debt. If its units have expired on the server, it needs no release.
    pub(super) fn handle_debt_timer(&mut self, id: DebtId) {
        self.clear_timer(id);
        if self.debts[id].is_forgotten(self.now) {
            self.pay(id);
        } else {
            self.schedule_debt(id);
        }
    }

    /// Removes a debt once no server has any of its units.
    fn pay(&mut self, id: DebtId) {
        if self.debts.get(id).is_none() {
            return;
        }
        self.unlink_from_keys(id);
        self.clear_timer(id);
        let debt = self.debts.remove(id);
        for level in &debt.levels {
            self.keys.remove_user(level.key, self.now);
        }
        if let Some(id) = debt.permit {
            if let Some(ended) = self.permits[id].ended_mut() {
                ended.debts.retain(|other| *other != debt.id);
                ended.was_held &= debt.was_held();
            }
            self.end_if_over(id);
        }
    }
}
