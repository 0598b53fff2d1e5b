//! Debts: units that a server may have although this process has given them up.
//!
//! Units that are given up become a debt if a server may have them. The release of a permit, a smaller weight and a new
//! id all give units up. Releases name debts only. Rule 3 defines when a debt is paid.

use super::{
    call::{Acquires, Flight, Sent},
    id::{CallId, DebtId, PermitId},
    lease::{Lease, LeaseState},
    permit::ClaimedLevel,
    remote::Route,
    table::TableEntry,
    time::Time,
};

#[derive(Debug, Default)]
pub(super) struct Debt {
    pub(super) id: DebtId,
    /// The ended permit, or the part of a shrink, that is removed only after this debt is paid. `None` for units under
    /// the old id of a lease that goes on.
    pub(super) permit: Option<PermitId>,
    /// The units, by semaphore. All semaphores are in one slot, so one script may name them.
    pub(super) levels: Vec<ClaimedLevel>,
    pub(super) route: Route,
    /// The time of its timer (rule 10).
    pub(super) scheduled: Option<Time>,
    /// The time at which its next release is due.
    next: Time,
    /// The server in whose queue it was put. `None` once its release was sent.
    waits_for: Option<usize>,
    acquires: Acquires,
    /// The number of acquires that may have run.
    runs: usize,
    /// The time at which the server has forgotten the units by itself.
    forgotten_at: Time,
    /// The time until which the units were known to be held.
    held_until: Time,
    /// The number of releases whose calls are not over.
    in_flight: usize,
    /// The last release that was sent.
    last: Option<Sent>,
    /// True if no acquire can run after the last release that was sent.
    last_release_settles: bool,
    /// True once a release was answered after which no acquire can run. The answer to another release may still report
    /// that it found the units.
    is_settled: bool,
    /// True if an unanswered release may have run, at least in part.
    may_have_run: bool,
    /// True if one release has found all of the units, or one without an answer may have before they expired.
    was_held: bool,
    /// True if a second release should be sent, because the runtime that sent the first may be stalled.
    is_stalled: bool,
}

/// The consequence of a release that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another release, at its time.
    Release,
    /// The answers to other releases, which may have found the units. Claims need not follow these releases.
    Answers,
    /// Nothing: no server has any of the units.
    Paid,
}

impl Debt {
    /// A debt for units of a lease: all of them, some, or those that it has under an old id. `redirect` is that of the
    /// lease if the lease has ended: a redirect is for one command only.
    pub(super) fn new(
        lease: &Lease,
        levels: Vec<ClaimedLevel>,
        redirect: Option<usize>,
        now: Time,
    ) -> Self {
        let held_until = match lease.state {
            LeaseState::Held(end) => end,
            _ => Time::ZERO,
        };
        Self {
            levels,
            route: Route {
                redirect,
                ..lease.route.clone()
            },
            next: now,
            acquires: lease.remote.acquires.pending(),
            runs: lease.remote.runs(),
            forgotten_at: lease.remote.may_exist_until().max(now),
            held_until,
            ..Self::default()
        }
    }

    // Its releases.

    /// True if another release must be sent, at `next` or later. While one is in flight, a second is needed only if the
    /// first cannot settle the debt and all acquires are over, or if the first may be stalled.
    fn needs_release(&self) -> bool {
        let only_next_settles = !self.last_release_settles && self.acquires.are_over();
        let can_send = self.in_flight == 0 || only_next_settles || self.is_stalled;
        can_send && !self.is_settled
    }

    /// The server in whose queue it waits.
    pub(super) fn waits(&self) -> Option<usize> {
        self.waits_for.filter(|_| self.needs_release())
    }

    fn should_be_queued(&self) -> bool {
        self.needs_release() && self.waits_for.is_none()
    }

