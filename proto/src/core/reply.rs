//! Applies answers, failures and messages to leases and their permits.

use super::{
    Core, Membership,
    call::{CallFailure, Flight, Items, StoreKey},
    end::EndCause,
    id::{CallId, DebtId, LeaseRef, PermitId, THREAD},
    lease::{InFlight, LeaseEvent, LeaseState, Outcome},
    permit::{Event, PermitState, Phase, Refusal, Reported},
    time::{PAUSE, Time},
};
use crate::verbs::{Acquired, Answer, CommandFault, LeaseName, Queued};
use std::{collections::BTreeSet, mem, time::Duration};

/// The fate of a command that is sent again, as far as this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Execution {
    /// The command has not run and never will.
    NotRun,
    /// It is over and has failed. It may have run in part.
    Failed,
    /// It has no answer. It may have run, and may still run.
    Unanswered,
}

impl Core {
    /// True if enough replicas have the writes of a call, or if none are required (rule 15).
    pub(super) fn is_confirmed(&self, flight: &Flight, answers: &[Answer]) -> bool {
        let mut answered = flight.items.iter().zip(answers);
        answered.all(|(items, answer)| match (items, answer) {
            (Items::Confirm, Answer::Replicas(have)) => *have >= self.settings.replicas,
            (Items::Confirm, _) => false,
            _ => true,
        })
    }

    pub(super) fn handle_answers(&mut self, flight: &Flight, answers: Vec<Answer>) {
        flight.progress.note_over();
        let is_unavailable = |answer| matches!(answer, &Answer::Failed(CommandFault::Unavailable));
        let works = !answers
            .iter()
            .any(|answer| matches!(answer, Answer::Failed(_)));
        if answers.iter().any(is_unavailable) {
            self.note_failure(flight.server, flight.sent, flight.runtime == THREAD);
        } else {
            self.note_answer(flight.server, flight.sent, works);
        }
        let mut answers = answers.into_iter();
        for items in &flight.items {
            match answers.next() {
                Some(answer) => self.handle_answer(flight, items, answer),
                None => self.handle_fault(flight, items, CommandFault::Unavailable),
            }
        }
    }

    fn handle_answer(&mut self, flight: &Flight, items: &Items, answer: Answer) {
        if let Answer::Late(ms) | Answer::Acquired(ms, _) | Answer::Presence(ms, ..) = answer {
            self.servers[flight.server].observe(ms, (flight.sent, self.now));
            self.highest.raise(ms * 1_000, self.now);
        }
        match (items, answer) {
            (Items::Leave, _) => self.membership = Membership::Gone,
            (Items::Acquire(_, all), Answer::Acquired(_, each)) => {
                for (at, acquired) in all.iter().zip(each) {
                    self.move_to_runtime(flight.runtime, at.0);
                    self.handle_acquired_debts(flight, *at, &acquired);
                    if let Some(ended) = self.complete_lease_call(*at, flight.id) {
                        self.handle_acquired(flight.sent, *at, acquired, ended.was_notified);
                    }
                }
            }
            (Items::Acquire(..), Answer::Late(_)) => {
                self.retry(flight, items, self.now, Execution::NotRun);
            }
            (Items::Refresh(_, all), Answer::Held(each)) => {
                self.handle_refreshed(flight, all, &each);
            }
            (Items::Release(_, all), Answer::Held(each)) => self.handle_released(all, Some(&each)),
            (Items::Release(_, all), Answer::Done) => self.handle_released(all, None),
            (Items::Presence(key), Answer::Presence(_, highest, live, limits)) => {
                self.schedule_announcement(flight.server, self.next_announcement(flight.sent));
                self.highest.raise(highest.unwrap_or_default(), self.now);
                if let Some(live) = live {
                    self.live.record(live, self.now, self.settings.lease);
                }
                if *key == Some(StoreKey::Limits) {
                    self.limits.note_reported();
                    self.limits.read_at = flight.sent;
                }
                if let Some(limits) = limits {
                    self.take_limits(limits);
                }
            }
            // The server does not know the script. The next call sends its text.
            (items, Answer::NotRun) => self.retry(flight, items, self.now, Execution::NotRun),
            (Items::Asking | Items::Confirm, _) => {}
            (items, Answer::Failed(fault)) => self.handle_fault(flight, items, fault),
            (items, _) => self.handle_fault(flight, items, CommandFault::Mistake),
        }
    }

