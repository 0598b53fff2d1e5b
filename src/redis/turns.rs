//! The turns of operators' calls: a store sends some at a time, first come, first served.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// How many operators' calls of a store are in flight at once. A server runs as many revocations within a few
/// milliseconds, so none times out because of the others, and a claim is not delayed for longer.
const OPERATOR_CALLS: usize = 32;

/// If no turn ends for this long, the futures that hold the turns count as abandoned. Longer than a call takes with the
/// default settings.
const STUCK: Duration = Duration::from_secs(1);

/// The turns of operators' calls.
pub(super) struct Turns {
    free: Semaphore,
    /// How many turns have ended.
    ended: AtomicU64,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            free: Semaphore::new(OPERATOR_CALLS),
            ended: AtomicU64::new(0),
        }
    }

    /// Waits for a turn, which ends when the result is dropped. If no turn ends for [`STUCK`], returns without a turn: the
    /// futures that hold the turns may never be polled again.
    pub(super) async fn take(&self) -> Turn<'_> {
        let mut free = pin!(self.free.acquire());
        loop {
            let ended = self.ended.load(Relaxed);
            let permit = match timeout(STUCK, &mut free).await {
                Ok(permit) => permit.ok(),
                Err(_) if self.ended.load(Relaxed) == ended => None,
                Err(_) => continue,
            };
            return Turn {
                turns: self,
                permit,
            };
        }
    }
}

/// The turn of a call.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// `None` for a call that goes ahead without a turn.
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.turns.ended.fetch_add(1, Relaxed);
        }
    }
}
