//! Claims that came while enough others were on their way: they travel together.

use super::{
    answer::Answer,
    core::Core,
    error::Error,
    lease::Lease,
    script::{Claims, Place, by_name},
};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tokio::sync::oneshot;

/// Claims that are asked one by one, each in a call of its own. Until so many are on their way a
/// call's cost does not matter, and nobody should wait for the answer to another.
const ALONE: usize = 16;

/// Batches of claims that are on their way at a time. What comes meanwhile travels together.
const FLIGHTS: usize = 4;

/// Claims of a batch: so few that the server works on one while this process takes the answers to
/// another apart, and so many that what a call costs hardly matters for each.
const BATCH: usize = 64;

/// How many claims are on their way.
#[derive(Default)]
pub(super) struct Traffic {
    alone: AtomicUsize,
    together: AtomicUsize,
}

/// One of those on their way; not any more when dropped.
pub(super) struct Underway<'a>(&'a AtomicUsize);

impl Traffic {
    /// Lets a claim go alone, unless there are many, or some that came before it wait.
    pub(super) fn alone(&self) -> Option<Underway<'_>> {
        let free = self.together.load(Ordering::Relaxed) == 0;
        let underway = free.then(|| Underway::new(&self.alone));
        underway.filter(|_| self.alone.load(Ordering::Relaxed) <= ALONE)
    }

    /// Lets a claim go together with others.
    pub(super) fn together(&self) -> Underway<'_> {
        Underway::new(&self.together)
    }
}

impl<'a> Underway<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A claim, and who wants the answer.
pub(super) struct Ask {
    pub(super) lease: Arc<Lease>,
    pub(super) place: Option<Place>,
    pub(super) answer: oneshot::Sender<Result<Answer, Error>>,
}

/// What is to be asked next.
#[derive(Default)]
pub(super) struct Inbox {
    asks: Vec<Ask>,
    flights: usize,
}

impl Inbox {
    pub(super) fn push(&mut self, ask: Ask) {
        self.asks.push(ask);
    }

    /// What is to be asked now, unless enough is in the air.
    pub(super) fn take(&mut self) -> Option<Vec<Ask>> {
        if self.flights >= FLIGHTS || self.asks.is_empty() {
            return None;
        }
        self.flights += 1;
        let count = self.asks.len().min(BATCH);
        Some(self.asks.drain(..count).collect())
    }

    /// A flight has landed.
    pub(super) fn landed(&mut self) {
        self.flights -= 1;
    }
}

/// Asks for all, and tells each its answer.
pub(super) async fn ask(core: &Core, asks: Vec<Ask>) {
    let (claims, listeners) = group(asks);
    let answers = core.scripts.acquire(&claims).await;
    for (listener, answer) in listeners.into_iter().zip(answers) {
        // Whoever has gone gives back what was granted.
        let _ = listener.send(answer);
    }
}

type Listeners = Vec<oneshot::Sender<Result<Answer, Error>>>;

/// Brings together what is of one semaphore. Who has gone by now is not asked for.
fn group(mut asks: Vec<Ask>) -> (Vec<Claims>, Listeners) {
    asks.retain(|ask| !ask.answer.is_closed());
    let (mut claims, mut listeners) = (Vec::new(), Vec::new());
    for (name, asks) in by_name(asks, |ask| ask.lease.name()) {
        let mut leases = Vec::with_capacity(asks.len());
        for ask in asks {
            leases.push((ask.lease, ask.place));
            listeners.push(ask.answer);
        }
        claims.push(Claims { name, leases });
    }
    (claims, listeners)
}
