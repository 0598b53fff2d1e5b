//! What the holder of a permit reads.

use crate::{
    redis::core::{PermitId, Refusal, Time},
    semaphore::Loss,
    sync::{AtomicBool, AtomicU64, AtomicWaker, OnceLock},
};
use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

/// Why there is no permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::redis) enum Refused {
    By(Refusal),
    /// The core has panicked.
    Closed,
}

/// One permit or claim, as its holder sees it. Written under the core's lock, in the order of its steps, and
/// read without it.
#[derive(Debug)]
pub(super) struct Cell {
    /// Until when its holder may rely on it, microseconds of this machine's clock.
    end: AtomicU64,
    /// The token of each level.
    tokens: Box<[AtomicU64]>,
    /// What has become of the claim: how many units of each level were held.
    outcome: OnceLock<Result<Box<[u32]>, Refused>>,
    /// Whether it goes on without its server.
    is_degraded: AtomicBool,
    /// Whether it was held when it was released.
    was_held: OnceLock<bool>,
    /// Of the task that waits for one of these.
    waker: AtomicWaker,
    loss: Loss,
}

impl Cell {
    pub(super) fn new(levels: usize) -> Self {
        Self {
            end: AtomicU64::new(0),
            tokens: (0..levels).map(|_| AtomicU64::new(0)).collect(),
            outcome: OnceLock::default(),
            is_degraded: AtomicBool::new(false),
            was_held: OnceLock::default(),
            waker: AtomicWaker::new(),
            loss: Loss::default(),
        }
    }

    // Under the lock.

    pub(super) fn grant(&self, grants: &[(u64, u32)]) {
        self.set_tokens(grants.iter().map(|(token, _)| *token));
        let held = grants.iter().map(|(_, held)| *held).collect();
        self.outcome.get_or_init(|| Ok(held));
    }

    pub(super) fn refuse(&self, why: Refused) {
        self.outcome.get_or_init(|| Err(why));
    }

    pub(super) fn hold(&self, end: Time) {
        self.end.store(end.as_micros() as u64, Relaxed);
    }

    pub(super) fn lose(&self) {
        self.loss.mark();
    }

    pub(super) fn degrade(&self) {
        self.is_degraded.store(true, Relaxed);
    }

    pub(super) fn regain(&self, tokens: &[u64]) {
        self.is_degraded.store(false, Relaxed);
        self.set_tokens(tokens.iter().copied());
        self.loss.clear();
    }

    pub(super) fn release(&self, was_held: bool) {
        self.was_held.get_or_init(|| was_held);
    }

    /// There is no core any more. Returns whether that changes anything.
    pub(super) fn close(&self, now: Time) -> bool {
        let is_new = self.was_held.get().is_none();
        let is_lost = !self.loss.is_set() && self.is_over(now);
        self.refuse(Refused::Closed);
        self.release(false);
        if is_lost {
            self.lose();
        }
        is_new || is_lost
    }

    fn set_tokens(&self, tokens: impl Iterator<Item = u64>) {
        for (own, token) in self.tokens.iter().zip(tokens) {
            own.store(token, Relaxed);
        }
    }

    /// Wakes who waits for what was written.
    pub(super) fn wake(&self) {
        if self.loss.is_set() {
            self.loss.wake();
        }
        self.waker.wake();
    }

    // At any time.

    pub(super) fn loss(&self) -> &Loss {
        &self.loss
    }

    pub(super) fn is_degraded(&self) -> bool {
        self.is_degraded.load(Relaxed)
    }

    pub(super) fn token(&self, level: usize) -> u64 {
        self.tokens[level].load(Relaxed)
    }

    pub(super) fn is_lost(&self, now: Time) -> bool {
        self.loss.is_set() || self.is_over(now)
    }

    /// Whether its end has passed.
    pub(super) fn is_over(&self, now: Time) -> bool {
        self.end.load(Relaxed) <= now.as_micros() as u64
    }

    pub(super) fn outcome(&self) -> Option<&Result<Box<[u32]>, Refused>> {
        self.outcome.get()
    }

    pub(super) fn poll_outcome(&self, cx: &mut Context<'_>) -> Poll<Result<(), Refused>> {
        let outcome = || self.outcome().map(|outcome| outcome.as_ref());
        let outcome = self.poll(cx, outcome);
        outcome.map(|outcome| outcome.map(drop).map_err(|why| *why))
    }

    pub(super) fn poll_was_held(&self, cx: &mut Context<'_>) -> Poll<bool> {
        self.poll(cx, || self.was_held.get().copied())
    }

    /// Looks before and after the waker is there, so that what was written meanwhile is seen.
    fn poll<R>(&self, cx: &mut Context<'_>, look: impl Fn() -> Option<R>) -> Poll<R> {
        if let Some(found) = look() {
            return Poll::Ready(found);
        }
        self.waker.register(cx.waker());
        look().map_or(Poll::Pending, Poll::Ready)
    }
}

/// The cells of what the core knows, in its order.
#[derive(Debug, Default)]
pub(super) struct Cells(Vec<Option<(PermitId, Arc<Cell>)>>);

impl Cells {
    /// Returns what was there: a permit that was revoked.
    pub(super) fn insert(&mut self, id: PermitId, cell: &Arc<Cell>) -> Option<Arc<Cell>> {
        if self.0.len() <= id.slot {
            self.0.resize(id.slot + 1, None);
        }
        let old = self.0[id.slot].replace((id, Arc::clone(cell)));
        old.map(|(_, cell)| cell)
    }

    pub(super) fn get(&self, id: PermitId) -> Option<&Arc<Cell>> {
        let entry = self.0.get(id.slot)?.as_ref();
        entry.filter(|(own, _)| *own == id).map(|(_, cell)| cell)
    }

    pub(super) fn remove(&mut self, id: PermitId) -> Option<Arc<Cell>> {
        self.get(id)?;
        self.0[id.slot].take().map(|(_, cell)| cell)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Cell>> {
        self.0.iter().flatten().map(|(_, cell)| cell)
    }
}
