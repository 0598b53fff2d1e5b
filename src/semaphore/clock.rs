//! The clock of waits, holds and orders: tokio's, which a test can pause. Without a runtime it is the
//! system's monotonic clock.

use std::sync::LazyLock;
use tokio::time::Instant;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since some instant, which may lie ahead: a paused clock stands still in its own runtime, and
/// may have been advanced in the one that asked first.
pub(crate) fn nanos() -> i64 {
    let (now, start) = (Instant::now(), *START);
    let after = now.saturating_duration_since(start);
    let before = start.saturating_duration_since(now);
    after.as_nanos() as i64 - before.as_nanos() as i64
}