    /// Handles a command that a server could not run, or not to its end.
    fn handle_fault(&mut self, flight: &Flight, items: &Items, fault: CommandFault) {
        let then = match fault {
            // Rule 14.
            CommandFault::Moved(server) => self.handle_moved(items, server),
            CommandFault::Ask(server) => self.handle_ask(items, server),
            CommandFault::Mistake if self.take_apart(flight, items) => return,
            CommandFault::Mistake => self.now + self.settings.heartbeat(),
            CommandFault::Unserved => self.handle_unserved(items),
            CommandFault::Again | CommandFault::Interrupted | CommandFault::Unavailable => {
                self.now + PAUSE
            }
        };
        if let Items::Presence(key) = items {
            return self.handle_presence_fault(flight.server, *key, fault);
        }
        let execution = match fault {
            CommandFault::Mistake | CommandFault::Unavailable | CommandFault::Interrupted => {
                Execution::Failed
            }
            CommandFault::Moved(_)
            | CommandFault::Ask(_)
            | CommandFault::Again
            | CommandFault::Unserved => Execution::NotRun,
        };
        self.retry(flight, items, then, execution);
        let Items::Acquire(_, all) = items else {
            return;
        };
        for &at in all {
            let LeaseRef(id, _) = at;
            let is_undecided = self.permits.get(id).is_some_and(PermitState::is_claim);
            let is_missing = self.lease(at).is_some_and(|lease| lease.is_missing());
            match fault {
                CommandFault::Mistake if is_undecided => {
                    self.refuse(id, Refusal::Failed(flight.server));
                }
                // Rule 6. Its old id is being released already.
                CommandFault::Mistake if is_missing => {
                    self.apply(at, LeaseEvent::Refused(self.on_loss(at)), then);
                }
                CommandFault::Unavailable | CommandFault::Unserved if is_undecided => {
                    self.handle_undecided(id, flight.server);
                }
                CommandFault::Unserved => {
                    self.schedule_call(at, self.now + self.settings.heartbeat());
                }
                _ => {}
            }
        }
    }

    /// Schedules the leases, debts or key of a command again.
    fn retry(&mut self, flight: &Flight, items: &Items, then: Time, execution: Execution) {
        match execution {
            Execution::NotRun => self.note_not_run(flight, items),
            Execution::Failed | Execution::Unanswered => self.note_may_have_run(items.debts()),
        }
        match items {
            Items::Acquire(_, all) | Items::Refresh(_, all) => {
                for at in all {
                    if self.complete_lease_call(*at, flight.id).is_some() {
                        if execution == Execution::Unanswered {
                            self.permits[*at].remote.note_unanswered();
                        }
                        self.schedule_call(*at, then);
                    }
                    for debt in self.debts_in(flight.id, *at) {
                        self.release_at(debt, then);
                    }
                }
            }
            Items::Release(..) => {
                for debt in items.debts() {
                    self.finish_release(debt, then);
                }
            }
            Items::Presence(_) => {
                let pause = self.servers[flight.server].health.pause(&self.settings);
                self.schedule_announcement(flight.server, then.max(self.now + pause));
            }
            Items::Leave => self.membership = Membership::Gone,
            Items::Asking | Items::Confirm => {}
        }
    }

