//! Waiting for a condition instead of sleeping and hoping.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const PAUSE: Duration = Duration::from_millis(5);

/// Asks `condition` every 5 ms until it answers `true`.
///
/// The condition is asked once more after the bound, so a slow machine gets a last look.
///
/// # Panics
///
/// With `what`, when the bound has passed and the condition is still `false`.
///
/// # Examples
///
/// ```ignore
/// eventually("the line is empty", Duration::from_secs(1), async || {
///     raw.zmembers("p{k}:line").await.is_empty()
/// })
/// .await;
/// ```
pub(crate) async fn eventually(
    what: &str,
    bound: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) {
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
