//! How leases and permits end: expiry, loss and return of leases, and permits that are given up.

use super::{
    Core,
    debt::Debt,
    id::{LeaseRef, PermitId},
    lease::{Lease, LeaseEvent, LeaseState, OnLoss, Outcome},
    permit::{Event, Phase, Refusal, Reported},
    policy::OutagePolicy,
    time::{FOREVER, Time},
};
use std::mem;

/// Why a permit ends although its caller has not released it.
#[derive(Debug, Clone, Copy)]
pub(super) enum EndCause {
    /// An operator has revoked it.
    Revoked,
    Shutdown,
}

/// A permit that has ended in this step and still has its leases.
#[derive(Debug, Clone, Copy)]
pub(super) struct EndedPermit {
    id: PermitId,
    /// The permit whose caller receives the outcome of the releases, if the caller waits for that.
    awaited_with: PermitId,
}

impl EndCause {
    /// The refusal of a claim that ends.
    fn refusal(self) -> Refusal {
        match self {
            Self::Revoked => Refusal::Revoked,
            Self::Shutdown => Refusal::Closed,
        }
    }
}

impl Core {
    // Losses.

    /// Handles the times that have passed: the deadline of a claim (rule 1) and the ends of leases.
    pub(super) fn end_due(&mut self, id: PermitId) {
        let deadline = self.permits[id].deadline();
        if deadline.is_some_and(|deadline| deadline <= self.now) {
            self.handle_deadline(id);
        }
        for at in self.lease_refs(id) {
            let expiry = self.lease(at).and_then(|lease| lease.expiry());
            if expiry.is_some_and(|expiry| expiry <= self.now) {
                self.apply(at, LeaseEvent::Ended(self.on_loss(at)), self.now);
            }
        }
    }

    /// Applies an event that may take a lease from its permit, and reports the permit's condition. A lost lease is
    /// acquired again: that of a claim at once (rule 5), that of a permit at `then` (rule 6). If the outcome is
    /// `IsRefused`, the caller must refuse the claim.
    pub(super) fn apply(&mut self, at: LeaseRef, event: LeaseEvent, then: Time) -> Outcome {
        let root = self.permits[at.0].root();
        let lease = &mut self.permits[at];
        let was_held = lease.is_held();
        let outcome = lease.on(event);
        if outcome == Outcome::FallsBack {
            // Before the new id below, which notes a repeat only if no wider lease is held (rule 21).
            self.give_wider_back(at);
        }
        if was_held && outcome != Outcome::CallsAgain {
            self.assign_new_id_if_several_units(at);
        }
        match outcome {
            Outcome::FallsBack => self.start_acquire(at),
            Outcome::CallsAgain => self.schedule_call(at, self.now),
            Outcome::IsMissing | Outcome::IsDegraded => {
                if outcome == Outcome::IsDegraded {
                    // The acquire of a claim may wait in a queue to be sent. It is scheduled for `then` instead.
                    self.permits[at].reschedule(then);
                }
                self.report_condition(root);
                self.schedule_call(at, then);
            }
            _ => {}
        }
        outcome
    }

    /// The consequence for a permit that loses this lease now.
    pub(super) fn on_loss(&self, at: LeaseRef) -> OnLoss {
        let permit = &self.permits[at.0];
        if permit.is_claim() {
            OnLoss::FallBack
        } else if permit.is_strict {
            OnLoss::NotifyAtOnce
        } else if self.settings.policy == OutagePolicy::Refuse {
            OnLoss::Notify
        } else if self.is_well(at) {
            OnLoss::KeepAtEnd
        } else {
            OnLoss::Keep
        }
    }

    /// The time until which the holder may rely on a permit and its granted growths, or `FOREVER` if all of them are
    /// degraded. `None` if the permit is not granted, or if the holder was notified of a loss.
    pub(super) fn whole_until(&self, root: PermitId) -> Option<Time> {
        let is_granted = self.permits[root].is_granted();
        let is_whole = is_granted && self.leases_with_growths(root).all(Lease::is_relied_on);
        let expiries = self.leases_with_growths(root).filter_map(Lease::expiry);
        is_whole.then(|| expiries.min().unwrap_or(FOREVER))
    }

    /// The leases of a permit and of its granted growths.
    fn leases_with_growths(&self, root: PermitId) -> impl Iterator<Item = &Lease> {
        let root = &self.permits[root];
        let growths = root.growths.iter().map(|id| &self.permits[*id]);
        let growths = growths.filter(|growth| growth.is_granted());
        growths.chain([root]).flat_map(|permit| &permit.leases)
    }

