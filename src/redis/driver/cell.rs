//! A permit as its holder reads it.

use super::transport::News;
use crate::{
    observe::LostBy,
    semaphore::{Loss, Policy},
    sync::{AtomicBool, AtomicU64, AtomicUsize, AtomicWaker, OnceLock},
};
use proto::core::{Event, PermitId, Refusal, Time};
use std::{
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
    task::{Context, Poll},
};

/// The reason why a claim got no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum ClaimRefusal {
    /// The core has refused the claim.
    By(Refusal),
    CorePanicked,
    /// A test has paused Tokio's clock, which then jumps to the claim's deadline at once.
    PausedClock,
}

/// A level, as the holder sees it.
#[derive(Debug)]
struct CellLevel {
    policy: Policy,
    /// The name of the level's semaphore.
    name: Arc<str>,
    slot: u16,
    token: AtomicU64,
    /// The number of units that all holders had when the level was granted.
    held: AtomicU64,
    /// The limit in force then.
    limit: AtomicU64,
}

/// One permit or claim, as its holder sees it. The core's events are applied under the core's lock, in their order. The
/// holder reads the cell, and marks it as gone, without the lock.
#[derive(Debug, Default)]
pub(in crate::redis) struct Cell {
    /// The time until which the holder may rely on the permit, in microseconds of this machine's clock.
    end: AtomicU64,
    levels: Box<[CellLevel]>,
    /// The number of the level in whose queue the claim waits, from 1 on. 0: in none.
    queued: AtomicUsize,
    /// True once the permit was released, revoked or ended by a shutdown.
    is_gone: AtomicBool,
    /// The outcome of the claim.
    outcome: OnceLock<Result<(), ClaimRefusal>>,
    /// True while the permit is kept without its server.
    is_degraded: AtomicBool,
    /// The outcome of the release: true if the permit was held until then.
    was_held: OnceLock<bool>,
    /// Wakes the task that waits for one of the above.
    waker: AtomicWaker,
    loss: Loss,
}

impl Cell {
    /// Makes the cell of a new claim. `levels` has the policy of each level, the name of its semaphore, and its slot.
    pub(super) fn new(levels: impl Iterator<Item = (Policy, Arc<str>, u16)>) -> Self {
        let levels = levels.map(|(policy, name, slot)| CellLevel {
            policy,
            name,
            slot,
            token: AtomicU64::new(0),
            held: AtomicU64::new(0),
            limit: AtomicU64::new(0),
        });
        Self {
            levels: levels.collect(),
            ..Self::default()
        }
    }

    // Called under the core's lock.

    /// Applies an event of the core. Returns the news for operators.
    pub(super) fn apply(&self, event: Event) -> Vec<News> {
        match event {
            Event::Queued(level) => self.queued.store(level + 1, Relaxed),
            Event::Granted(levels) => {
                self.set_tokens(levels.iter().map(|(token, ..)| *token));
                for (level, (_, held, limit)) in self.levels.iter().zip(levels) {
                    level.held.store(u64::from(held), Relaxed);
                    level.limit.store(u64::from(limit), Relaxed);
                }
                self.outcome.get_or_init(|| Ok(()));
            }
            Event::Held(end) => self.end.store(end.as_micros() as u64, Relaxed),
            Event::Refused(why) => self.refuse(ClaimRefusal::By(why)),
            Event::Lost => return self.lose(LostBy::Lease),
            Event::Degraded => {
                let was_granted = matches!(self.outcome(), Some(Ok(_)));
                let was_degraded = self.is_degraded.swap(true, Relaxed);
                return self.news(!was_degraded, |level| {
                    News::Degraded(level.policy.clone(), Arc::clone(&level.name), was_granted)
                });
            }
            Event::Regained(tokens) => {
                // A reader that sees this also sees the end that was stored before.
                self.is_degraded.store(false, Release);
                self.set_tokens(tokens.into_iter());
                // After a release, a loss that was reported stays reported.
                if !self.is_gone() {
                    self.loss.clear();
                }
            }
            Event::Revoked => {
                self.mark_gone();
                return self.lose(LostBy::Revoked);
            }
            Event::Released(was_held) => self.complete_release(was_held),
        }
        Vec::new()
    }

    fn lose(&self, by: LostBy) -> Vec<News> {
        let was_lost = self.loss.is_set();
        self.loss.mark();
        self.news(!was_lost, |level| {
            News::Lost(level.policy.clone(), level.token.load(Relaxed), by)
        })
    }

    fn refuse(&self, why: ClaimRefusal) {
        self.outcome.get_or_init(|| Err(why));
    }

    /// The news of each level, if `is_new`.
    fn news(&self, is_new: bool, make: impl Fn(&CellLevel) -> News) -> Vec<News> {
        self.levels.iter().filter(|_| is_new).map(make).collect()
    }

    /// Ends the wait for a release. `was_held` is true if the permit was held until then.
    pub(super) fn complete_release(&self, was_held: bool) {
        self.was_held.get_or_init(|| was_held);
    }

