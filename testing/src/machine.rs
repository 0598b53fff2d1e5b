//! Tests that load the machine.

use tokio::sync::{Mutex, MutexGuard};

static MACHINE: Mutex<()> = Mutex::const_new(());

/// Of the tests of a binary that call this, one runs at a time. The others may run beside it: they
/// have to pass on a busy machine.
pub async fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().await
}
