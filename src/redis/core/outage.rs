//! What calls tell of their server, and what becomes of claims and permits while it is unavailable.

use super::{
    Core, THREAD,
    call::Flight,
    id::{At, PermitId},
    lease::{Lost, State},
    permit::{Event, Own, Permit, Refusal},
    policy::Policy,
    time::{FOREVER, Time},
};

impl Core {
    /// A server has answered a call, and works.
    pub(super) fn works(&mut self, now: Time, flight: &Flight) {
        let server = &mut self.servers[flight.server];
        if server.health.works(flight.sent, now) {
            server.presence_at = server.presence_at.map(|_| now);
            self.sweep = Some(0);
        }
    }

    /// A call to a server has failed. If it was a caller's, the thread looks whether the server is there.
    pub(super) fn fails(&mut self, now: Time, flight: &Flight) {
        let is_of_thread = flight.runtime == THREAD;
        self.failed(now, flight.server, (flight.sent, is_of_thread));
    }

    pub(super) fn failed(&mut self, now: Time, server: usize, (sent, is_of_thread): (Time, bool)) {
        let server = &mut self.servers[server];
        let was_open = server.health.is_open(&self.settings);
        server.health.fails(sent, now, is_of_thread);
        if server.health.is_failing() {
            let pause = match is_of_thread {
                true => server.health.pause(&self.settings),
                false => Time::ZERO,
            };
            server.presence_at = server.presence_at.map(|at| at.min(now + pause));
        }
        if !was_open && server.health.is_open(&self.settings) {
            self.sweep = Some(0);
        }
    }

    pub(super) fn is_open(&self, server: usize) -> bool {
        self.servers[server].health.is_open(&self.settings)
    }

    // Claims.

    /// A claim whose server is in an outage is decided.
    pub(super) fn decide_if_open(&mut self, now: Time, id: PermitId) {
        let Some(permit) = self.permit(id).filter(|permit| !permit.is_decided()) else {
            return;
        };
        if let Some(current) = permit.current() {
            let server = self.server_of(At(id, current));
            if self.is_open(server) {
                self.decide(now, id, server);
            }
        }
    }

    /// A server cannot decide a claim. One that waits, or may be within a share, is sent again until that is
    /// clear.
    pub(super) fn cannot_decide(&mut self, now: Time, id: PermitId, server: usize) {
        let is_clear = self.servers[server].health.is_clear(now, &self.settings);
        let Some(permit) = self.permit(id).filter(|permit| !permit.is_decided()) else {
            return;
        };
        let waits = permit
            .levels
            .iter()
            .any(|level| permit.wait(level, now).is_some());
        let shares = !permit.is_strict && self.settings.policy.shares();
        if !waits && (!shares || is_clear) {
            self.decide(now, id, server);
        }
    }

    /// The time of a claim is over. Only if its server is failing the policy decides.
    pub(super) fn out_of_time(&mut self, now: Time, id: PermitId) {
        let current = self.permits[id.slot].current();
        let server = self.server_of(At(id, current.unwrap_or_default()));
        let health = &self.servers[server].health;
        let shares = self.settings.policy.shares();
        match health.is_clear(now, &self.settings) || !shares && health.is_failing() {
            true => self.decide(now, id, server),
            false => self.refuse(now, id, Refusal::Unavailable(server)),
        }
    }

    /// The policy decides a claim.
    fn decide(&mut self, now: Time, id: PermitId, server: usize) {
        let permit = &self.permits[id.slot];
        let is_refused = permit.is_strict || permit.adds_to.is_some();
        match self.settings.policy {
            Policy::Refuse => self.refuse(now, id, Refusal::Unavailable(server)),
            _ if is_refused || !self.is_within_share(permit) => {
                self.refuse(now, id, Refusal::Unavailable(server));
            }
            _ => self.admit(now, id),
        }
    }

    /// Admits a claim without its server.
    fn admit(&mut self, now: Time, id: PermitId) {
        let held = self.permits[id.slot].levels.iter();
        let held = held.map(|level| (0, self.held_of_share(level))).collect();
        self.permits[id.slot].budget = None;
        let leases = self.permits[id.slot].leases.len();
        for number in 0..leases {
            self.degrade(now, At(id, number), (now + self.settings.absence(), false));
        }
        self.count(id);
        self.tell_end(id);
        self.events.push_back(Event::Granted(id, held));
        self.file(id);
    }

    /// A lease goes on without its server, which it is acquired from again then.
    pub(super) fn degrade(&mut self, now: Time, at: At, (then, is_gone): (Time, bool)) {
        let root = self.permits[at.0.slot].root();
        if !self.permits[at.0.slot].leases[at.1].is_degraded() {
            self.events.push_back(Event::Degraded(root));
        }
        let end = Some(FOREVER);
        self.set_absent(now, at, State::Lost(Lost { end, is_gone }));
        if let Some(lease) = self.lease(at) {
            lease.waits_in = None;
        }
        self.next_at(now, at, then);
    }

    /// Whether a permit may go on although its server has nothing of it.
    pub(super) fn is_kept(&self, At(id, _): At) -> bool {
        let permit = &self.permits[id.slot];
        permit.is_decided() && !permit.is_strict && self.settings.policy != Policy::Refuse
    }

    /// Whether nobody can have taken the server of a lease for unavailable.
    pub(super) fn is_well(&self, now: Time, at: At) -> bool {
        self.servers[self.server_of(at)]
            .health
            .is_well(now, &self.settings)
    }

    // Shares.

    /// How many units of a semaphore this process may have.
    fn share(&self, level: &Own) -> u32 {
        self.settings
            .policy
            .share(level.units.limit, self.live.count())
    }

    fn is_within_share(&self, permit: &Permit) -> bool {
        permit.levels.iter().all(|level| {
            let units = self.keys[level.key].units + level.units.units();
            units <= self.share(level)
        })
    }

    /// Whether a claim that its servers have granted may be. While one is not well, others may have admitted claims
    /// in its stead, so it has to be within the share as well.
    pub(super) fn may_be_granted(&self, now: Time, id: PermitId) -> bool {
        let permit = &self.permits[id.slot];
        let mut leases = 0..permit.leases.len();
        let shares = self.settings.policy.shares() && !permit.is_strict;
        !shares
            || leases.all(|lease| self.is_well(now, At(id, lease)))
            || self.is_within_share(permit)
    }

    /// What a permit shows as held that was admitted within a share: all but what is left of that.
    fn held_of_share(&self, level: &Own) -> u32 {
        let (limit, units) = (level.units.limit, level.units.units());
        let own = match self.settings.policy.shares() {
            true => self.keys[level.key].units + units,
            false => units,
        };
        let left = self.share(level).min(limit).saturating_sub(own);
        limit - left
    }

    /// A permit counts in the shares from its grant until it is given up.
    pub(super) fn count(&mut self, id: PermitId) {
        for level in &self.permits[id.slot].levels {
            self.keys[level.key].units += level.units.units();
        }
    }

    pub(super) fn uncount(&mut self, id: PermitId) {
        for level in &self.permits[id.slot].levels {
            self.keys[level.key].units -= level.units.units();
        }
    }
}
