//! Limits how many tests load the machine at the same time.

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many tests of a binary may wait for servers at a time.
const MOST: u32 = 4;

static MACHINE: Semaphore = Semaphore::const_new(MOST as usize);

/// For a test that needs the machine alone. Only one such test of a binary runs at a time. Tests without this call may
/// run beside it, because they must pass on a busy machine.
pub async fn alone() -> SemaphorePermit<'static> {
    acquire(MOST).await
}

/// For a test that starts many servers and mostly waits for them. A few such tests run at a time, and never beside a
/// test that is [`alone`].
pub async fn beside_others() -> SemaphorePermit<'static> {
    acquire(1).await
}

async fn acquire(tests: u32) -> SemaphorePermit<'static> {
    let permit = MACHINE.acquire_many(tests).await;
    permit.expect("it is never closed")
}