    /// Gives a lease of several units a new id when it is lost (rule 6).
    fn assign_new_id_if_several_units(&mut self, at: LeaseRef) {
        let mut levels = self.levels_of(at).iter();
        if levels.any(|level| level.units.members() > 1) {
            self.permits[at.0].note_repeat(at.1);
            self.assign_new_id(at);
        }
    }

    /// Gives back the wider leases that a claim has begun to acquire (rule 5).
    pub(super) fn give_wider_back(&mut self, at: LeaseRef) {
        for wider in at.1 + 1..self.permits[at.0].leases.len() {
            self.give_back(LeaseRef(at.0, wider));
        }
    }

    /// Gives a lease of a claim back, to acquire it later: under a new id if a server may have it under this one.
    pub(super) fn give_back(&mut self, at: LeaseRef) {
        self.assign_new_id(at);
        let lease = &mut self.permits[at];
        lease.on(LeaseEvent::GivenBack);
        lease.reschedule(self.now);
    }

    /// Reports to the holder of a permit that some of it is lost, that some of it is degraded, or that all of it is in
    /// place again. A loss and a degradation are reported once each until all is in place again, however often leases
    /// change.
    pub(super) fn report_condition(&mut self, root: PermitId) {
        let is_whole = self.leases_with_growths(root).all(Lease::is_relied_on);
        let is_degraded = self.leases_with_growths(root).any(Lease::is_degraded);
        if !is_whole {
            self.report_lost(root);
        }
        if is_degraded {
            self.report_degraded(root);
        }
        if is_whole && !is_degraded {
            self.report_return(root);
        }
    }

    fn report_lost(&mut self, root: PermitId) {
        if let Some(reported) = self.permits[root].reported_mut()
            && !mem::replace(&mut reported.is_lost, true)
        {
            self.events.push_back((root, Event::Lost));
        }
    }

    fn report_degraded(&mut self, root: PermitId) {
        if let Some(reported) = self.permits[root].reported_mut()
            && !mem::replace(&mut reported.is_degraded, true)
        {
            self.events.push_back((root, Event::Degraded));
        }
    }

    /// Reports that a permit is in place again, with new tokens, because others may have held units of it or of its
    /// growths in between. Each level has the highest token of both.
    fn report_return(&mut self, root: PermitId) {
        let reported = self.permits[root].reported_mut().map(mem::take);
        if reported.is_none_or(|reported| reported == Reported::default()) {
            return;
        }
        let permit = &self.permits[root];
        let mut tokens: Vec<_> = permit.grants().map(|(token, ..)| token).collect();
        for growth in permit.growths.iter().map(|id| &self.permits[*id]) {
            if let Some((_, level)) = growth.adds_to {
                tokens[level] = tokens[level].max(growth.levels[0].grant.0);
            }
        }
        self.events.push_back((root, Event::Regained(tokens)));
    }

    // Releases.

    /// Refuses a claim.
    pub(super) fn refuse(&mut self, id: PermitId, why: Refusal) {
        if self.permits[id].is_claim() {
            self.events.push_back((id, Event::Refused(why)));
            self.mark_ended(id, false);
        }
    }

    /// Ends a permit or a claim, unless it has ended before.
    pub(super) fn end(&mut self, id: PermitId, cause: EndCause) {
        let permit = &self.permits[id];
        match permit.phase {
            Phase::Claiming(_) => self.refuse(id, cause.refusal()),
            Phase::Granted(_) => {
                let root = permit.root();
                match cause {
                    EndCause::Revoked => self.events.push_back((root, Event::Revoked)),
                    EndCause::Shutdown => self.report_lost(root),
                }
                self.mark_ended(root, false);
            }
            Phase::Ended(_) => {}
        }
    }

    /// Ends a permit or a claim, and its growths (rule 13). Their leases become debts when this step is over.
    /// `reports`: a caller waits for the outcome of the releases.
    pub(super) fn mark_ended(&mut self, id: PermitId, reports: bool) {
        let permit = &mut self.permits[id];
        permit.end(reports);
        // Before the permit itself, which must exist when their debts are charged to it.
        for growth in mem::take(&mut permit.growths) {
            let permit = &mut self.permits[growth];
            if permit.is_granted() {
                permit.end(false);
                self.uncount(growth);
                self.ended.push_back(EndedPermit {
                    id: growth,
                    awaited_with: id,
                });
            } else if self.is_closed {
                self.refuse(growth, Refusal::Closed);
            } else {
                self.refuse(growth, Refusal::Revoked);
            }
        }
        self.uncount(id);
        self.ended.push_back(EndedPermit {
            id,
            awaited_with: id,
        });
    }

