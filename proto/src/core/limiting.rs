//! Applies the limits of operators to claims.
//!
//! An id contains its limit, so that a script of any process can grant it from the queue. So each acquire of a lease
//! needs an id with the limit in force. If limits have changed, the lease gets another id, and the same call first
//! releases what the server may have under the old one. The lease keeps its arrival in a queue, but in a queue with
//! flows it waits behind the others of its flow.

use super::{
    Core,
    id::{CallId, LeaseRef, PermitId},
    lease::LeaseState,
    permit::{ClaimedLevel, Refusal},
    time::Time,
};
use crate::verbs::OperatorLimits;
use std::ops::Range;

impl Core {
    /// Takes the limits that a server has reported. They differed from those that this process knew when it sent the
    /// call. The next sweep applies them to claims.
    pub(super) fn take_limits(&mut self, reported: OperatorLimits) {
        self.limits.take(reported);
        self.sweep = Some(0);
    }

    /// Reads the limits at once, because an operator has set one here.
    pub fn look_at_limits(&mut self, now: Time) {
        self.now = now;
        self.limits.set_here = now;
        let server = self.counting_server();
        let next = &mut self.servers[server].presence_at;
        *next = next.map(|at| at.min(now));
    }

    /// True if this process has read the limits at this time or later, or if it cannot read them.
    pub fn has_limits_since(&self, time: Time) -> bool {
        self.limits.read_at >= time || self.limits.are_given_up()
    }

    /// The time of the next announcement to a server that has answered the announcement that was sent at `sent`: now,
    /// if a limit was set here since.
    pub(super) fn next_announcement(&self, sent: Time) -> Time {
        if sent < self.limits.set_here {
            self.now
        } else {
            sent + self.settings.announcement()
        }
    }

    /// Notes that a server works but has refused to report limits, because the slot of their key is moving. If that
    /// goes on, claims go on without limits.
    pub(super) fn note_limits_refused(&mut self) {
        self.limits.refused.get_or_insert(self.now);
    }

    pub(super) fn give_up_limits(&mut self) {
        let until = self.limits.gives_up_at(&self.settings);
        if until.is_some_and(|until| until <= self.now) {
            self.limits.note_unreported();
        }
    }

    /// True if claims need not wait for the limits: they are known, this process has left and no longer reads them, or
    /// their server cannot report them (rule 18).
    pub(super) fn need_not_wait_for_limits(&self) -> bool {
        let cannot_report = || {
            let server = &self.servers[self.counting_server()];
            server.health.is_failing() || server.is_denied
        };
        self.limits.version().is_some() || self.has_left() || cannot_report()
    }

    /// The limit in force for a level: that of an operator, or else that of the claim.
    fn limit_of(&self, id: PermitId, level: usize) -> u32 {
        let claimed = &self.permits[id].levels[level];
        self.limit_set_for(claimed).unwrap_or(claimed.limit)
    }

    /// The limit that an operator has set for a level.
    fn limit_set_for(&self, level: &ClaimedLevel) -> Option<u32> {
        self.limits.limit_for(&self.keys[level.key].name)
    }

    /// Applies changed limits to a claim. Leases that wait under other limits are acquired again at once.
    pub(super) fn apply_limits(&mut self, id: PermitId) {
        if self.refuse_if_above_limit(id) {
            return;
        }
        for at in self.lease_refs(id) {
            let has_changed = self.has_changed(at);
            let lease = &mut self.permits[at];
            match lease.state {
                // It polls once the answer on its way reports that it waits.
                LeaseState::Queued(..) | LeaseState::Wanted
                    if has_changed && lease.call().is_some() =>
                {
                    lease.notify();
                }
                LeaseState::Queued(..) if has_changed => self.schedule_call(at, self.now),
                _ => {}
            }
        }
    }

    /// Refuses a claim that is heavier than an operator's limit for a level that it does not hold, and so would wait in
    /// vain. Returns true if it is refused.
    pub(super) fn refuse_if_above_limit(&mut self, id: PermitId) -> bool {
        let Some(permit) = self.permits.get(id).filter(|permit| permit.is_claim()) else {
            return false;
        };
        let first = permit
            .current_lease()
            .map_or(0, |lease| permit.waits_at(lease));
        let levels = self.permits[id].levels.iter();
        let refusal_at = |(number, level): (usize, &ClaimedLevel)| {
            let limit = self.limit_set_for(level)?;
            (level.units.id.weight > limit).then_some(Refusal::Full(number, limit, limit, None))
        };
        let refusal = levels.enumerate().skip(first).find_map(refusal_at);
        if let Some(refusal) = refusal {
            self.refuse(id, refusal);
        }
        refusal.is_some()
    }

    /// True if the limit in force has changed at a level that a lease does not hold.
    pub(super) fn has_changed(&self, at: LeaseRef) -> bool {
        let differs = |level: usize| {
            let claimed = &self.permits[at.0].levels[level];
            claimed.units.id.limit != self.limit_of(at.0, level)
        };
        self.levels_ahead(at).any(differs)
    }

    /// The levels of a lease that it does not hold: from the one where it waits on.
    fn levels_ahead(&self, LeaseRef(id, number): LeaseRef) -> Range<usize> {
        let permit = &self.permits[id];
        permit.waits_at(number)..permit.leases[number].levels.end
    }

    /// Puts a lease under the limits in force before it is acquired (rule 18).
    pub(super) fn put_under_limits(&mut self, at: LeaseRef) {
        let lease = &self.permits[at];
        let may_exist = lease.remote.may_exist();
        if may_exist && !self.has_changed(at) {
            return;
        }
        // A lease that has expired on its server needs no release.
        let needs_release = may_exist && lease.remote.may_exist_until() > self.now;
        // An earlier acquire that still runs may be queued at one level, and then frees the wider levels that it names.
        // So all of these levels get new ids.
        let (mut old, is_granted) = (Vec::new(), self.permits[at.0].is_granted());
        for level in self.levels_ahead(at) {
            let limit = self.limit_of(at.0, level);
            let claimed = &mut self.permits[at.0].levels[level];
            if !may_exist {
                claimed.units.id.limit = limit;
            } else {
                let units = claimed.units.under(limit);
                old.push(claimed.put_under(units, is_granted));
                // So that the call that acquires the lease begins with this release too.
                self.keys[claimed.key].released_in = CallId(0);
            }
        }
        let is_whole = old.len() == self.permits[at].levels.len();
        if needs_release && !old.is_empty() {
            self.owe_part(None, at, old);
        }
        if is_whole {
            let permit = &mut self.permits[at.0];
            permit.note_repeat(at.1);
            permit.leases[at.1].forget_calls();
        }
    }
}
