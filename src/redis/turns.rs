//! Limits how many operators' calls a store has in flight, first come, first served.

use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

/// The number of turns. A server runs 32 revocations within a few milliseconds, so none times out because of the
/// others, and claims are delayed no longer than that.
const OPERATOR_CALLS: usize = 32;

/// If no turn ends for this long, a waiting call goes ahead without one: the futures that hold the turns may never be
/// polled again. Longer than a call takes with the default timeout.
const STUCK: Duration = Duration::from_secs(1);

pub(super) struct Turns {
    free: Semaphore,
    /// The number of turns that have ended.
    ended: AtomicU64,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            free: Semaphore::new(OPERATOR_CALLS),
            ended: AtomicU64::new(0),
        }
    }

    /// Waits for a turn, which ends when the result is dropped. Gives up waiting once no turn has ended for [`STUCK`].
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

/// Permission to call, with or without a turn.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    /// `None` if the wait for a turn was given up.
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.permit.is_some() {
            self.turns.ended.fetch_add(1, Relaxed);
        }
    }
}
