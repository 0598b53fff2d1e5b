//! Waiting for a condition instead of sleeping for a fixed time.

use super::resp::Raw;
use std::time::Duration;

use tokio::time::{Instant, sleep};

const PAUSE: Duration = Duration::from_millis(5);

/// Checks `condition` every 5 ms until it is `true`.
///
/// The condition is checked once more after the bound, so that a slow machine gets a last chance.
///
/// # Panics
///
/// With `what`, when the bound has passed and the condition is still `false`.
///
/// # Examples
///
/// ```ignore
/// eventually("the queue is empty", Duration::from_secs(1), async || {
///     raw.zmembers("p{k}:queue").await.is_empty()
/// })
/// .await;
/// ```
pub async fn eventually(what: &str, bound: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + bound;
    loop {
        let last = Instant::now() >= end;
        if condition().await {
            return;
        }
        assert!(!last, "not within {bound:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// Retries an acquire until it is granted: at `end`, in milliseconds of the server's clock, and
/// not before.
///
/// # Panics
///
/// When it is granted before, or not within two seconds after.
pub async fn granted_at(end: i64, raw: &mut Raw, mut granted: impl AsyncFnMut() -> bool) {
    loop {
        let before = raw.server_time_ms().await;
        let granted = granted().await;
        let after = raw.server_time_ms().await;
        let early = end - after;
        assert!(!granted || early <= 0, "granted {early} ms too early");
        let late = before - end;
        assert!(granted || late <= 2_000, "not granted {late} ms after it");
        if granted {
            return;
        }
    }
}
