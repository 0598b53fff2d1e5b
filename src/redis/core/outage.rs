//! What calls tell of their server, and what becomes of claims and permits while it is unavailable.

use super::{
    Core,
    health::Outage,
    id::{At, PermitId, RuntimeId},
    permit::{Event, Own, Permit, Refusal},
    policy::WhenUnavailable,
    time::{FOREVER, Time},
};
use std::mem;

impl Core {
    /// A server has answered what was sent to it then. If it `works` it has also done all of that.
    pub(super) fn answers(&mut self, number: usize, sent: Time, works: bool) {
        let was_open = self.is_open(number);
        if works {
            self.ends_denial(number);
        }
        let server = &mut self.servers[number];
        if !server.health.works(sent, self.now, &self.settings) {
            return;
        }
        server.presence_at = server.presence_at.map(|_| self.now);
        if was_open {
            self.outages.push_back((number, Outage::Ends { works }));
        }
        self.sweep = Some(0);
    }

    /// A server refuses connections. It is there, and only a person can mend that.
    pub(super) fn denied(&mut self, server: usize) {
        self.servers[server].is_denied = true;
        self.answers(server, self.now, false);
        self.sweep = Some(0);
    }

    /// A server no longer refuses connections. While it did, other processes may have gone on without it.
    pub(super) fn ends_denial(&mut self, number: usize) {
        let server = &mut self.servers[number];
        if mem::take(&mut server.is_denied) {
            server.health.succeeds(self.now);
        }
    }

    /// A call to a server has failed that was sent then. If it was a caller's, the thread looks whether the server is there.
    pub(super) fn failed(&mut self, number: usize, sent: Time, is_of_thread: bool) {
        let server = &mut self.servers[number];
        let was_open = server.health.is_open(&self.settings);
        server.health.fails(sent, self.now, is_of_thread);
        if server.health.is_failing() {
            let pause = match is_of_thread {
                true => server.health.pause(&self.settings),
                false => Time::ZERO,
            };
            server.presence_at = server.presence_at.map(|at| at.min(self.now + pause));
        }
        if !was_open && server.health.is_open(&self.settings) {
            self.outages.push_back((number, Outage::Begins));
            self.sweep = Some(0);
        }
    }

    /// Whether there is an outage: only probes are sent, and the policy decides claims.
    pub(in crate::redis) fn is_open(&self, server: usize) -> bool {
        self.servers[server].health.is_open(&self.settings)
    }

    // Claims.

    /// A claim whose server is in an outage, or refuses connections, is decided.
    pub(super) fn decide_if_open(&mut self, id: PermitId) {
        let undecided = self.permit(id).filter(|permit| !permit.is_decided());
        let claim = undecided.and_then(|permit| Some((permit.from, permit.current()?)));
        let Some((from, current)) = claim else {
            return;
        };
        let server = self.server_of(At(id, current));
        if self.is_open(server) {
            self.decide(id, server);
        } else if self.is_denied(from, server) {
            self.refuse(id, Refusal::Failed(server));
        }
    }

    /// Whether a server refuses the connection that a claim needs.
    fn is_denied(&self, from: RuntimeId, server: usize) -> bool {
        let from = self.sends(from, server);
        self.servers[server].is_denied && !self.has_connection(from, server)
    }

    /// Such a claim is refused, unless it can wait: then it looks again at the next tick.
    pub(super) fn hold_back(&mut self, at: At) {
        let server = self.server_of(at);
        match self.may_wait(at.0) {
            true => self.next_at(at, self.now + self.settings.short_tick()),
            false => self.refuse(at.0, Refusal::Unavailable(server)),
        }
    }

    /// A claim that was granted beyond its share gives that back, and begins again if it can wait.
    pub(super) fn begin_again(&mut self, at: At) {
        let id = at.0;
        if !self.may_wait(id) {
            let server = self.server_of(at);
            return self.refuse(id, Refusal::Unavailable(server));
        }
        self.uncount(id);
        self.each_of(id, Self::set_idle);
        self.want(At(id, 0));
    }

