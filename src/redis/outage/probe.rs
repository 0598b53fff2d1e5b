//! Tells the server that this process is alive, and finds out whether the store is back.
//!
//! Both are one script, because it writes as an acquire does: a server that refuses writes is not
//! back.

use super::{phase::Phase, state::Outage};
use crate::redis::dispatch::Attempts;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

/// The pause between two probes: the first one, and the longest one. A timeout is the longest too, so
/// that the pause is shorter than the time to settle.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));

/// Calls once per refresh interval and, while the breaker is open, one probe after the other. Runs on
/// the keeper's thread, until the store shuts down.
pub(in crate::redis) async fn probe(
    outage: Arc<Outage>,
    attempts: Arc<Attempts>,
    mut closed: watch::Receiver<bool>,
) {
    tokio::select! {
        () = call_forever(&outage, &attempts) => {}
        _ = closed.wait_for(|closed| *closed) => {}
    }
    let deadline = Instant::now() + outage.times.timeout;
    // A failure is ignored: the process ceases to count a lease after its last call.
    let _ = attempts.protocol.leave(deadline).await;
}

async fn call_forever(outage: &Outage, attempts: &Attempts) {
    let times = outage.times;
    let mut phases = outage.breaker.changes();
    let longest = PAUSE.1.min(times.timeout);
    let mut pause = PAUSE.0.min(longest);
    loop {
        let now = Instant::now();
        // The breaker observes the outcome.
        if let Ok(count) = attempts.protocol.live(now + times.timeout).await {
            outage.live.told(count, now, times.lease);
        }
        let phase = *phases.borrow_and_update();
        let rest = match phase {
            Phase::Open => {
                sleep(pause).await;
                pause = (pause * 2).min(longest);
                continue;
            }
            Phase::Settling => outage.breaker.settling_time(),
            Phase::Well | Phase::Failing => times.refresh_interval(),
        };
        pause = PAUSE.0.min(longest);
        // Until then the breaker may open.
        let opened = phases.wait_for(|phase| *phase == Phase::Open);
        let _ = timeout(rest, opened).await;
        outage.breaker.settle();
    }
}
