//! Tells the store that this process is alive, and finds out whether servers are back.
//!
//! Both are one script, because it writes as an acquire does: a server that refuses writes is not
//! back.

use super::{breaker::Breaker, phase::Phase, state::Outage};
use crate::redis::{dispatch::Attempts, protocol::Protocol};
use futures_util::{StreamExt, future::join, stream::FuturesUnordered};
use std::{
    collections::HashSet,
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

/// Calls once per announcement interval until the store shuts down and, while a breaker is open, one probe
/// after the other. Runs on the keeper's thread until that ends: releases wait for the server too.
pub(in crate::redis) async fn probe(
    outage: Arc<Outage>,
    attempts: Arc<Attempts>,
    mut closed: watch::Receiver<bool>,
) {
    let protocol = &attempts.protocol;
    let until_closed = async {
        tokio::select! {
            () = announce(&outage, protocol) => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
        outage.leave();
        call(&outage, protocol).await;
    };
    join(until_closed, probe_forever(&outage, protocol)).await;
}

/// Says that this process is alive: once per announcement interval, and when a server is back.
async fn announce(outage: &Outage, protocol: &Protocol) {
    let mut returns = outage.breakers.summary.returns.subscribe();
    loop {
        returns.mark_unchanged();
        if !outage.is_silent(&protocol.processes_key()) {
            call(outage, protocol).await;
        }
        let _ = timeout(outage.times.announcement_interval(), returns.changed()).await;
    }
}

/// Says that this process is alive, or that it leaves. The breaker observes the outcome. Without an
/// answer the last count stays, and the process ceases to count a lease after its last call.
async fn call(outage: &Outage, protocol: &Protocol) {
    let now = Instant::now();
    let deadline = now + outage.times.timeout;
    if outage.is_leaving() {
        let _ = protocol.leave(deadline).await;
    } else if let Ok(count) = protocol.live(deadline).await {
        outage.live.told(count, now, outage.times.lease);
    }
}

/// Runs the probes of all servers side by side.
async fn probe_forever(outage: &Outage, protocol: &Protocol) {
    let mut alarms = outage.alarms();
    let (mut running, mut probes) = (HashSet::new(), FuturesUnordered::new());
    loop {
        for (number, breaker) in outage.breakers.all().into_iter().enumerate() {
            if breaker.phase() != Phase::Well && running.insert(number) {
                probes.push(async move {
                    until_well(outage, protocol, &breaker).await;
                    number
                });
            }
        }
        tokio::select! {
            _ = alarms.changed() => {}
            Some(number) = probes.next() => {
                running.remove(&number);
            }
        }
    }
}

/// Sends probes while calls fail or the breaker is open, and lets the server settle when it is back.
async fn until_well(outage: &Outage, protocol: &Protocol, breaker: &Breaker) {
    let mut phases = breaker.changes();
    loop {
        let phase = *phases.borrow_and_update();
        match phase {
            Phase::Well => return,
            // An answer tells that nothing but a call has failed.
            Phase::Failing => {
                send(outage, protocol, breaker).await;
                let _ = timeout(PAUSE.0, phases.changed()).await;
            }
            Phase::Settling => {
                let changed = timeout(breaker.settling_time(), phases.changed()).await;
                if changed.is_err() {
                    send(outage, protocol, breaker).await;
                }
            }
            Phase::Open => while_open(outage, protocol, breaker).await,
        }
    }
}

/// Sends one probe after the other.
async fn while_open(outage: &Outage, protocol: &Protocol, breaker: &Breaker) {
    if !breaker.is_of_one_server() {
        outage.breakers.doubt_others();
    }
    let longest = PAUSE.1.min(outage.times.timeout);
    let mut pause = PAUSE.0.min(longest);
    while send(outage, protocol, breaker).await {
        sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// Sends one probe. Returns whether the breaker stays open.
async fn send(outage: &Outage, protocol: &Protocol, breaker: &Breaker) -> bool {
    let key = breaker.last_key();
    let deadline = Instant::now() + outage.times.timeout;
    match protocol.probe(&key, deadline) {
        // The process is announced too.
        None => call(outage, protocol).await,
        Some(probe) => {
            let outcome = probe.await;
            // The key may have moved to another server. Then what fails next tells where to look.
            breaker.observe([(&*key, outcome.as_ref().err())]);
        }
    }
    breaker.phase() == Phase::Open
}