    /// Makes debts of the leases of all permits that have ended in this step. Each entry that can end a permit ends
    /// with this, so no step removes a lease that it still visits.
    pub(super) fn give_up_ended(&mut self) {
        while let Some(ended) = self.ended.pop_front() {
            self.give_up(ended);
        }
    }

    /// Makes a debt of each lease that a server may have.
    fn give_up(&mut self, EndedPermit { id, awaited_with }: EndedPermit) {
        if let Some((root, _)) = self.permits[id].adds_to
            && let Some(permit) = self.permits.get_mut(root)
        {
            permit.growths.retain(|other| *other != id);
            // The growth may have been the only part that was lost.
            self.report_expiry(root);
            self.report_condition(root);
        }
        let permit = &mut self.permits[id];
        let (leases, mut levels) = (mem::take(&mut permit.leases), mem::take(&mut permit.levels));
        for (number, lease) in leases.into_iter().enumerate() {
            let wider = levels.split_off(lease.levels.len());
            let given_up = mem::replace(&mut levels, wider);
            let is_begun = !matches!(lease.state, LeaseState::NotStarted);
            if is_begun && lease.remote.may_exist() {
                // This step may have applied the answer to the call, so that the call is over.
                let call = lease.call().filter(|call| self.calls.contains_key(call));
                let debt = Debt::new(&lease, given_up, lease.route.redirect, self.now);
                self.owe(Some(awaited_with), (LeaseRef(id, number), call), debt);
            } else {
                // No server has the lease. A granted permit whose lease was begun was thus not held to its end.
                if let Some(ended) = self.permits[awaited_with].ended_mut() {
                    ended.was_held &= !is_begun;
                }
                for level in given_up {
                    self.keys.remove_user(level.key, self.now);
                }
            }
        }
        self.unset_timer(id);
        self.end_if_over(id);
    }

    /// Removes a permit that is given up, once its debts are paid.
    pub(super) fn end_if_over(&mut self, id: PermitId) {
        let ended = self.permits.get(id).and_then(|permit| permit.ended());
        let Some(ended) = ended.filter(|ended| ended.debts.is_empty()) else {
            return;
        };
        let event = ended.reports.then_some(Event::Released(ended.was_held));
        self.events.extend(event.map(|event| (id, event)));
        self.named.remove(&id.serial);
        self.permits.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        core::{
            Call, CallFailure, Change, Core, Event, LevelClaim, RuntimeId, THREAD, Time,
            tests::{self, settings},
        },
        verbs::{Acquired, Answer, Command, OperatorLimits},
    };
    use std::{mem, time::Duration};

    const NOW: Time = Time::from_secs(100);
    const RUNTIME: RuntimeId = RuntimeId(1);

    /// A core whose only server has reported its time and its limits.
    fn core() -> Core {
        let mut core = Core::new(settings());
        for runtime in [THREAD, RUNTIME] {
            core.handle_servers(NOW, Change::Connected(runtime, 0));
        }
        core.handle_timeout(NOW);
        while let Some(call) = core.poll_call(NOW, THREAD) {
            let reported = || Answer::Presence(1, None, Some(1), Some(OperatorLimits::default()));
            let answers = call.commands.iter().map(|_| reported());
            core.handle_reply(NOW, call.id, Ok(answers.collect()));
        }
        core
    }

    fn level(name: &str, limit: u32) -> LevelClaim {
        LevelClaim {
            limit,
            is_strict: true,
            ..tests::level(name, 0)
        }
    }

    fn granted() -> Result<Vec<Answer>, CallFailure> {
        let granted = Acquired::Granted(vec![(1, 1)]);
        Ok(vec![Answer::Acquired(1, vec![granted])])
    }

    #[test]
    fn a_claim_carries_no_release_that_another_task_waits_for() {
        let mut core = core();
        let (held, call) = core.acquire(NOW, RUNTIME, &[level("a", 9)]);
        core.handle_reply(NOW, call.expect("nothing is in flight").id, granted());
        let (_, busy) = core.acquire(NOW, RUNTIME, &[level("b", 9)]);
        core.release(NOW, held, true);
        assert!(core.release_alone(NOW, RUNTIME, held).is_none());
        core.handle_reply(NOW, busy.expect("the call is over").id, granted());
        let (_, call) = core.acquire(NOW, RUNTIME, &[level("c", 9)]);
        assert!(call.is_none(), "another task carries both");
        assert!(core.has_call(RUNTIME));
    }