    /// Whether a claim may wait yet.
    fn may_wait(&self, id: PermitId) -> bool {
        let permit = &self.permits[id];
        let mut levels = permit.levels.iter();
        levels.any(|level| permit.wait(level, self.now).is_some())
    }

    /// A server cannot decide a claim. One that waits, or may be within a share, is sent again until that is
    /// clear.
    pub(super) fn cannot_decide(&mut self, id: PermitId, server: usize) {
        let is_clear = self.servers[server]
            .health
            .is_clear(self.now, &self.settings);
        let shares = !self.permits[id].is_strict && self.settings.policy.shares();
        if !self.may_wait(id) && (!shares || is_clear) {
            self.decide(id, server);
        }
    }

    /// The time of a claim is over. The policy decides if the claim's server is failing, or if no server serves its slot.
    pub(super) fn out_of_time(&mut self, id: PermitId) {
        let current = self.permits[id].current();
        let at = At(id, current.unwrap_or_default());
        let server = self.server_of(at);
        let health = &self.servers[server].health;
        let shares = self.settings.policy.shares();
        let leases = &self.permits[id].leases;
        let was_sent = current.is_none_or(|current| leases[current].was_sent);
        let is_unserved = self.slots.is_unserved(self.permits[at].slot, self.now);
        match health.is_failing() || is_unserved {
            true if !shares || health.is_clear(self.now, &self.settings) => self.decide(id, server),
            false if !was_sent => self.refuse(id, Refusal::Congested(server)),
            _ => self.refuse(id, Refusal::Unavailable(server)),
        }
    }

    /// The policy decides a claim.
    fn decide(&mut self, id: PermitId, server: usize) {
        let permit = &self.permits[id];
        let is_refused = permit.is_strict || permit.adds_to.is_some();
        match is_refused || !self.is_within_share(permit) {
            true => self.refuse(id, Refusal::Unavailable(server)),
            false => self.admit(id),
        }
    }

    /// Admits a claim without its server.
    fn admit(&mut self, id: PermitId) {
        let permit = &self.permits[id];
        let levels = permit.levels.iter();
        let levels = levels.map(|level| (0, self.held_of_share(permit, level), level.units.limit));
        let levels = levels.collect();
        self.permits[id].budget = None;
        let then = self.now + self.settings.absence();
        self.each_of(id, |core, at| core.degrade(at, then, false));
        self.count(id);
        self.tell_end(id);
        let is_full = false;
        self.events
            .push_back((id, Event::Granted { levels, is_full }));
        self.file(id);
    }

    /// A lease goes on without its server, which it is acquired from again then.
    pub(super) fn degrade(&mut self, at: At, then: Time, is_gone: bool) {
        let root = self.permits[at.0].root();
        if !self.permits[at].is_degraded() {
            self.events.push_back((root, Event::Degraded));
        }
        self.set_absent(at, Some(FOREVER), is_gone);
        self.permits[at].waits_in = None;
        self.next_at(at, then);
    }

    /// Whether a permit may go on although its server has nothing of it.
    pub(super) fn is_kept(&self, At(id, _): At) -> bool {
        let permit = &self.permits[id];
        permit.is_decided() && !permit.is_strict && self.settings.policy != WhenUnavailable::Refuse
    }

    /// Whether no process can have taken the server of a lease for unavailable.
    pub(super) fn is_well(&self, at: At) -> bool {
        let server = &self.servers[self.server_of(at)];
        server.is_well(self.now, &self.settings)
    }

    // Shares.

    /// How many units of a semaphore this process may have.
    fn share(&self, level: &Own) -> u32 {
        let live = self.live.count();
        self.settings.policy.share(level.units.limit, live)
    }

    fn is_within_share(&self, permit: &Permit) -> bool {
        let mut levels = permit.levels.iter();
        levels.all(|level| self.counted_with(permit, level) <= self.share(level))
    }

