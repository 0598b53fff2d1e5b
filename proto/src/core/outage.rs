//! Tracks outages of servers, and decides claims and permits while a server is unavailable.

use super::{
    Core,
    health::Outage,
    id::{LeaseRef, PermitId, RuntimeId},
    lease::LeaseEvent,
    permit::{ClaimedLevel, Event, PermitState, Phase, Refusal, Reported},
    time::Time,
};
use crate::verbs::tag_of;
use std::mem;

impl Core {
    /// Notes the answer to a call that was sent at `sent`. `works`: the server has run all commands of the call.
    pub(super) fn note_answer(&mut self, number: usize, sent: Time, works: bool) {
        let was_in_outage = self.is_in_outage(number);
        if works {
            self.end_denial(number);
        }
        let server = &mut self.servers[number];
        if !server.health.note_answer(sent, self.now, &self.settings) {
            return;
        }
        server.presence_at = server.presence_at.map(|_| self.now);
        if was_in_outage {
            self.outages.push_back((number, Outage::Ends { works }));
        }
        self.sweep = Some(0);
    }

    /// Notes that a server refuses connections. That is no outage: the server answers, and only a person can change the
    /// refusal.
    pub(super) fn note_denial(&mut self, server: usize) {
        self.servers[server].is_denied = true;
        self.note_answer(server, self.now, false);
        self.sweep = Some(0);
    }

    /// Notes that a server has run a call, or that the last attempt to connect was not refused. While it refused
    /// connections, other processes may have gone on without it, so it counts as just returned.
    pub(super) fn end_denial(&mut self, number: usize) {
        let server = &mut self.servers[number];
        if mem::take(&mut server.is_denied) {
            server.health.note_return(self.now);
        }
    }

    /// Notes a failed call that was sent at `sent` (rule 11). If a caller sent the call, the thread checks the server
    /// with a probe.
    pub(super) fn note_failure(&mut self, number: usize, sent: Time, is_of_thread: bool) {
        let server = &mut self.servers[number];
        let was_in_outage = server.health.is_in_outage(&self.settings);
        server.health.note_failure(sent, self.now, is_of_thread);
        if server.health.is_failing() {
            let pause = if is_of_thread {
                server.health.pause(&self.settings)
            } else {
                Time::ZERO
            };
            server.presence_at = server.presence_at.map(|at| at.min(self.now + pause));
        }
        if !was_in_outage && server.health.is_in_outage(&self.settings) {
            self.outages.push_back((number, Outage::Begins));
            self.sweep = Some(0);
        }
    }

    /// True during an outage: only probes are sent, and the policy decides claims.
    pub fn is_in_outage(&self, server: usize) -> bool {
        self.servers[server].health.is_in_outage(&self.settings)
    }

    // Claims.

    /// Decides a claim whose server is in an outage or refuses connections.
    pub(super) fn decide_if_unavailable(&mut self, id: PermitId) {
        let undecided = self.permits.get(id).filter(|permit| permit.is_claim());
        let claim = undecided.and_then(|permit| Some((permit.from, permit.current_lease()?)));
        let Some((from, current)) = claim else {
            return;
        };
        let server = self.target_of(LeaseRef(id, current));
        if self.is_in_outage(server) {
            self.decide(id, server);
        } else if self.is_denied(from, server) {
            self.refuse(id, Refusal::Failed(server));
        }
    }

    /// True if a server refuses the connection that a claim needs.
    fn is_denied(&self, from: RuntimeId, server: usize) -> bool {
        let from = self.sender_for(from, server);
        self.servers[server].is_denied && !self.has_connection(from, server)
    }

    /// Delays a claim beyond its share by a tick if it can wait. Otherwise refuses it.
    pub(super) fn hold_back(&mut self, at: LeaseRef) {
        let server = self.target_of(at);
        if self.may_wait(at.0) {
            self.schedule_call(at, self.now + self.settings.short_tick());
        } else {
            self.refuse(at.0, Refusal::Unavailable(server));
        }
    }

    /// Gives back the leases of a claim that was granted beyond its share. The claim begins again if it can wait.
    pub(super) fn restart(&mut self, at: LeaseRef) {
        let id = at.0;
        if !self.may_wait(id) {
            let server = self.target_of(at);
            return self.refuse(id, Refusal::Unavailable(server));
        }
        self.uncount(id);
        for at in self.lease_refs(id) {
            self.give_back(at);
        }
        self.start_acquire(LeaseRef(id, 0));
    }