    #[test]
    fn a_refusal_at_one_limit_leaves_the_wider_ones_with_room() {
        let mut core = core();
        let both = [level("a", 1), level("fleet", 1_000)];
        let (_, call) = core.acquire(NOW, RUNTIME, &both);
        let full = Acquired::Full {
            level: 0,
            held: 1,
            retry_after: None,
        };
        let full = Ok(vec![Answer::Acquired(1, vec![full])]);
        core.handle_reply(NOW, call.expect("nothing is in flight").id, full);
        let mut is_full = |name: &str| {
            let number = core.keys.number(&name.into());
            core.keys[number].is_full(NOW)
        };
        assert!(is_full("a") && !is_full("fleet"));
    }

    /// The permit is held for long after a refresh without an answer, which must not make its release last longer.
    #[test]
    fn a_release_is_given_up_once_the_lease_and_all_unanswered_calls_have_expired() {
        let (mut core, lease) = (core(), Duration::from_secs(10));
        let (held, call) = core.acquire(NOW, RUNTIME, &[level("a", 9)]);
        core.handle_reply(NOW, call.expect("nothing is in flight").id, granted());
        let (mut now, mut is_first) = (NOW, true);
        // Lets time pass. The server answers all calls but the first refresh, or none.
        let mut pass = |core: &mut Core, time: Duration, answers: bool| {
            let end = now + time;
            while now < end {
                now += Duration::from_millis(10);
                core.handle_timeout(now);
                while let Some(call) = core.poll_call(now, THREAD) {
                    let is_refresh = matches!(call.commands[0], Command::Refresh { .. });
                    let is_lost = is_refresh && mem::take(&mut is_first);
                    let answers = answers && !is_lost;
                    let replies = call.commands.iter().map(|command| match command {
                        Command::Presence(_) => Answer::Presence(1, None, Some(1), None),
                        _ => Answer::Held(vec![true]),
                    });
                    let reply = answers
                        .then(|| replies.collect())
                        .ok_or(CallFailure::Broken);
                    core.handle_reply(now, call.id, reply);
                }
            }
            now
        };
        pass(&mut core, lease * 30, true);
        while core.poll_event().is_some() {}
        let now = pass(&mut core, Duration::from_millis(10), true);
        core.release(now, held, true);
        pass(&mut core, lease * 3, false);
        assert_eq!(reported(&mut core), Some(false));
    }

    /// Sends two releases of one permit, which are in flight together: one by a runtime, one by the thread after a
    /// shutdown.
    fn released_twice(core: &mut Core) -> [Call; 2] {
        let (id, call) = core.acquire(NOW, RUNTIME, &[level("a", 1)]);
        core.handle_reply(NOW, call.expect("nothing is in flight").id, granted());
        core.release(NOW, id, true);
        let first = core.poll_call(NOW, RUNTIME).expect("the key is full");
        core.shutdown();
        core.handle_timeout(NOW);
        let second = core.poll_call(NOW, THREAD);
        [first, second.expect("the runtime may be about to end")]
    }

    /// The outcome of the releases that the core reports. `None` if it has reported none yet.
    fn reported(core: &mut Core) -> Option<bool> {
        let mut events = std::iter::from_fn(|| core.poll_event());
        events.find_map(|(_, event)| match event {
            Event::Released(was_held) => Some(was_held),
            _ => None,
        })
    }

    #[test]
    fn of_two_releases_the_last_answer_decides_if_the_permit_was_held() {
        let found = |found| Ok(vec![Answer::Held(vec![found])]);
        for (last, was_held) in [
            (found(true), true),
            (found(false), false),
            // It may have run.
            (Err(CallFailure::TimedOut), true),
            (Err(CallFailure::NotConnected), false),
        ] {
            let mut core = core();
            let [first, second] = released_twice(&mut core);
            core.handle_reply(NOW, second.id, found(false));
            assert_eq!(reported(&mut core), None);
            core.handle_reply(NOW, first.id, last);
            assert_eq!(reported(&mut core), Some(was_held));
            assert!(core.is_forgotten());
        }
    }

    #[test]
    fn the_first_answer_is_enough_if_it_has_found_the_permit() {
        let mut core = core();
        let [first, second] = released_twice(&mut core);
        core.handle_reply(NOW, second.id, Ok(vec![Answer::Held(vec![true])]));
        assert_eq!(reported(&mut core), Some(true));
        core.handle_reply(NOW, first.id, Ok(vec![Answer::Held(vec![false])]));
        assert_eq!(reported(&mut core), None);
    }
}
