//! What answers, messages and the passing of time mean for leases, and for their permits.

use super::{
    Core, Stay,
    call::{Failure, Flight, Items, StoreKey},
    id::{At, CallId, PermitId, THREAD},
    lease::State,
    permit::{Event, Refusal},
    time::{PAUSE, Time},
};
use crate::redis::protocol::{Acquired, Answer, Fault, PermitId as UnitsOf, Queued};
use std::{collections::BTreeSet, mem, time::Duration};

impl Core {
    /// Whether enough replicas have what a call has written, if that matters.
    pub(super) fn is_confirmed(&self, flight: &Flight, answers: &[Answer]) -> bool {
        let mut both = flight.items.iter().zip(answers);
        both.all(|(items, answer)| match (items, answer) {
            (Items::Confirm, Answer::Replicas(have)) => *have >= self.settings.replicas,
            (Items::Confirm, _) => false,
            _ => true,
        })
    }

    pub(super) fn answered(&mut self, flight: &Flight, answers: Vec<Answer>) {
        flight.left.note_over();
        let is_unwell = |answer| matches!(answer, &Answer::Failed(Fault::Unavailable));
        let works = !answers
            .iter()
            .any(|answer| matches!(answer, Answer::Failed(_)));
        match answers.iter().any(is_unwell) {
            true => self.failed(flight.server, flight.sent, flight.runtime == THREAD),
            false => self.answers(flight.server, flight.sent, works),
        }
        let mut answers = answers.into_iter();
        for items in &flight.items {
            match answers.next() {
                Some(answer) => self.take_answer(flight, items, answer),
                None => self.not_run(flight, items, Fault::Unavailable),
            }
        }
    }

    fn take_answer(&mut self, flight: &Flight, items: &Items, answer: Answer) {
        if let Answer::Late(ms) | Answer::Acquired(ms, _) | Answer::Presence(ms, ..) = answer {
            self.servers[flight.server].observe(ms, (flight.sent, self.now));
            self.highest.raise(ms * 1_000, self.now);
        }
        match (items, answer) {
            (Items::Leave, _) => self.stay = Stay::Gone,
            (Items::Acquire(all), Answer::Acquired(_, each)) => {
                for (at, acquired) in all.iter().zip(each) {
                    self.carried_by(flight.runtime, at.0);
                    self.parts_acquired(flight, *at, &acquired);
                    match self.landed(*at, flight.id) {
                        true => self.acquired(flight.sent, *at, acquired),
                        false => self.next_at(*at, self.now),
                    }
                }
            }
            (Items::Acquire(_), Answer::Late(_)) => self.again(flight, items, self.now, None),
            (Items::Refresh(all), Answer::Held(each)) => self.refreshed(flight, all, &each),
            (Items::Release(all), Answer::Held(each)) => self.released(all, Some(&each)),
            (Items::Release(all), Answer::Done) => self.released(all, None),
            (Items::Presence(key), Answer::Presence(_, highest, live, limits)) => {
                self.announce_at(flight.server, self.announces_at(flight.sent));
                self.highest.raise(highest.unwrap_or_default(), self.now);
                if let Some(live) = live {
                    self.live.told(live, self.now, self.settings.lease);
                }
                if *key == Some(StoreKey::Limits) {
                    self.limits.are_told(true);
                    self.limits.read_at = flight.sent;
                }
                if let Some(limits) = limits {
                    self.take_limits(limits);
                }
            }
            // The server does not know the script, and is told it with the next call.
            (items, Answer::NotRun) => self.again(flight, items, self.now, None),
            (Items::Asking | Items::Confirm, _) => {}
            (items, Answer::Failed(fault)) => self.not_run(flight, items, fault),
            (items, _) => self.not_run(flight, items, Fault::Mistake),
        }
    }