    /// Handles a command of an announcement that a server has not run.
    fn handle_presence_fault(&mut self, server: usize, key: Option<StoreKey>, fault: CommandFault) {
        let is_moving = !matches!(fault, CommandFault::Mistake | CommandFault::Unavailable);
        if key == Some(StoreKey::Limits) && is_moving {
            self.note_limits_refused();
        } else if key == Some(StoreKey::Limits) && fault == CommandFault::Mistake {
            self.limits.note_unreported();
        }
        let health = &self.servers[server].health;
        let pause = match fault {
            // The next announcement is also a probe, which only waits for the pause below.
            _ if health.is_failing() => Duration::ZERO,
            // The key is with another server, to which an announcement is due already.
            CommandFault::Moved(_) | CommandFault::Ask(_) => self.settings.announcement(),
            CommandFault::Mistake => self.settings.heartbeat(),
            // The move may never end, and claims do not wait for the limits.
            _ if is_moving && self.limits.version().is_some() => self.settings.heartbeat(),
            _ => Duration::ZERO,
        };
        let pause = pause.max(health.pause(&self.settings));
        self.schedule_announcement(server, self.now + pause);
    }

    /// Schedules an announcement to a server at this time, or now if a key has moved there since the last one. If it is
    /// scheduled earlier already, that stays.
    fn schedule_announcement(&mut self, server: usize, then: Time) {
        let server = &mut self.servers[server];
        let then = if mem::take(&mut server.must_announce_again) {
            self.now
        } else {
            then
        };
        server.presence_at = Some(server.presence_at.map_or(then, |at| at.min(then)));
    }

    /// Schedules each lease or debt of a failed command again, for a separate command (rule 16). Returns false if the
    /// command names only one.
    fn take_apart(&mut self, flight: &Flight, items: &Items) -> bool {
        let leases: BTreeSet<LeaseRef> = items.leases().iter().copied().collect();
        let debts: BTreeSet<DebtId> = items.debts();
        if leases.len() + debts.len() < 2 {
            return false;
        }
        self.retry(flight, items, self.now, Execution::Failed);
        // `retry` has only queued them. A lease keeps the flag until it is held again, a debt for good.
        for at in leases {
            if let Some(lease) = self.lease(at) {
                lease.route.is_alone = true;
            }
        }
        for debt in debts {
            if let Some(debt) = self.debts.get_mut(debt) {
                debt.route.is_alone = true;
            }
        }
        true
    }

    /// Handles a failed call. Its commands may still run.
    pub(super) fn handle_no_answer(&mut self, flight: &Flight, failure: CallFailure) {
        if failure == CallFailure::TimedOut {
            self.late_servers.insert(flight.server);
        }
        if failure != CallFailure::Abandoned {
            self.note_failure(flight.server, flight.sent, flight.runtime == THREAD);
        }
        let then = match failure {
            // A pause, because a broken connection accepts commands until its end is noticed.
            CallFailure::NotConnected | CallFailure::Broken => self.now + PAUSE,
            _ => self.now,
        };
        let execution = if failure == CallFailure::NotConnected {
            flight.progress.note_over();
            Execution::NotRun
        } else {
            Execution::Unanswered
        };
        for items in &flight.items {
            match items {
                // No pause, because the server is not to blame.
                Items::Presence(_) if failure == CallFailure::Abandoned => {
                    self.schedule_announcement(flight.server, then);
                }
                _ => self.retry(flight, items, then, execution),
            }
        }
        self.move_claims_to_thread(flight.runtime, flight.server);
    }

    /// Notes that a call of a lease is over. `None` if the lease no longer waits for the call: it is gone or has a new
    /// id.
    fn complete_lease_call(&mut self, at: LeaseRef, call: CallId) -> Option<InFlight> {
        self.lease(at)?.complete(call)
    }

    /// Schedules the next call of a lease.
    pub(super) fn schedule_call(&mut self, at: LeaseRef, then: Time) {
        if let Some(lease) = self.lease(at) {
            lease.schedule(then);
        }
        self.enqueue_if_due(at);
        self.set_timer(at.0);
    }

    // Acquires.