    /// How many units of a semaphore count with those of a permit.
    fn counted_with(&self, permit: &Permit, level: &Own) -> u32 {
        let units = level.units.units();
        self.keys[level.key].units + if permit.counts { 0 } else { units }
    }

    /// Whether a claim has no room in its share, and needs it, granted or not: while a server is not well, others may have
    /// admitted claims in its stead, whose places it must not take for a moment either.
    pub(super) fn is_beyond_share(&self, id: PermitId) -> bool {
        let permit = &self.permits[id];
        let mut leases = 0..permit.leases.len();
        let needs_none = !self.settings.policy.shares() || permit.is_strict || permit.is_decided();
        let is_well = |lease| self.is_well(At(id, lease));
        !(needs_none || leases.all(is_well) || self.is_within_share(permit))
    }

    /// What a permit shows as held that was admitted within a share: all but what is left of that.
    fn held_of_share(&self, permit: &Permit, level: &Own) -> u32 {
        let limit = level.units.limit;
        let own = match self.settings.policy.shares() {
            true => self.counted_with(permit, level),
            false => level.units.units(),
        };
        let left = self.share(level).min(limit).saturating_sub(own);
        limit - left
    }

    /// A permit counts in the shares from now on.
    pub(super) fn count(&mut self, id: PermitId) {
        let permit = &mut self.permits[id];
        if !mem::replace(&mut permit.counts, true) {
            for level in &permit.levels {
                self.keys[level.key].units += level.units.units();
            }
        }
    }

    pub(super) fn uncount(&mut self, id: PermitId) {
        let permit = &mut self.permits[id];
        if mem::take(&mut permit.counts) {
            for level in &permit.levels {
                self.keys[level.key].units -= level.units.units();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::{
        core::{Change, Failure, Level, Settings, THREAD},
        protocol::{Answer, Fault},
    };
    use std::time::Duration;

    /// A core that is connected to its only server.
    fn connected() -> (Core, Time) {
        let mut core = Core::new(Settings {
            lease: Duration::from_secs(10),
            timeout: Duration::from_millis(250),
            slots_of_store: [0, 0],
            slot_of_process: None,
            claims: true,
            replicas: 0,
            is_own: true,
            policy: WhenUnavailable::Refuse,
        });
        let now = Time::from_secs(1);
        core.handle_servers(now, Change::Connected(THREAD, 0));
        (core, now)
    }

    /// A core whose only server answers nothing, and when it has noticed that.
    fn in_an_outage() -> (Core, Time) {
        let (mut core, mut now) = connected();
        while !core.is_open(0) && now < Time::from_secs(100) {
            core.handle_timeout(now);
            while let Some(call) = core.poll_call(now, THREAD) {
                core.handle_reply(now, call.id, Err(Failure::TimedOut));
            }
            now += Duration::from_millis(50);
        }
        (core, now)
    }

    /// An outage may last for days.
    #[test]
    fn a_claim_that_is_decided_in_an_outage_leaves_nothing() {
        let (mut core, now) = in_an_outage();
        let level = Level {
            name: "a".into(),
            slot: 0,
            limit: 1,
            weight: 1,
            wait: None,
            is_strict: false,
            label: None,
            flow: None,
        };
        let (id, call) = core.acquire(now, THREAD, &[level]);
        assert!(call.is_none() && core.permit(id).is_none());
        assert!(core.lanes.values().all(|lane| lane.claims.is_empty()));
    }

    /// As without a right that its script needs, which only a person can give.
    #[test]
    fn a_server_that_cannot_tell_what_it_is_asked_is_not_asked_in_a_row() {
        let (mut core, start) = connected();
        let mut asked = 0;
        for ms in 0..10_000 {
            let now = start + Duration::from_millis(ms);
            core.handle_timeout(now);
            while let Some(call) = core.poll_call(now, THREAD) {
                let failed = call.commands.iter().map(|_| Answer::Failed(Fault::Mistake));
                core.handle_reply(now, call.id, Ok(failed.collect()));
                asked += 1;
            }
        }
        assert!((3..=13).contains(&asked), "{asked} times in a lease");
    }
}