    /// A server could not run a command, or not to its end.
    fn not_run(&mut self, flight: &Flight, items: &Items, fault: Fault) {
        if let (Items::Release(all), Fault::Mistake | Fault::Unavailable | Fault::Interrupted) =
            (items, fault)
        {
            self.may_have_freed(all);
        }
        let then = match fault {
            Fault::Moved(server) => self.moved(items, server),
            Fault::Ask(server) => self.asks(items, server),
            Fault::Mistake if self.take_apart(flight, items) => return,
            Fault::Mistake => self.now + self.settings.heartbeat(),
            Fault::Unserved => self.unserved(items),
            Fault::Again | Fault::Interrupted | Fault::Unavailable => self.now + PAUSE,
        };
        if let Items::Presence(key) = items {
            return self.not_announced(flight.server, *key, fault);
        }
        self.again(flight, items, then, None);
        let Items::Acquire(all) = items else {
            return;
        };
        for &at in all {
            let At(id, _) = at;
            let is_undecided = self.permit(id).is_some_and(|permit| !permit.is_decided());
            match fault {
                Fault::Mistake if is_undecided => self.refuse(id, Refusal::Failed(flight.server)),
                Fault::Unavailable | Fault::Unserved if is_undecided => {
                    self.cannot_decide(id, flight.server);
                }
                Fault::Unserved => self.next_at(at, self.now + self.settings.heartbeat()),
                _ => {}
            }
        }
    }

    /// What a command named is due then. It has not run, or has no answer for this reason.
    fn again(&mut self, flight: &Flight, items: &Items, then: Time, failure: Option<Failure>) {
        let may_run = !matches!(failure, None | Some(Failure::NotConnected));
        if !may_run {
            flight.left.note_over();
        }
        match items {
            Items::Acquire(all) | Items::Refresh(all) => {
                for at in all {
                    self.landed(*at, flight.id);
                    if let Some(lease) = self.lease(*at) {
                        lease.was_unanswered |= may_run;
                    }
                    self.next_at(*at, then);
                }
            }
            Items::Release(all) => {
                if may_run {
                    self.may_have_freed(all);
                }
                let all = all.iter().map(|(at, _)| *at);
                for at in all.collect::<BTreeSet<_>>() {
                    self.release_again(at, then);
                }
            }
            Items::Presence(_) => {
                let pause = match failure {
                    Some(Failure::Abandoned) => Duration::ZERO,
                    _ => self.servers[flight.server].health.pause(&self.settings),
                };
                self.announce_at(flight.server, then.max(self.now + pause));
            }
            Items::Leave => self.stay = Stay::Gone,
            Items::Asking | Items::Confirm => {}
        }
    }

    /// A server has not taken an announcement, or not told what it was asked.
    fn not_announced(&mut self, server: usize, key: Option<StoreKey>, fault: Fault) {
        let is_moving = !matches!(fault, Fault::Mistake | Fault::Unavailable);
        if key == Some(StoreKey::Limits) && is_moving {
            self.are_refused();
        } else if key == Some(StoreKey::Limits) && fault == Fault::Mistake {
            self.limits.are_told(false);
        }
        let health = &self.servers[server].health;
        let pause = match fault {
            // The next announcement is also a probe.
            _ if health.is_failing() => Duration::ZERO,
            // The other one is asked at once.
            Fault::Moved(_) | Fault::Ask(_) => self.settings.announcement(),
            Fault::Mistake => self.settings.heartbeat(),
            // That may be so for ever, and claims go on without it.
            _ if is_moving && self.limits.version().is_some() => self.settings.heartbeat(),
            _ => Duration::ZERO,
        };
        let pause = pause.max(health.pause(&self.settings));
        self.announce_at(server, self.now + pause);
    }

    /// This process announces itself to a server then, or before.
    fn announce_at(&mut self, server: usize, then: Time) {
        let server = &mut self.servers[server];
        let then = match mem::take(&mut server.is_asked_again) {
            true => self.now,
            false => then,
        };
        server.presence_at = Some(server.presence_at.map_or(then, |at| at.min(then)));
    }

    /// The mistake of one lease is not that of others: each is named by a command of its own. `false`: it is alone.
    fn take_apart(&mut self, flight: &Flight, items: &Items) -> bool {
        let all: BTreeSet<At> = items.leases().into_iter().collect();
        if all.len() < 2 {
            return false;
        }
        self.again(flight, items, self.now, None);
        // After that, because an answer ends it.
        for at in all {
            if let Some(lease) = self.lease(at) {
                lease.is_alone = true;
            }
        }
        true
    }