    /// Applies the answer to an acquire. `was_notified`: a message may have come since it was sent.
    fn handle_acquired(
        &mut self,
        sent: Time,
        at: LeaseRef,
        acquired: Acquired,
        was_notified: bool,
    ) {
        let levels = self.permits[at.0].levels_of(at.1);
        self.keys.note_answer(levels, &acquired, self.now);
        let (permit, lease) = (&self.permits[at.0], &self.permits[at]);
        match acquired {
            Acquired::Granted(grants) => {
                let lasts = self.end_and_next_refresh(at, sent);
                self.handle_grant(at, &grants, lasts);
            }
            Acquired::Queued(queued) => self.handle_queued(sent, at, queued, was_notified),
            Acquired::Full {
                level,
                held,
                retry_after,
            } => {
                let why = permit.refusal(lease.levels.start + level, held, retry_after);
                self.handle_refusal(sent, at, why);
            }
            Acquired::QueueFull { level, .. } => {
                let (level, limit) = self.limit_at(at, level);
                self.handle_refusal(sent, at, Refusal::QueueFull(level, limit));
            }
            Acquired::Paused { level, left } => {
                let (level, limit) = self.limit_at(at, level);
                self.handle_refusal(sent, at, Refusal::Paused(level, limit, left));
            }
            // A revocation ends the whole permit, also if only a growth of it meets the revocation.
            Acquired::Revoked if !matches!(lease.state, LeaseState::NotStarted) => {
                self.end(permit.root(), EndCause::Revoked);
            }
            Acquired::Revoked => {}
        }
    }

    /// Converts the index of a level in its lease to its index in the permit. Returns the limit there too.
    fn limit_at(&self, at: LeaseRef, level: usize) -> (usize, u32) {
        let permit = &self.permits[at.0];
        let level = permit.leases[at.1].levels.start + level;
        (level, permit.levels[level].units.id.limit)
    }

    /// The next refresh of a lease that was acquired or refreshed at `sent` for this length. Refreshes within one tick
    /// are sent together.
    fn refresh_at(&self, sent: Time, length: Duration) -> Time {
        if length < self.settings.lease {
            return sent + self.settings.heartbeat();
        }
        let tick = self.settings.tick().as_micros().max(1);
        let next = (sent + self.settings.refresh_interval()).as_micros();
        Time::from_micros((next - next % tick) as u64)
    }

    /// The end of a lease that a call from `sent` has acquired or refreshed, and the time of its next refresh.
    pub(super) fn end_and_next_refresh(&self, at: LeaseRef, sent: Time) -> (Time, Time) {
        let length = self.permits[at].remote.length();
        let end = self.settings.lease_end(sent, length);
        // The server may have lost the lease after this call.
        let is_old = sent < self.servers[self.target_of(at)].lost_before;
        let next = (!is_old).then(|| self.refresh_at(sent, length));
        (end, next.unwrap_or(self.now))
    }

    /// Reports until when the holder may rely on a permit or on the root of a growth, if it may.
    pub(super) fn report_expiry(&mut self, id: PermitId) {
        let root = self.permits[id].root();
        let end = self.whole_until(root);
        let end = end.map(|end| end + self.settings.lateness());
        self.events.extend(end.map(|end| (root, Event::Held(end))));
    }

    /// Notes that a lease is held until `end`, and schedules its refresh for `next`.
    fn handle_grant(&mut self, at: LeaseRef, grants: &[(u64, u32)], (end, next): (Time, Time)) {
        let permit = &mut self.permits[at.0];
        let outcome = permit.leases[at.1].on(LeaseEvent::Granted(end));
        match outcome {
            Outcome::Nothing => return,
            Outcome::Advances | Outcome::Returns(true) => permit.take_grants(at.1, grants),
            // The holder was not notified of a loss, and keeps its tokens.
            _ => {}
        }
        let root = permit.root();
        self.report_expiry(at.0);
        self.schedule_call(at, next);
        match outcome {
            Outcome::Advances => self.advance(at),
            Outcome::Returns(true) => self.report_condition(root),
            _ => {}
        }
    }

