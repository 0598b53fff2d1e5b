//! How leases end: what is over at its end, what is lost, what comes back, and what is released.

use super::{
    Core,
    id::{At, PermitId},
    lease::{Lease, Lost, Released, State},
    permit::{Event, Refusal},
    time::Time,
};
use std::{collections::BTreeSet, mem};

impl Core {
    // Losses.

    /// What is over at its end: a claim's budget, a lease, a release.
    pub(super) fn end_due(&mut self, id: PermitId) {
        if self.permits[id]
            .budget
            .is_some_and(|budget| budget <= self.now)
        {
            self.out_of_time(id);
        }
        self.each_of(id, |core, at| {
            let lease = &core.permits[at];
            if lease.end().is_none_or(|end| end > core.now) {
                return;
            }
            match &lease.state {
                State::Released(_) => core.done(at),
                State::Held(_) if core.is_kept(at) => core.degrade(at, core.now, false),
                _ => core.lose(at, core.now, false),
            }
        });
    }

    /// A lease is lost for certain. It tries to come back then. `is_gone`: the server has said so.
    pub(super) fn lose(&mut self, at: At, then: Time, is_gone: bool) {
        let root = self.permits[at.0].root();
        if self.permits[at].is_degraded() || self.is_kept(at) && !self.is_well(at) {
            return self.degrade(at, then, is_gone);
        }
        let was_held = self.held_until(root).is_some();
        self.set_absent(at, None, is_gone);
        if was_held {
            self.events.push_back((root, Event::Lost));
        }
        self.next_at(at, then);
    }

    /// Until when the holder of a permit may rely on it, and on all that was added to it. `None`: it is not held as a
    /// whole.
    pub(super) fn held_until(&self, root: PermitId) -> Option<Time> {
        let is_whole = self.permits[root].is_decided() && self.leases_of(root).all(Lease::is_held);
        let ends = self.leases_of(root).filter_map(Lease::end);
        ends.min().filter(|_| is_whole)
    }

    /// Whether it is held as a whole, and nothing of it without its server.
    pub(super) fn is_in_place(&self, root: PermitId) -> bool {
        self.held_until(root).is_some() && !self.leases_of(root).any(Lease::is_degraded)
    }

    /// The leases of a permit, and of what was added to it.
    fn leases_of(&self, root: PermitId) -> impl Iterator<Item = &Lease> {
        let root = &self.permits[root];
        let growths = root.growths.iter().map(|id| &self.permits[*id]);
        let growths = growths.filter(|growth| growth.is_decided());
        growths.chain([root]).flat_map(|permit| &permit.leases)
    }

    /// A server has nothing of a lease, or its end has passed, or it never answered.
    pub(super) fn set_absent(&mut self, at: At, end: Option<Time>, is_gone: bool) {
        let mut levels = self.levels_of(at).iter();
        let is_heavy = levels.any(|level| level.units.weight > 1);
        let lease = &mut self.permits[at];
        let was_held = matches!(lease.state, State::Held(_));
        lease.state = State::Lost(Lost { end, is_gone });
        if was_held && is_heavy {
            self.renew(at);
        }
        self.fall_back(at);
    }

    /// A lease of a claim that is not whole is wanted again, and what is wider is given back.
    fn fall_back(&mut self, at: At) {
        let (permit, leases) = (&self.permits[at.0], self.permits[at.0].leases.len());
        if permit.is_decided() {
            return;
        }
        for wider in at.1 + 1..leases {
            self.set_idle(At(at.0, wider));
        }
        self.want(at);
    }

    /// A lease of a claim is given back, and wanted later under another id.
    pub(super) fn set_idle(&mut self, at: At) {
        self.renew(at);
        let lease = &mut self.permits[at];
        (lease.state, lease.waits_in) = (State::Idle, None);
    }

    /// A lost lease is held again. Its holder learns of it if it was told of the loss.
    pub(super) fn returned(&mut self, sent: Time, at: At, grants: &[(u64, u32)]) {
        let permit = &mut self.permits[at.0];
        let lease = &permit.leases[at.1];
        let root = permit.root();
        let was_told = lease.end().is_none() || lease.is_degraded();
        if was_told {
            permit.take(at.1, grants);
        }
        self.hold(at, self.lasts(at, sent));
        if was_told {
            self.tell_return(root);
        }
    }