    /// A call has no answer. What was sent may run yet.
    pub(super) fn unanswered(&mut self, flight: &Flight, failure: Failure) {
        if failure == Failure::TimedOut {
            self.late_servers.insert(flight.server);
        }
        if failure != Failure::Abandoned {
            self.failed(flight.server, flight.sent, flight.runtime == THREAD);
        }
        let then = match failure {
            // Until its end is noticed a connection that is broken takes what is sent.
            Failure::NotConnected | Failure::Broken => self.now + PAUSE,
            _ => self.now,
        };
        for items in &flight.items {
            self.again(flight, items, then, Some(failure));
        }
        self.hand_over(flight.runtime, flight.server);
    }

    /// A call of a lease is over. Returns whether the lease has waited for it: not if it has got a new id since.
    fn landed(&mut self, at: At, call: CallId) -> bool {
        let lease = self.lease(at);
        lease.is_some_and(|lease| lease.call.take_if(|own| *own == call).is_some())
    }

    /// The next call of a lease is due then.
    pub(super) fn next_at(&mut self, at: At, then: Time) {
        if let Some(lease) = self.lease(at) {
            lease.next = then;
        }
        self.send_if_due(at);
        self.file(at.0);
    }

    // Acquires.

    /// After a refusal nothing of a lease is left, if no other acquire could run any more when it was sent: it may run
    /// before one that was sent before.
    fn acquired(&mut self, sent: Time, at: At, acquired: Acquired) {
        match &acquired {
            Acquired::Granted(grants) => self.note_full_after_grant(at, grants),
            _ => self.note_full(at, |_| true),
        }
        let lease = &self.permits[at];
        let is_refusal = !matches!(acquired, Acquired::Granted(_) | Acquired::Queued(_));
        match (&lease.state, acquired) {
            (State::Idle, _) => {}
            (State::Released(_), _) if is_refusal && lease.runs_until() <= sent => self.done(at),
            (State::Released(_), _) => self.next_at(at, self.now),
            (_, Acquired::Revoked) => self.end(at.0, Refusal::Revoked),
            (State::Lost(_), Acquired::Granted(grants)) => self.returned(sent, at, &grants),
            // The answer to a poll from before the loss.
            (State::Lost(_), Acquired::Queued(_)) => self.next_at(at, self.now),
            (State::Lost(_), _) => {
                let is_gone = lease.runs_until() <= sent;
                let pause = match self.is_well(at) {
                    true => self.settings.absence(),
                    // Others get places, and it is to be before they may have more than their shares.
                    false => self.settings.short_tick(),
                };
                self.lose(at, self.now + pause, is_gone);
            }
            (State::Held(_), Acquired::Granted(_)) => {
                self.hold(at, self.lasts(at, sent));
            }
            (State::Held(_), _) => self.next_at(at, self.now),
            (_, Acquired::Granted(grants)) => {
                let lasts = self.lasts(at, sent);
                self.granted(at, &grants, lasts);
            }
            (_, Acquired::Queued(queued)) => self.queued(sent, at, queued),
            (_, Acquired::Full { level, held }) => {
                let why = self.permits[at.0].refusal(lease.levels.start + level, held);
                self.refused(sent, at, why);
            }
            (_, Acquired::QueueFull { level, .. }) => {
                let level = lease.levels.start + level;
                let limit = self.permits[at.0].levels[level].units.limit;
                self.refused(sent, at, Refusal::QueueFull(level, limit));
            }
        }
    }

    /// The same, of what a lease has given up since the acquire was sent.
    fn parts_acquired(&mut self, flight: &Flight, at: At, acquired: &Acquired) {
        let parts = self.parts.get(&flight.id).into_iter().flatten();
        let parts = parts.filter(|(lease, _)| *lease == at);
        for part in parts.map(|(_, part)| *part).collect::<Vec<_>>() {
            if self.lease(part).is_some() {
                self.acquired(flight.sent, part, acquired.clone());
            }
        }
    }

