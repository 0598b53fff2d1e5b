//! Bounded waiting: for a condition, instead of sleeping for a fixed time, or for the end of a future.

use super::resp::Raw;
use std::{fmt::Debug, time::Duration};

use tokio::time::{Instant, sleep, timeout};

const PAUSE: Duration = Duration::from_millis(5);

/// The bound for one check of a condition.
const CHECK: Duration = Duration::from_secs(60);

/// Checks `condition` every 5 ms until it is `true`.
///
/// After the bound the condition is checked once more, because a busy machine may have delayed this task.
///
/// # Panics
///
/// With `what`, if the condition is still `false` after the bound, or if one check takes a minute.
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
        if within(what, CHECK, condition()).await {
            return;
        }
        assert!(!last, "not within {bound:?}: {what}");
        sleep(PAUSE).await;
    }
}

/// Awaits a future that must end within the bound.
///
/// # Panics
///
/// With `what`, once the bound has passed.
///
/// # Examples
///
/// ```ignore
/// within("the holder is notified", Duration::from_secs(20), permit.lost()).await;
/// ```
pub async fn within<T>(what: &str, bound: Duration, future: impl Future<Output = T>) -> T {
    let ended = timeout(bound, future).await;
    ended.unwrap_or_else(|_| panic!("not within {bound:?}: {what}"))
}

/// Calls `granted`, which tries an acquire, until it is true. That must be at `end`, in milliseconds of the server's
/// clock, and not before.
///
/// # Panics
///
/// If it is granted before `end`, or not within two seconds after it.
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

/// Repeats a round that other programs on the machine can spoil, until a round passes. So it finds only bugs that show
/// in every round.
///
/// # Panics
///
/// With `what`, and the error of each round, if no round passes.
///
/// # Examples
///
/// ```ignore
/// one_round_passes("a ping is answered at once", 8, async || match slowest_ping().await {
///     time if time < STALL => Ok(()),
///     time => Err(time),
/// })
/// .await;
/// ```
pub async fn one_round_passes<E: Debug>(
    what: &str,
    rounds: usize,
    mut round: impl AsyncFnMut() -> Result<(), E>,
) {
    let mut errors = Vec::new();
    while errors.len() < rounds {
        match round().await {
            Ok(()) => return,
            Err(error) => errors.push(error),
        }
    }
    panic!("in none of {rounds} rounds: {what}: {errors:?}");
}