    /// Acquires the next lease of a claim, or grants the claim (rules 5 and 21).
    fn advance(&mut self, at: LeaseRef) {
        if let Some(wider) = self.permits[at.0].current_lease() {
            return self.start_acquire(LeaseRef(at.0, wider));
        }
        if self.is_beyond_share(at.0) {
            return self.restart(at);
        }
        let claiming = self.permits[at.0].claiming_mut();
        if claiming.is_some_and(|claiming| mem::take(&mut claiming.must_reacquire)) {
            return self.reacquire(at);
        }
        self.count(at.0);
        self.charge(at.0);
        self.permits[at.0].phase = Phase::Granted(Reported::default());
        let permit = &self.permits[at.0];
        let event = Event::Granted(permit.grants().collect());
        // First, so that the holder never sees a granted permit without an end.
        self.report_expiry(at.0);
        self.events.push_back((at.0, event));
        // Refreshes the leases that were acquired only until the claim is decided.
        for at in self.lease_refs(at.0) {
            if self.permits[at].remote.length() < self.settings.lease {
                self.schedule_call(at, self.now);
            }
        }
    }

    /// Acquires the narrower leases of a claim again, under the same ids (rule 21).
    fn reacquire(&mut self, LeaseRef(id, widest): LeaseRef) {
        for lease in &mut self.permits[id].leases[..widest] {
            lease.on(LeaseEvent::Turn);
        }
        self.start_acquire(LeaseRef(id, 0));
    }

    fn handle_queued(&mut self, sent: Time, at: LeaseRef, mut queued: Queued, was_notified: bool) {
        let heartbeat = self.settings.heartbeat();
        // One more, because the server counts full milliseconds.
        let recheck = queued.recheck.map(|after| after + Duration::from_millis(1));
        let poll_in = recheck.map_or(heartbeat, |after| after.min(heartbeat));
        let permit = &mut self.permits[at.0];
        queued.level += permit.leases[at.1].levels.start;
        let level = queued.level;
        let over = permit.waits_until(level).max(self.now);
        let lease = &mut permit.leases[at.1];
        let (before, pause_left) = (lease.queued_at(), queued.pause);
        match lease.on(LeaseEvent::Queued(queued, sent)) {
            Outcome::Waits => self.give_wider_back(at),
            // A message or a loss came before this answer.
            Outcome::CallsAgain => return self.schedule_call(at, self.now),
            _ => return,
        }
        // The wait ends before the pause does. The pause counts from `sent`, so that a slow answer refuses no claim.
        if let Some(left) = pause_left.filter(|left| over < sent + *left) {
            let limit = self.permits[at.0].levels[level].units.id.limit;
            return self.refuse(at.0, Refusal::Paused(level, limit, left));
        }
        // The wait ends before a budget can have enough units.
        if let Some(earliest) = queued.earliest.filter(|left| over < sent + *left) {
            let limit = self.permits[at.0].levels[level].units.id.limit;
            return self.refuse(at.0, Refusal::Full(level, limit, limit, Some(earliest)));
        }
        self.uncount(at.0);
        // Rule 18. The lease may wait at a narrower level than before, whose limit has changed since.
        let is_due = was_notified || self.has_changed(at);
        let poll_in = if is_due { Duration::ZERO } else { poll_in };
        if before != Some(level) {
            self.events.push_back((at.0, Event::Queued(level)));
        }
        self.schedule_call(at, over.min(self.now + poll_in));
    }

    fn handle_refusal(&mut self, sent: Time, at: LeaseRef, why: Refusal) {
        // While the server is not well, no process takes more than its share. So a lease that went on without the
        // server is tried again soon: once the shares end, other processes may take its place.
        let retry_in = if self.is_well(at) {
            self.settings.absence()
        } else {
            self.settings.short_tick()
        };
        let lease = &mut self.permits[at];
        // If it is held, a message has granted it since the call was sent.
        if !lease.is_held() {
            lease.remote.note_refused(sent);
        }
        let event = LeaseEvent::Refused(self.on_loss(at));
        if self.apply(at, event, self.now + retry_in) == Outcome::IsRefused {
            self.refuse(at.0, why);
        }
    }

    // Messages.