    /// Notes which semaphores of a lease have no room for another claim like this one after a grant.
    fn note_full_after_grant(&mut self, at: At, grants: &[(u64, u32)]) {
        let mut held = grants.iter().map(|(_, held)| *held);
        self.note_full(at, |units| {
            let held = held.next().unwrap_or_default();
            held.saturating_add(units.weight) > units.limit
        });
    }

    /// Notes which semaphores of a lease are full.
    fn note_full(&mut self, at: At, mut is_full: impl FnMut(&UnitsOf) -> bool) {
        for level in self.permits[at.0].levels_of(at.1) {
            if is_full(&level.units) {
                self.keys[level.key].note_full(self.now);
            }
        }
    }

    /// When a lease is refreshed that was acquired or refreshed then, and lasts so long. Those of a tick travel
    /// together.
    fn refresh_at(&self, sent: Time, length: Duration) -> Time {
        if length < self.settings.lease {
            return sent + self.settings.heartbeat();
        }
        let tick = self.settings.tick().as_micros().max(1);
        let next = (sent + self.settings.refresh_interval()).as_micros();
        Time::from_micros((next - next % tick) as u64)
    }

    /// Until when a lease is held that was acquired or refreshed then, and when it is refreshed.
    pub(super) fn lasts(&self, at: At, sent: Time) -> (Time, Time) {
        let length = self.permits[at].length;
        let end = self.settings.held_until(sent, length);
        // What was sent before that does not tell what has become of it since.
        let is_old = sent < self.servers[self.server_of(at)].lost_before;
        let next = (!is_old).then(|| self.refresh_at(sent, length));
        (end, next.unwrap_or(self.now))
    }

    pub(super) fn hold(&mut self, at: At, (end, next): (Time, Time)) {
        self.permits[at].hold(end);
        self.tell_end(at.0);
        self.next_at(at, next);
    }

    pub(super) fn tell_end(&mut self, id: PermitId) {
        let root = self.permits[id].root();
        let end = self.held_until(root);
        let end = end.map(|end| end + self.settings.lateness());
        self.events.extend(end.map(|end| (root, Event::Held(end))));
    }

    /// A lease of a claim is held. Its next lease is acquired, or the claim is granted.
    fn granted(&mut self, at: At, grants: &[(u64, u32)], lasts: (Time, Time)) {
        self.permits[at.0].take(at.1, grants);
        self.hold(at, lasts);
        let permit = &self.permits[at.0];
        if let Some(wider) = permit.current() {
            return self.want(At(at.0, wider));
        }
        if permit.is_decided() {
            return;
        }
        if self.is_beyond_share(at.0) {
            return self.begin_again(at);
        }
        self.count(at.0);
        self.permits[at.0].budget = None;
        let permit = &self.permits[at.0];
        let event = Event::Granted {
            levels: permit.grants().collect(),
            is_full: self.is_any_full(&permit.levels),
        };
        self.tell_end(at.0);
        self.events.push_back((at.0, event));
        // Its leases are refreshed that were to last only until the claim is whole.
        self.each_of(at.0, |core, at| {
            if core.permits[at].length < core.settings.lease {
                core.next_at(at, core.now);
            }
        });
    }

    fn queued(&mut self, sent: Time, at: At, mut queued: Queued) {
        let pause = self.settings.poll(queued.recheck.is_some());
        let recheck = queued.recheck.map(|after| after + Duration::from_millis(1));
        let pause = recheck.map_or(pause, |after| after.min(pause));
        let permit = &mut self.permits[at.0];
        queued.level += permit.leases[at.1].levels.start;
        let level = queued.level;
        let over = permit.waits_until(level).max(self.now);
        let lease = &mut permit.leases[at.1];
        let before = lease.queued_at();
        let pause = match mem::take(&mut lease.was_notified) {
            true => Duration::ZERO,
            false => pause,
        };
        lease.state = State::Queued(queued, sent);
        self.uncount(at.0);
        if before != Some(level) {
            self.events.push_back((at.0, Event::Queued(level)));
        }
        self.next_at(at, over.min(self.now + pause));
    }