    /// True if a claim may still wait.
    fn may_wait(&self, id: PermitId) -> bool {
        let permit = &self.permits[id];
        let mut levels = permit.levels.iter();
        levels.any(|level| permit.wait(level, self.now).is_some())
    }

    /// Handles a claim that its server cannot decide. A claim that waits is sent again. A claim that may fit into a
    /// share is sent again until the server has failed for a timeout.
    pub(super) fn handle_undecided(&mut self, id: PermitId, server: usize) {
        let has_failed_long = self.servers[server]
            .health
            .has_failed_long(self.now, &self.settings);
        let shares = !self.permits[id].is_strict && self.settings.policy.shares();
        if !self.may_wait(id) && (!shares || has_failed_long) {
            self.decide(id, server);
        }
    }

    /// Decides a claim whose deadline has passed. If its server fails or its slot is unserved, the policy decides. A
    /// policy with shares decides only once the server has failed for a timeout. All other claims are refused.
    pub(super) fn handle_deadline(&mut self, id: PermitId) {
        let current = self.permits[id].current_lease();
        let at = LeaseRef(id, current.unwrap_or_default());
        let server = self.target_of(at);
        let health = &self.servers[server].health;
        let shares = self.settings.policy.shares();
        let leases = &self.permits[id].leases;
        let was_sent = current.is_none_or(|current| leases[current].remote.was_sent());
        let is_unserved = self
            .slots
            .is_unserved(self.permits[at].route.slot, self.now);
        if health.is_failing() || is_unserved {
            if !shares || health.has_failed_long(self.now, &self.settings) {
                self.decide(id, server);
            } else {
                self.refuse(id, Refusal::Unavailable(server));
            }
        } else if !self.servers[server].is_clock_known() {
            // It does not report its time, or the first connection is still being made.
            self.refuse(id, Refusal::Failed(server));
        } else if !was_sent {
            self.refuse(id, Refusal::Congested(server));
        } else {
            self.refuse(id, Refusal::Unavailable(server));
        }
    }

    /// Decides a claim by the policy. A claim that would be admitted is refused if this process has paused one of its
    /// semaphores.
    fn decide(&mut self, id: PermitId, server: usize) {
        let permit = &self.permits[id];
        let is_refused = permit.is_strict || permit.adds_to.is_some();
        if is_refused || !self.is_within_share(permit) {
            return self.refuse(id, Refusal::Unavailable(server));
        }
        match self.paused(id) {
            Some(paused) => self.refuse(id, paused),
            None => self.admit(id),
        }
    }

    /// The refusal of a claim if this process has paused one of its semaphores.
    fn paused(&self, id: PermitId) -> Option<Refusal> {
        let levels = self.permits[id].levels.iter().enumerate();
        let mut paused = levels.filter_map(|(number, level)| {
            // A pause holds for all windows of a budget.
            let name = tag_of(&self.keys[level.key].name);
            let end = self.pauses.end_of(name, self.now)?;
            let (limit, left) = (level.units.id.limit, end - self.now);
            Some(Refusal::Paused(number, limit, left))
        });
        paused.next()
    }

    /// Admits a claim without its server.
    fn admit(&mut self, id: PermitId) {
        let permit = &self.permits[id];
        let levels = permit.levels.iter();
        let levels =
            levels.map(|level| (0, self.held_of_share(permit, level), level.units.id.limit));
        let event = Event::Granted(levels.collect());
        self.spend_locally(id);
        let then = self.now + self.settings.absence();
        for at in self.lease_refs(id) {
            self.apply(at, LeaseEvent::Admitted, then);
        }
        self.permits[id].phase = Phase::Granted(Reported::default());
        self.count(id);
        self.report_condition(id);
        self.report_expiry(id);
        self.events.push_back((id, event));
        self.set_timer(id);
    }

    /// True if the server of a lease [is well](super::server::Server::is_well). While the slot moves, this must hold
    /// for the slot's owner and for the target, because the target does not know the claims that were admitted without
    /// the owner.
    pub(super) fn is_well(&self, at: LeaseRef) -> bool {
        let owner = self.slots.owner_of(self.permits[at].route.slot);
        let mut servers = [owner, self.target_of(at)].into_iter();
        servers.all(|server| self.servers[server].is_well(self.now, &self.settings))
    }

    // Shares.

    /// The units of a semaphore that this process may hold without its server.
    pub(super) fn share(&self, level: &ClaimedLevel) -> u32 {
        let live = self.live.count();
        self.settings.policy.share(level.units.id.limit, live)
    }

