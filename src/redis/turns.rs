//! The turns of operators' calls: a store sends some at a time, first come, first served.

use scopeguard::guard;
use std::{
    pin::pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::{sync::Semaphore, time::timeout};

/// How many operators' calls of a store are in flight at once. A server runs as many revocations within a few
/// milliseconds, so none times out because of the others, and a claim is not delayed for longer.
const OPERATOR_CALLS: usize = 32;

/// If no turn has ended for this long, the calls in flight are not polled any more. Longer than the time of a call with
/// the default settings.
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

    /// Waits for a turn, which lasts as long as the result. The caller of a call that holds a turn may never poll it
    /// again, so a call that meets only such calls goes ahead without a turn.
    pub(super) async fn take(&self) -> impl Sized {
        let mut free = pin!(self.free.acquire());
        loop {
            let ended = self.ended.load(Relaxed);
            let turn = match timeout(STUCK, &mut free).await {
                Ok(turn) => turn.ok(),
                Err(_) if self.ended.load(Relaxed) == ended => None,
                Err(_) => continue,
            };
            return guard(turn, |turn| {
                self.ended.fetch_add(turn.iter().count() as u64, Relaxed);
            });
        }
    }
}