    fn refused(&mut self, sent: Time, at: At, why: Refusal) {
        let lease = &mut self.permits[at];
        if lease.runs_until() <= sent {
            lease.state = State::Idle;
        }
        self.refuse(at.0, why);
    }

    pub(super) fn refuse(&mut self, id: PermitId, why: Refusal) {
        self.events.push_back((id, Event::Refused(why)));
        self.let_go(id);
    }

    // Messages.

    /// A waiter of this process was granted with this token, or should poll.
    pub(super) fn notified(&mut self, id: PermitId, serial: u64, token: u64, held: u32) {
        let permit = &self.permits[id];
        let Some(number) = permit.current().filter(|_| !permit.is_decided()) else {
            return;
        };
        // Else it does not say of which level it tells, or no replica may have it.
        let is_one = permit.levels.len() == 1 && permit.levels[0].units.serial == serial;
        let is_one = is_one && self.settings.replicas == 0;
        let at = At(id, number);
        let lease = &mut self.permits[At(id, number)];
        // An answer from before it may be on its way.
        lease.was_notified = lease.call.is_some();
        let State::Queued(queued, polled) = &lease.state else {
            return;
        };
        let end = self.settings.held_until(*polled, self.settings.alive());
        let is_grant = is_one && token > queued.last_token && end > self.now;
        self.carried_by(THREAD, id);
        if is_grant {
            self.note_full_after_grant(at, &[(token, held)]);
            self.granted(at, &[(token, held)], (end, self.now));
        } else {
            self.next_at(at, self.now);
        }
    }

    // Refreshes.

    /// A lease of several levels has an answer for each, and is held if all are.
    fn refreshed(&mut self, flight: &Flight, all: &[At], each: &[bool]) {
        let lost = all.iter().zip(each).filter(|(_, is_held)| !**is_held);
        let lost: BTreeSet<At> = lost.map(|(at, _)| *at).collect();
        for at in all.iter().copied().collect::<BTreeSet<_>>() {
            let is_own = self.landed(at, flight.id);
            let is_lost = lost.contains(&at);
            let held = self.lease(at).and_then(|lease| match &lease.state {
                State::Held(end) if is_own && !(is_lost && lease.outdated == Some(flight.id)) => {
                    Some(*end)
                }
                _ => None,
            });
            match held {
                None => self.next_at(at, self.now),
                Some(end) if is_lost => self.not_found(at, end),
                Some(_) => {
                    self.permits[at].refreshed(self.now);
                    self.hold(at, self.lasts(at, flight.sent));
                }
            }
        }
        if !lost.is_empty() {
            self.look_again(flight.sent, flight.server);
        }
    }

    /// A server has not found a lease. It comes back at once, if it can, and is told at its end at the latest; a strict
    /// one at once, because another holder may have had it in between.
    fn not_found(&mut self, at: At, end: Time) {
        // The server may have other levels and units of it.
        let is_gone = false;
        if self.permits[at.0].is_strict || self.is_kept(at) && !self.is_well(at) {
            return self.lose(at, self.now, is_gone);
        }
        self.set_absent(at, Some(end), is_gone);
        self.next_at(at, self.now);
    }

    /// A server that has lost a lease may have lost others: all that were not refreshed since are due.
    pub(super) fn look_again(&mut self, sent: Time, server: usize) {
        let lost_before = &mut self.servers[server].lost_before;
        // What was sent with a new connection may find what was lost before it.
        if *lost_before <= sent {
            *lost_before = sent;
            self.sweep = Some(0);
        }
    }

    pub(super) fn refresh_soon(&mut self, id: PermitId) {
        self.each_of(id, |core, at| {
            let (server, lease) = (core.server_of(at), &core.permits[at]);
            let lost_before = core.servers[server].lost_before;
            let found_until = core.settings.held_until(lost_before, core.settings.lease);
            let is_due = match &lease.state {
                State::Held(end) => *end < found_until,
                State::Queued(_, polled) => *polled < lost_before,
                _ => lease.is_absent() && !core.is_open(server),
            };
            if is_due && lease.next > core.now {
                core.next_at(at, core.now);
            }
        });
    }
}