    fn is_within_share(&self, permit: &PermitState) -> bool {
        let mut levels = permit.levels.iter();
        levels.all(|level| {
            if level.is_of_budget() {
                self.fits_bucket(level)
            } else {
                self.counted_with(permit, level) <= self.share(level)
            }
        })
    }

    /// The units of a semaphore that count in the share, including those of a permit.
    fn counted_with(&self, permit: &PermitState, level: &ClaimedLevel) -> u32 {
        let units = level.units.count();
        self.keys[level.key].counted + if permit.counts { 0 } else { units }
    }

    /// True if a claim must fit into its share and does not, even if servers have granted all of its leases (rule 12).
    /// While a server is not well, other processes may have admitted claims without it, and this process must not take
    /// their places.
    pub(super) fn is_beyond_share(&self, id: PermitId) -> bool {
        self.needs_share(id) && !self.is_within_share(&self.permits[id])
    }

    /// True if a claim must fit into its share now.
    pub(super) fn needs_share(&self, id: PermitId) -> bool {
        let permit = &self.permits[id];
        let mut leases = 0..permit.leases.len();
        let needs_none = !self.settings.policy.shares() || permit.is_strict || !permit.is_claim();
        let is_well = |lease| self.is_well(LeaseRef(id, lease));
        !(needs_none || leases.all(is_well))
    }

    /// The units that an admitted permit reports as held: the limit, minus the units that are left in the share.
    fn held_of_share(&self, permit: &PermitState, level: &ClaimedLevel) -> u32 {
        let limit = level.units.id.limit;
        if level.is_of_budget() && self.settings.policy.shares() {
            return limit.saturating_sub(self.left_in_bucket(level));
        }
        let used = if self.settings.policy.shares() {
            self.counted_with(permit, level)
        } else {
            level.units.count()
        };
        let left = self.share(level).min(limit).saturating_sub(used);
        limit - left
    }

    /// Counts a permit in the shares from now on (rule 12).
    pub(super) fn count(&mut self, id: PermitId) {
        let permit = &mut self.permits[id];
        if !mem::replace(&mut permit.counts, true) {
            for level in &permit.levels {
                self.keys[level.key].counted += level.units.count();
            }
        }
    }

    pub(super) fn uncount(&mut self, id: PermitId) {
        let permit = &mut self.permits[id];
        if mem::take(&mut permit.counts) {
            for level in &permit.levels {
                self.keys[level.key].counted -= level.units.count();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        core::{
            CallFailure, Change, SendQueue, THREAD,
            tests::{level, settings},
        },
        verbs::{Answer, CommandFault},
    };
    use std::time::Duration;

    /// A core with a connection to its only server.
    fn connected() -> (Core, Time) {
        let mut core = Core::new(settings());
        let now = Time::from_secs(1);
        core.handle_servers(now, Change::Connected(THREAD, 0));
        (core, now)
    }

    /// A core in the outage of its only server, which answers nothing, and the time at which the outage has begun.
    fn in_an_outage() -> (Core, Time) {
        let (mut core, mut now) = connected();
        while !core.is_in_outage(0) && now < Time::from_secs(100) {
            core.handle_timeout(now);
            while let Some(call) = core.poll_call(now, THREAD) {
                core.handle_reply(now, call.id, Err(CallFailure::TimedOut));
            }
            now += Duration::from_millis(50);
        }
        (core, now)
    }

    /// An outage may last for days.
    #[test]
    fn a_claim_that_is_decided_in_an_outage_leaves_nothing() {
        let (mut core, now) = in_an_outage();
        let (id, call) = core.acquire(now, THREAD, &[level("a", 0)]);
        assert!(call.is_none() && core.permits.get(id).is_none());
        assert!(
            core.connections
                .values()
                .all(|connection| connection.queues.is_empty(SendQueue::Claims))
        );
    }

    /// For example, the process lacks a right that the script needs, and only a person can grant it.
    #[test]
    fn a_server_that_fails_each_command_is_called_a_few_times_per_lease() {
        let (mut core, start) = connected();
        let mut calls = 0;
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            core.handle_timeout(now);
            while let Some(call) = core.poll_call(now, THREAD) {
                let failed = call
                    .commands
                    .iter()
                    .map(|_| Answer::Failed(CommandFault::Mistake));
                core.handle_reply(now, call.id, Ok(failed.collect()));
                calls += 1;
            }
        }
        // At most the first call, and one for each of the twelve heartbeats of a lease.
        assert!((3..=13).contains(&calls), "{calls} calls in a lease");
    }
}