    /// Notes that the core has panicked. Returns true if this changes anything, and the news.
    pub(super) fn close(&self, now: Time) -> (bool, Vec<News>) {
        let is_new = self.was_held.get().is_none();
        self.refuse(ClaimRefusal::CorePanicked);
        self.complete_release(false);
        // An undecided claim has no end, and was never held.
        let was_granted = matches!(self.outcome(), Some(Ok(())));
        let lost = if was_granted && self.is_lost_by(now) {
            self.lose(LostBy::Lease)
        } else {
            Vec::new()
        };
        (is_new || !lost.is_empty(), lost)
    }

    fn set_tokens(&self, tokens: impl Iterator<Item = u64>) {
        for (level, token) in self.levels.iter().zip(tokens) {
            level.token.store(token, Relaxed);
        }
    }

    /// Wakes the task that waits for the claim or the release. With `is_loss` also wakes the tasks that wait for the
    /// loss, even if the permit has been regained since.
    pub(super) fn wake(&self, is_loss: bool) {
        if is_loss {
            self.loss.wake();
        }
        self.waker.wake();
    }

    // Called at any time.

    pub(in crate::redis) fn loss(&self) -> &Loss {
        &self.loss
    }

    /// The cell of a claim that adds units to a level of this permit.
    pub(super) fn for_growth(&self, level: usize) -> Self {
        let level = self.levels.get(level);
        let level = level.map(|level| (level.policy.clone(), Arc::clone(&level.name), level.slot));
        Self::new(level.into_iter())
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u16> {
        self.levels.iter().map(|level| level.slot)
    }

    /// True while the permit is kept without its server.
    pub(in crate::redis) fn is_degraded(&self) -> bool {
        self.is_degraded.load(Acquire)
    }

    /// The name of the semaphore of a level.
    pub(in crate::redis) fn name(&self, level: usize) -> &Arc<str> {
        &self.levels[level].name
    }

    pub(in crate::redis) fn token(&self, level: usize) -> u64 {
        self.levels[level].token.load(Relaxed)
    }

    pub(super) fn is_lost_by(&self, now: Time) -> bool {
        let has_end = !self.is_gone() && !self.is_degraded();
        let is_over = || self.end.load(Relaxed) <= now.as_micros() as u64;
        self.loss.is_set() || has_end && is_over()
    }

    /// True once the permit was released or revoked.
    pub(in crate::redis) fn is_gone(&self) -> bool {
        self.is_gone.load(Relaxed)
    }

    /// Notes that the permit is released or revoked. Returns false if it already was.
    pub(super) fn mark_gone(&self) -> bool {
        !self.is_gone.swap(true, AcqRel)
    }

    /// The level in whose queue the claim waits.
    pub(super) fn queued(&self) -> Option<usize> {
        self.queued.load(Relaxed).checked_sub(1)
    }

    /// The number of units of a level that all holders had when it was granted, and the limit in force then.
    pub(in crate::redis) fn units_at_grant(&self, level: usize) -> (u32, u32) {
        let CellLevel { held, limit, .. } = &self.levels[level];
        (held.load(Relaxed) as u32, limit.load(Relaxed) as u32)
    }

    pub(super) fn outcome(&self) -> Option<Result<(), ClaimRefusal>> {
        self.outcome.get().copied()
    }

    pub(super) fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<Result<(), ClaimRefusal>> {
        self.poll(cx, || self.outcome())
    }

    pub(super) fn poll_was_held(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.poll(cx, || self.was_held.get().copied())
    }

    /// Removes the waker. A task that sends its call itself does this before it polls the call: if that poll brings the
    /// outcome, the task is running and needs no wake.
    pub(super) fn unregister(&self) {
        drop(self.waker.take());
    }

    /// Looks before and after registering the waker, so that no event in between is missed.
    fn poll<R>(&self, cx: &mut Context<'_>, look: impl Fn() -> Option<R>) -> Poll<R> {
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        self.waker.register(cx.waker());
        look().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The cells of the core's permits, by their index in the core's table.
#[derive(Debug, Default)]
pub(super) struct Cells(Vec<Option<(PermitId, Arc<Cell>)>>);

impl Cells {
    /// Adds a cell. The core gives an index to a new permit only after it has removed the old one, so a release that is
    /// still awaited in the replaced cell is over.
    pub(super) fn insert(&mut self, id: PermitId, cell: &Arc<Cell>) {
        if self.0.len() <= id.index {
            self.0.resize(id.index + 1, None);
        }
        if let Some((_, old)) = self.0[id.index].replace((id, Arc::clone(cell))) {
            old.complete_release(false);
        }
    }

    pub(super) fn get(&self, id: PermitId) -> Option<&Arc<Cell>> {
        let entry = self.0.get(id.index)?.as_ref();
        entry
            .filter(|(found, _)| *found == id)
            .map(|(_, cell)| cell)
    }

    pub(super) fn remove(&mut self, id: PermitId) -> Option<Arc<Cell>> {
        self.get(id)?;
        self.0[id.index].take().map(|(_, cell)| cell)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.0.iter().flatten().map(|(_, cell)| cell)
    }
}
