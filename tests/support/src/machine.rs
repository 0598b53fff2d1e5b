//! Tests that load the machine.

use tokio::sync::{Semaphore, SemaphorePermit};

/// How many tests of a binary may wait for servers at a time.
const MOST: u32 = 4;

static MACHINE: Semaphore = Semaphore::const_new(MOST as usize);

/// Of the tests of a binary that call this, one runs at a time. Those that do not may run beside it: they
/// have to pass on a busy machine.
pub async fn alone() -> SemaphorePermit<'static> {
    taken(MOST).await
}

/// For a test that starts many servers and mostly waits for them: a few of these run at a time, and none beside
/// one that is [`alone`].
pub async fn beside_others() -> SemaphorePermit<'static> {
    taken(1).await
}

async fn taken(shares: u32) -> SemaphorePermit<'static> {
    let taken = MACHINE.acquire_many(shares).await;
    taken.expect("it is never closed")
}