    /// True if a release should be queued now.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.should_be_queued() && self.next <= now
    }

    /// Notes that it is in the queue of a server.
    pub(super) fn enqueue(&mut self, server: usize) {
        self.waits_for = Some(server);
    }

    /// If it has a redirect, or waits for another server than this one: removes the redirect, takes it out of its
    /// queue, and returns true.
    pub(super) fn leave_other_than(&mut self, server: usize) -> bool {
        let waits_elsewhere = self.waits_for.is_some_and(|waits| waits != server);
        let leaves = waits_elsewhere || self.route.redirect.is_some();
        if leaves {
            (self.waits_for, self.route.redirect) = (None, None);
        }
        leaves
    }

    /// Schedules its next release.
    pub(super) fn schedule(&mut self, then: Time) {
        self.next = then;
    }

    /// Schedules its next release, although an earlier one has no answer.
    pub(super) fn release_beside(&mut self, now: Time) {
        (self.is_stalled, self.next) = (true, now);
    }

    /// True if its next release only waits for a retry after a failure.
    pub(super) fn is_backing_off(&self, now: Time) -> bool {
        self.next > now && self.acquires.run_until() <= now
    }

    /// Its earliest timer.
    pub(super) fn timer(&self) -> Time {
        let send = self.should_be_queued().then_some(self.next);
        send.map_or(self.forgotten_at, |send| send.min(self.forgotten_at))
    }

    /// Notes that a call with a release of it is sent.
    pub(super) fn note_sent(&mut self, flight: &Flight) {
        self.waits_for = None;
        self.in_flight += 1;
        self.is_stalled = false;
        self.last = Some(Sent::in_call(flight));
        self.last_release_settles = self.acquires.are_before(flight);
    }

    /// True if the answer to its last release settles it.
    pub(super) fn last_release_settles(&self) -> bool {
        self.last_release_settles
    }

    /// True if its last release is in this call.
    pub(super) fn is_released_in(&self, call: CallId) -> bool {
        self.last.as_ref().is_some_and(|last| last.call == call)
    }

    /// True if a release in flight runs before this call on the same connection, and settles the debt if one in this
    /// call would.
    pub(super) fn is_released_before(&self, flight: &Flight) -> bool {
        self.last.as_ref().is_some_and(|last| {
            let is_before =
                self.in_flight > 0 && !last.progress.is_over() && last.is_before(flight);
            let settles = !self.last_release_settles && self.acquires.are_before(flight);
            is_before && !settles
        })
    }

    /// Notes that a release may have run, at least in part.
    pub(super) fn note_may_have_run(&mut self) {
        self.may_have_run = true;
    }

    /// Notes the answer to a release. `found`: it has found all units. `settles`: no acquire can run after that
    /// release.
    pub(super) fn note_answer(&mut self, now: Time, found: bool, settles: bool) {
        self.count_unanswered(now);
        self.was_held |= found;
        self.is_settled |= settles;
    }

    /// Notes that a release is over. The next one, if any, is due at `then`, or once no acquire can run.
    pub(super) fn complete(&mut self, now: Time, then: Time) -> Next {
        self.in_flight -= 1;
        if !self.is_settled {
            self.next = then.max(self.acquires.run_until());
            return Next::Release;
        }
        self.count_unanswered(now);
        if self.was_held || self.in_flight == 0 {
            Next::Paid
        } else {
            Next::Answers
        }
    }

    // Its end.

    /// Notes that an acquire of the units has not run and never will. Returns true if none may have run, so that no
    /// server has any of the units.
    pub(super) fn note_not_run(&mut self) -> bool {
        self.runs -= 1;
        self.runs == 0
    }

    /// True if the refusal of an acquire from `sent` proves that the server has none of the units.
    pub(super) fn is_refused(&self, sent: Time) -> bool {
        self.acquires.proves_absence(sent)
    }

    /// True if the server has forgotten the units by itself.
    pub(super) fn is_forgotten(&self, now: Time) -> bool {
        self.forgotten_at <= now
    }

    /// True if one release has found all of the units, or one without an answer may have before they expired.
    pub(super) fn was_held(&self) -> bool {
        self.was_held
    }

    /// Counts the units as found if an unanswered release may have run before their end.
    fn count_unanswered(&mut self, now: Time) {
        self.was_held |= self.may_have_run && now < self.held_until;
    }
}

impl TableEntry for Debt {
    type Id = DebtId;

    fn id(&self) -> DebtId {
        self.id
    }
}
