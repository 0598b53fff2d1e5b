//! The semaphore of one key: the units that are held, and the claims that wait. The lock of its shard is held for every
//! access.

use super::{
    budget::{BudgetState, Due, HeadNotice},
    holders::Details,
    queue::{Decision, KeyGrant, KeyRefusal, Queue, QueuedClaim, WaiterNotice},
    units::CountedUnits,
};
use crate::{
    observe::BudgetUse,
    semaphore::{
        AcquireError, BudgetUsage, Claim, CompactKey, Key, Pause, PermitEnd, Policy, SemaphoreId,
        TakenUnits, Units, Window,
    },
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// The semaphore of one key under one policy, or its budget of one window. So a key can have several entries: one
/// without a window, and one for each window.
///
/// A counter suffices where Redis needs a set: a permit of this process ends only by its release or its drop, and both
/// are counted. The queue of a semaphore is empty while no units are held and the key is not paused, because its head
/// would fit.
///
/// A semaphore grants to the head of its queue as soon as the head fits. The head of a budget's queue acquires its
/// units itself, because it needs all of its budgets at once. The entry only notifies it to look whether its units fit.
pub(super) struct Entry {
    /// Unique in the process: after an eviction the next entry of the key has another id.
    pub(super) id: u64,
    pub(super) hash: u64,
    /// The units that are held; of a budget, the number of permits that have units of it.
    pub(super) held: u32,
    pub(super) budget: Option<Box<BudgetState>>,
    /// The limit that an operator has set. Read at each decision, so that it also applies to waiters.
    pub(super) limit: Option<u32>,
    /// While this is set nothing is granted, even if the pause is over. The next claim or waiter removes it.
    pub(super) pause: Option<Box<ActivePause>>,
    pub(super) queue: Queue,
    pub(super) policy: Policy,
    pub(super) key: CompactKey,
}

/// A pause of a key.
#[derive(Clone)]
pub(super) struct ActivePause {
    pub(super) since: Instant,
    pub(super) until: Instant,
    pub(super) note: Option<String>,
}

/// Counts over all entries of a shard.
#[derive(Default)]
pub(super) struct Counts {
    /// The last fencing token.
    token: u64,
    /// The number of entries without held units.
    pub(super) idle: usize,
    /// The number of idle entries that the last eviction has kept: of paused keys, and of budgets with spent units.
    pub(super) kept: usize,
}

/// An entry, and the counts of its shard.
pub(super) type EntryMut<'a> = (&'a mut Entry, &'a mut Counts);

impl ActivePause {
    fn is_over(&self) -> bool {
        self.until <= Instant::now()
    }
}

impl Entry {
    pub(super) fn new(id: u64, hash: u64, claim: &Claim, limit: Option<u32>) -> Self {
        Self {
            id,
            hash,
            held: 0,
            budget: claim
                .checked_units()
                .budget
                .map(|budget| Box::new(BudgetState::new(budget.window))),
            limit,
            pause: None,
            queue: Queue::default(),
            policy: claim.policy().clone(),
            key: CompactKey::new(claim.key()),
        }
    }

    /// True if the entry belongs to the semaphore of this claim.
    #[inline]
    pub(super) fn is_for(&self, claim: &Claim) -> bool {
        let window = || claim.checked_units().budget.map(|budget| budget.window);
        self.is_of(claim.policy(), Some(claim.key())) && self.window() == window()
    }

    #[inline]
    pub(super) fn window(&self) -> Option<Window> {
        self.budget.as_ref().map(|budget| budget.window())
    }

    /// True if the entry belongs to this policy and this key, whatever its window. Without a key, true for every key of
    /// the policy.
    #[inline]
    pub(super) fn is_of(&self, policy: &Policy, key: Option<&Key>) -> bool {
        key.is_none_or(|key| self.key.matches(key)) && self.policy == *policy
    }

    #[inline]
    fn limit_in_force(&self, units: Units) -> u32 {
        self.limit.unwrap_or(units.limit)
    }

    #[inline]
    fn fits(&self, units: Units) -> bool {
        let limit = self.limit_in_force(units);
        match &self.budget {
            None => u64::from(self.held) + u64::from(units.weight) <= u64::from(limit),
            Some(budget) => budget.due(units.weight, limit) == Due::Now,
        }
    }

    /// The units in use: those that are held, or spent or reserved.
    #[inline]
    pub(super) fn used(&self) -> u32 {
        self.budget
            .as_ref()
            .map_or(self.held, |budget| budget.used())
    }

    /// The refusal of these units. It omits the pause if they are heavier than the limit in force, because waiting for
    /// the end of the pause would not help.
    pub(super) fn refusal(&self, units: Units) -> KeyRefusal {
        let limit = self.limit_in_force(units);
        let pause = self.pause.as_ref().filter(|_| units.weight <= limit);
        let budget = self.budget.as_ref();
        let due = budget.map(|budget| budget.due(units.weight, limit));
        KeyRefusal {
            id: self.id,
            held: self.used(),
            limit,
            pause: pause.map(|pause| pause.until.saturating_duration_since(Instant::now())),
            window: self.window(),
            due: due
                .filter(|_| self.queue.is_empty())
                .unwrap_or(Due::Unknown),
            ahead: self.queue.len(),
        }
    }

    pub(super) fn budget_usage(&self) -> Option<BudgetUsage> {
        let budget = self.budget.as_ref()?;
        Some(BudgetUsage::new(
            budget.window().time(),
            budget.spent(),
            budget.reserved(),
        ))
    }

    /// True if units can be [acquired](Self::acquire): they fit, no claim waits, and the key is not paused.
    #[inline]
    pub(super) fn admits(&self, units: Units) -> bool {
        self.fits(units) && self.queue.is_empty() && self.pause.is_none()
    }

    /// Succeeds if a claim can acquire its units of a budget: they fit, the key is not paused, and no other claim is
    /// before it in the queue.
    pub(super) fn admits_in_turn(&mut self, claim: &Arc<Details>) -> Result<(), KeyRefusal> {
        let (units, ahead) = (claim.units, self.queue.count_before(claim));
        let is_first = ahead == 0;
        if let Some(budget) = &mut self.budget {
            budget.note_look(claim.serial);
            if self.pause.is_some() {
                budget.forget_notice();
            }
        }
        match is_first && self.pause.is_none() && self.fits(units) {
            true => Ok(()),
            false => {
                let budget = self.budget.as_ref().filter(|_| is_first);
                let due = budget.map(|budget| budget.due(units.weight, self.limit_in_force(units)));
                Err(KeyRefusal {
                    due: due.unwrap_or(Due::Unknown),
                    ahead,
                    ..self.refusal(units)
                })
            }
        }
    }

    /// Looks at a budget's queue after a claim was refused. Otherwise a first waiter that is not polled would keep its
    /// place and block claims that do not wait.
    #[cold]
    pub(super) fn look_at_budget_queue(&mut self, counts: &mut Counts) -> Vec<WaiterNotice> {
        match self.budget {
            None => Vec::new(),
            Some(_) => self.grant(counts),
        }
    }

    /// Acquires units that were admitted. Lists them under the details, if given.
    #[inline]
    pub(super) fn acquire(
        &mut self,
        units: Units,
        counts: &mut Counts,
        listed: Option<&Arc<Details>>,
    ) -> KeyGrant {
        counts.idle -= usize::from(self.held == 0);
        counts.token += 1;
        self.held += units.count();
        let limit = self.limit_in_force(units);
        let held = match &mut self.budget {
            None => self.held,
            Some(budget) => budget.reserve(units.weight, limit),
        };
        if let Some(details) = listed {
            self.queue.list_permit(Arc::clone(details), limit);
        }
        KeyGrant {
            id: self.id,
            token: counts.token,
            held,
            limit,
        }
    }

    /// Ends units of a permit. Returns the units of a budget, for the metrics. The caller must call
    /// [`grant`](Self::grant) afterwards.
    #[inline]
    pub(super) fn free(
        &mut self,
        taken: TakenUnits,
        end: PermitEnd,
        counts: &mut Counts,
    ) -> Option<Box<CountedUnits>> {
        let (count, counted) = match self.budget {
            None => (taken.weight, None),
            Some(_) if taken.weight == 0 => (0, None),
            Some(_) => (1, self.change_budget(|budget| budget.end(taken, end))),
        };
        self.held -= count;
        counts.idle += usize::from(count > 0 && self.held == 0);
        counted
    }

    /// Changes the budget. Returns the units that this used or freed, for the metrics. The caller must call
    /// [`grant`](Self::grant) afterwards.
    #[inline(never)]
    pub(super) fn change_budget(
        &mut self,
        change: impl FnOnce(&mut BudgetState) -> Option<(BudgetUse, u32)>,
    ) -> Option<Box<CountedUnits>> {
        let (used, units) = change(self.budget.as_mut()?)?;
        let policy = self.policy.clone();
        Some(Box::new(CountedUnits {
            policy,
            used,
            units,
        }))
    }

    /// Adds a claim to the queue. Fails if `max_waiting` or more claims are ahead, if the claim is too heavy for the
    /// limit in force, if the key is paused for longer than the claim waits, or if time makes no room before the wait
    /// ends.
    pub(super) fn join(
        &mut self,
        waiting: QueuedClaim,
        wait: Duration,
        max_waiting: u32,
    ) -> Result<(), AcquireError> {
        let units = waiting.units();
        let refusal = self.refusal(units);
        if units.weight > refusal.limit || refusal.outlasts(wait) || self.is_late(units, wait) {
            return Err(refusal.error(&self.policy));
        }
        match self.queue.push(waiting, max_waiting) {
            true => Ok(()),
            false if refusal.outlasts(Duration::ZERO) => Err(refusal.error(&self.policy)),
            false => Err(AcquireError::QueueFull {
                policy: self.policy.clone(),
                limit: self.limit_in_force(units),
                window: self.window().map(Window::time),
                semaphore: Some(SemaphoreId::numbered(self.id)),
            }),
        }
    }

    /// True if a budget has no room for these units before the wait ends, whatever is settled until then.
    fn is_late(&self, units: Units, wait: Duration) -> bool {
        let Some(budget) = &self.budget else {
            return false;
        };
        match budget.earliest(units.weight, self.limit_in_force(units)) {
            Due::Now => false,
            Due::At(at) => at.saturating_duration_since(Instant::now()) > wait,
            Due::Unknown => true,
        }
    }

    /// Grants to the head of the queue as long as the head fits, or notifies the head of a budget's queue to look.
    /// Waiters behind a head that does not fit are not granted, so that light claims do not starve a heavy one.
    #[inline]
    pub(super) fn grant(&mut self, counts: &mut Counts) -> Vec<WaiterNotice> {
        match self.queue.is_empty() || self.is_full() || self.pause_in_force().is_some() {
            true => Vec::new(),
            false => self.grant_waiters(counts),
        }
    }

    /// Notifies the head of a budget's queue to look, if the time at which its units fit has changed. Removes heads
    /// that are not polled.
    #[cold]
    fn notify_head(&mut self) -> Vec<WaiterNotice> {
        let mut notices = Vec::new();
        while let Some(head) = self.queue.head().cloned()
            && let limit = self.limit_in_force(head.units)
            && let Some(budget) = &mut self.budget
        {
            let due = budget.due(head.units.weight, limit);
            match budget.notice(head.serial, due) {
                Some(HeadNotice::Lapsed) => {
                    let Some(deliver) = self.queue.leave(&head) else {
                        break;
                    };
                    notices.push(WaiterNotice::Outcome(Decision::Lapsed, deliver));
                }
                Some(HeadNotice::Look) => {
                    notices.push(WaiterNotice::Look(head));
                    break;
                }
                None => break,
            }
        }
        notices
    }

    /// True if no waiter can fit, so that the queue need not be looked at.
    fn is_full(&self) -> bool {
        self.budget.is_none() && self.held >= self.limit.unwrap_or(self.queue.max_limit())
    }

    #[cold]
    fn grant_waiters(&mut self, counts: &mut Counts) -> Vec<WaiterNotice> {
        if self.budget.is_some() {
            return self.notify_head();
        }
        let mut granted = Vec::new();
        while let Some(units) = self.queue.head().map(|head| head.units)
            && self.fits(units)
            && let Some((head, deliver)) = self.queue.pop()
        {
            let acquired = self.acquire(head.units, counts, head.listed());
            granted.push(WaiterNotice::Outcome(Decision::Granted(acquired), deliver));
        }
        granted
    }

    /// Removes a pause that is over. The caller must call [`grant`](Self::grant) afterwards.
    #[inline]
    pub(super) fn drop_ended_pause(&mut self) {
        self.pause.take_if(|pause| pause.is_over());
    }

    /// Returns the pause of the key, if it is paused now. Removes a pause that is over. The caller must call
    /// [`grant`](Self::grant) afterwards.
    #[inline]
    pub(super) fn pause_in_force(&mut self) -> Option<&ActivePause> {
        self.drop_ended_pause();
        self.pause.as_deref()
    }

    /// Pauses the key, unless it is paused for as long already. Returns notices for the waiters that do not know yet
    /// that it is paused.
    pub(super) fn set_pause(&mut self, pause: &Pause) -> Vec<WaiterNotice> {
        let since = Instant::now();
        let (until, note) = (since + pause.time, pause.note.clone());
        if self.pause.as_ref().is_some_and(|old| old.until >= until) {
            return Vec::new();
        }
        let paused = ActivePause { since, until, note };
        match self.pause.replace(Box::new(paused)) {
            // The waiters already wait for the end of the earlier pause, and look up the new one then.
            Some(_) => Vec::new(),
            None => self.queue.look_at_all(),
        }
    }

    /// Ends the pause of the key. Returns false if it is not paused now. The caller must call [`grant`](Self::grant)
    /// afterwards.
    pub(super) fn end_pause(&mut self) -> bool {
        self.pause.take().is_some_and(|pause| !pause.is_over())
    }

    /// True if the key has permits, waiters or spent units, or is paused now.
    pub(super) fn is_in_use(&self) -> bool {
        self.is_busy()
            || self
                .budget
                .as_ref()
                .is_some_and(|budget| !budget.is_whole())
            || self.pause.as_ref().is_some_and(|pause| !pause.is_over())
    }

    /// True if the key has permits, or claims wait for it.
    pub(super) fn is_busy(&self) -> bool {
        self.held > 0 || !self.queue.is_empty()
    }

    /// Applies a limit that an operator has set, or its removal. Refuses waiters that can never fit under it, and
    /// grants those that fit now.
    pub(super) fn set_limit(
        &mut self,
        limit: Option<u32>,
        counts: &mut Counts,
    ) -> Vec<WaiterNotice> {
        self.limit = limit;
        let refusal = limit.map(|limit| KeyRefusal {
            id: self.id,
            held: self.used(),
            limit,
            pause: None,
            window: self.window(),
            due: Due::Unknown,
            ahead: 0,
        });
        let refused = refusal.map_or_else(Vec::new, |refusal| self.queue.refuse_heavy(refusal));
        refused.into_iter().chain(self.grant(counts)).collect()
    }
}
