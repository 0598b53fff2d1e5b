//! What happens to the processes.

use super::{
    faults::Deck,
    fixture::Fixture,
    fleet::PROCESSES,
    plan::{LONG_MS, SHORT_MS},
    troubles::Whom,
};
use rustix::process::Signal;
use std::time::Duration;
use testing::rng::Rng;
use tokio::time::{sleep, timeout};

#[derive(Debug, Clone, Copy)]
enum Fault {
    Killed,
    /// Told to end, which it does by itself.
    Terminated,
    Stopped,
    StoppedLong,
}

const FAULTS: [Fault; 4] = [
    Fault::Killed,
    Fault::Terminated,
    Fault::Stopped,
    Fault::StoppedLong,
];

/// How long a process that is told to end may take on a busy machine.
const END: Duration = Duration::from_secs(60);

/// One fault after the other until there should be no more.
pub(crate) async fn inject(fixture: &Fixture, mut rng: Rng) {
    let mut deck = Deck::new(&FAULTS);
    while !fixture.calm.is_cancelled() {
        sleep(rng.millis(500..4_000)).await;
        let fault = deck.draw(&mut rng);
        one(fixture, fault, &mut rng).await;
    }
}

/// The first process is never replaced, so its memory tells of the whole run.
async fn one(fixture: &Fixture, fault: Fault, rng: &mut Rng) {
    let (any, replaced) = (rng.below(PROCESSES), 1 + rng.below(PROCESSES - 1));
    let (short, long) = (rng.millis(SHORT_MS), rng.millis(LONG_MS));
    fixture.report.fault(format_args!("process {fault:?}"));
    match fault {
        Fault::Killed => replace(fixture, replaced, Signal::KILL).await,
        Fault::Terminated => replace(fixture, replaced, Signal::TERM).await,
        Fault::Stopped => stop(fixture, any, short).await,
        Fault::StoppedLong => stop(fixture, any, long).await,
    }
}

async fn replace(fixture: &Fixture, at: usize, signal: Signal) {
    let _disturbance = fixture.displace(Whom::Process(at));
    if let Some(mut market) = fixture.fleet.take(at) {
        market.signal(signal);
        let ended = timeout(END, market.ended()).await;
        let is_fine = ended.is_ok_and(|status| signal == Signal::KILL || status.success());
        if !is_fine {
            let example = market.panic().unwrap_or_default();
            fixture.report.wrong("a process did not end well", example);
        }
    }
    let _reachable = fixture.reachable.read().await;
    fixture.fleet.launch(at).await;
}

async fn stop(fixture: &Fixture, at: usize, length: Duration) {
    let _disturbance = fixture.displace(Whom::Process(at));
    fixture.fleet.with(at, |market| market.signal(Signal::STOP));
    sleep(length).await;
    fixture.fleet.with(at, |market| market.signal(Signal::CONT));
}
