//! What happens to the processes.

use crate::{
    faults::Deck,
    fleet::PROCESSES,
    plan::{LONG_MS, SHORT_MS},
    stage::Stage,
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
pub(crate) async fn inject(stage: &Stage, mut rng: Rng) {
    let mut deck = Deck::new(&FAULTS);
    while !stage.calm.is_cancelled() {
        sleep(rng.millis(500..4_000)).await;
        let fault = deck.draw(&mut rng);
        one(stage, fault, &mut rng).await;
    }
}

/// The first process is never replaced, so its memory tells of the whole run.
async fn one(stage: &Stage, fault: Fault, rng: &mut Rng) {
    let (any, replaced) = (rng.below(PROCESSES), 1 + rng.below(PROCESSES - 1));
    let (short, long) = (rng.millis(SHORT_MS), rng.millis(LONG_MS));
    stage.report.fault(format_args!("process {fault:?}"));
    match fault {
        Fault::Killed => replace(stage, replaced, Signal::KILL).await,
        Fault::Terminated => replace(stage, replaced, Signal::TERM).await,
        Fault::Stopped => stop(stage, any, short).await,
        Fault::StoppedLong => stop(stage, any, long).await,
    }
}

async fn replace(stage: &Stage, at: usize, signal: Signal) {
    let _disturbance = stage.displace(Whom::Process(at));
    if let Some(mut market) = stage.fleet.take(at) {
        market.signal(signal);
        let ended = timeout(END, market.ended()).await;
        let is_fine = ended.is_ok_and(|status| signal == Signal::KILL || status.success());
        if !is_fine {
            let example = market.panic().unwrap_or_default();
            stage.report.wrong("a process did not end well", example);
        }
    }
    let _reachable = stage.reachable.read().await;
    stage.fleet.launch(at).await;
}

async fn stop(stage: &Stage, at: usize, length: Duration) {
    let _disturbance = stage.displace(Whom::Process(at));
    stage.fleet.with(at, |market| market.signal(Signal::STOP));
    sleep(length).await;
    stage.fleet.with(at, |market| market.signal(Signal::CONT));
}