    /// Handles a message that a waiter was granted with this token, or that it should poll (rule 8).
    pub(super) fn handle_notification(
        &mut self,
        id: PermitId,
        name: LeaseName,
        token: u64,
        held: u32,
    ) {
        let permit = &self.permits[id];
        let Some(number) = permit.current_lease().filter(|_| permit.is_claim()) else {
            return;
        };
        // With several levels the message does not name the level. With replicas, one of them may lack the grant.
        let is_one = permit.levels.len() == 1 && permit.levels[0].units.id.name == name;
        let is_sure = is_one && self.settings.replicas == 0;
        let is_wait_over = permit.waits_until(permit.waits_at(number)) <= self.now;
        let at = LeaseRef(id, number);
        let lease = &mut self.permits[at];
        // An answer that was sent before the message may still arrive.
        lease.notify();
        let LeaseState::Queued(queued, polled) = &lease.state else {
            return;
        };
        let end = self.settings.lease_end(*polled, self.settings.alive());
        // The acquire in flight does not wait any more. It may be refused because of a pause, and then the units are
        // free.
        let may_be_refused = is_wait_over && lease.call().is_some();
        let is_grant = is_sure && token > queued.last_token && end > self.now && !may_be_refused;
        self.move_to_runtime(THREAD, id);
        if is_grant {
            let levels = self.permits[id].levels_of(number);
            self.keys.note_grant(levels, &[(token, held)], self.now);
            self.handle_grant(at, &[(token, held)], (end, self.now));
        } else {
            self.schedule_call(at, self.now);
        }
    }

    // Refreshes.

    /// Applies the answers to a refresh. A lease of several levels has an answer for each, and is held if all are.
    fn handle_refreshed(&mut self, flight: &Flight, all: &[LeaseRef], each: &[bool]) {
        let lost = all.iter().zip(each).filter(|(_, is_held)| !**is_held);
        let lost: BTreeSet<LeaseRef> = lost.map(|(at, _)| *at).collect();
        for at in all.iter().copied().collect::<BTreeSet<_>>() {
            let Some(ended) = self.complete_lease_call(at, flight.id) else {
                continue;
            };
            if !lost.contains(&at) {
                self.handle_found(at, flight.sent);
            } else if ended.has_shrunk {
                self.schedule_call(at, self.now);
            } else {
                self.apply(at, LeaseEvent::NotFound(self.on_loss(at)), self.now);
            }
        }
        if !lost.is_empty() {
            self.refresh_all_since(flight.sent, flight.server);
        }
    }

    /// Handles a lease that a refresh has found.
    fn handle_found(&mut self, at: LeaseRef, sent: Time) {
        let (end, next) = self.end_and_next_refresh(at, sent);
        let lease = &mut self.permits[at];
        match lease.on(LeaseEvent::Found(end)) {
            Outcome::IsHeld => {
                lease.remote.note_refreshed(self.now);
                self.report_expiry(at.0);
                self.schedule_call(at, next);
            }
            _ => self.schedule_call(at, self.now),
        }
    }

    /// Notes that a server may have lost leases or messages before `sent`. So the next sweep makes a call due for each
    /// lease that was not found since.
    pub(super) fn refresh_all_since(&mut self, sent: Time, server: usize) {
        let lost_before = &mut self.servers[server].lost_before;
        // `<=`, because a second loss in the same instant needs another sweep.
        if *lost_before <= sent {
            *lost_before = sent;
            self.sweep = Some(0);
        }
    }

    /// Makes the next call due for each lease that its server may have lost since it was last found, and for each
    /// missing lease whose server is not in an outage.
    pub(super) fn refresh_soon(&mut self, id: PermitId) {
        for at in self.lease_refs(id) {
            let (server, lease) = (self.target_of(at), &self.permits[at]);
            let lost_before = self.servers[server].lost_before;
            // A lease that ends before this was last refreshed before the loss.
            let found_until = self.settings.lease_end(lost_before, self.settings.lease);
            let is_due = match &lease.state {
                LeaseState::Held(end) => *end < found_until,
                LeaseState::Queued(_, polled) => *polled < lost_before,
                _ => lease.is_missing() && !self.is_in_outage(server),
            };
            if is_due && lease.is_scheduled_after(self.now) {
                self.schedule_call(at, self.now);
            }
        }
    }
}