    /// Tells that a permit is held again, once no part of it is lost or degraded. Others may have had what was
    /// added to it, so each level has the highest token of its units.
    pub(super) fn tell_return(&mut self, root: PermitId) {
        if !self.is_in_place(root) {
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

    /// An operator, or the end of this process, ends a permit or a claim, unless its caller has.
    pub(super) fn end(&mut self, id: PermitId, why: Refusal) {
        let Some(permit) = self.permit(id).filter(|permit| !permit.is_released()) else {
            return;
        };
        if !permit.is_decided() {
            return self.refuse(id, why);
        }
        let root = permit.root();
        let event = match why {
            Refusal::Revoked => Some(Event::Revoked),
            _ => self.held_until(root).map(|_| Event::Lost),
        };
        self.events.extend(event.map(|event| (root, event)));
        self.let_go(root);
    }

    /// Releases what a server may know of a permit.
    pub(super) fn let_go(&mut self, id: PermitId) {
        let permit = &mut self.permits[id];
        permit.budget = None;
        let (adds_to, growths) = (permit.adds_to, mem::take(&mut permit.growths));
        if let Some(root) = adds_to.and_then(|(root, _)| self.permit(root)) {
            root.growths.retain(|other| *other != id);
        }
        self.uncount(id);
        for growth in growths {
            self.end_growth(id, growth);
        }
        self.each_of(id, |core, at| {
            let lease = &core.permits[at];
            match &lease.state {
                State::Idle | State::Released(_) => {}
                _ if !lease.may_be_known(core.now) => core.done(at),
                _ => core.let_go_of(at),
            }
        });
        self.end_if_over(id);
        self.file(id);
    }

    pub(super) fn let_go_of(&mut self, at: At) {
        self.permits[at].release(self.now);
        for level in self.permits[at.0].levels_of(at.1) {
            self.keys[level.key].releases.insert(at);
        }
        self.send_if_due(at);
    }

    /// A release was answered: whether it has found each level of each lease, if it was asked. Before the end of the lease
    /// only another release can have removed what it has not found. If one without an answer has run, that counts as
    /// found; if the answer of one is still on its way, that answer decides. A release that was sent while an acquire could
    /// run is sent once more, after that.
    pub(super) fn released(&mut self, all: &[(At, bool)], each: Option<&[bool]>) {
        let found = each.into_iter().flatten();
        let missed = all.iter().zip(found).filter(|(_, was_held)| !**was_held);
        let missed: BTreeSet<At> = missed.map(|((at, _), _)| *at).collect();
        let now = self.now;
        // A lease of several levels is named once for each.
        for (at, is_settled) in all.iter().copied().collect::<BTreeSet<_>>() {
            if let Some(released) = self.release_of(at).filter(|_| each.is_some()) {
                let was_held = released.may_have_run && now < released.held_until;
                released.was_held |= was_held || !missed.contains(&at);
                released.is_over |= is_settled;
                if released.is_over && !released.was_held && released.in_flight > 1 {
                    self.release_again(at, now);
                    continue;
                }
            }
            match is_settled {
                true => self.done(at),
                false => self.release_again(at, now),
            }
        }
    }

    /// A release may have run, or a part of it.
    pub(super) fn may_have_freed(&mut self, all: &[(At, bool)]) {
        for (at, _) in all {
            if let Some(released) = self.release_of(*at) {
                released.may_have_run = true;
            }
        }
    }

    /// A release is to be sent again then, unless nothing of the lease is left.
    pub(super) fn release_again(&mut self, at: At, then: Time) {
        let now = self.now;
        let runs_until = self.lease(at).map(|lease| lease.runs_until());
        let Some(released) = self.release_of(at) else {
            return;
        };
        released.in_flight = released.in_flight.saturating_sub(1);
        if !released.is_over {
            return self.next_at(at, then.max(runs_until.unwrap_or_default()));
        }
        released.was_held |= released.may_have_run && now < released.held_until;
        match released.was_held || released.in_flight == 0 {
            true => self.done(at),
            false => self.forget_release(at),
        }
    }

    /// The claims of this process no longer have to follow the release of a lease.
    fn forget_release(&mut self, at: At) {
        for level in self.permits[at.0].levels_of(at.1) {
            self.keys[level.key].releases.remove(&at);
        }
    }

    /// Sends a release again while an earlier one has no answer.
    pub(super) fn release_beside(&mut self, at: At) {
        if let Some(released) = self.release_of(at) {
            released.is_stalled = true;
            self.next_at(at, self.now);
        }
    }

    /// Sends a release now that pauses after a failure, because this process may be about to end.
    pub(super) fn release_soon(&mut self, id: PermitId) {
        self.each_of(id, |core, at| {
            let lease = &core.permits[at];
            let pauses = matches!(lease.state, State::Released(_)) && lease.next > core.now;
            if pauses && lease.runs_until() <= core.now {
                core.next_at(at, core.now);
            }
        });
    }

    fn release_of(&mut self, at: At) -> Option<&mut Released> {
        match &mut self.lease(at)?.state {
            State::Released(released) => Some(released),
            _ => None,
        }
    }

    /// Nothing of a lease is left.
    pub(super) fn done(&mut self, at: At) {
        let Some(permit) = self.permit(at.0) else {
            return;
        };
        let state = mem::take(&mut permit.leases[at.1].state);
        permit.was_held &= match state {
            State::Idle => true,
            State::Released(released) => released.was_held,
            _ => false,
        };
        self.forget_release(at);
        self.end_if_over(at.0);
        self.file(at.0);
    }

    /// Forgets a permit that has nothing left to do.
    pub(super) fn end_if_over(&mut self, id: PermitId) {
        let is_idle = |lease: &Lease| matches!(lease.state, State::Idle);
        let is_over = self.permit(id).is_some_and(|permit| {
            permit.is_decided() && permit.growths_left == 0 && permit.leases.iter().all(is_idle)
        });
        if !is_over {
            return;
        }
        self.unfile(id);
        self.waiters.remove(&id.serial);
        let permit = self.permits.remove(id.slot);
        for level in &permit.levels {
            self.keys.leave(level.key, self.now);
        }
        match permit.adds_to {
            Some((root, _)) if permit.ends_with_root => self.growth_over(root, permit.was_held),
            _ if permit.tells_release => {
                self.events
                    .push_back((id, Event::Released(permit.was_held)));
            }
            _ => {}
        }
    }
}
