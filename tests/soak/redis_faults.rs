//! What happens to Redis, and on the way to it.

use crate::{
    faults::Deck,
    fleet::PROCESSES,
    plan::{LONG_MS, SHORT_MS},
    stage::Stage,
    troubles::Whom,
};
use std::time::Duration;
use testing::{proxy::End, resp::Raw, rng::Rng};
use tokio::{task::block_in_place, time::sleep};

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The server forgets the scripts.
    ScriptsFlushed,
    /// The connections of a process end, or those of all.
    Cut,
    CutAll,
    /// Nothing passes, or no reply does.
    Silence,
    Paused,
    PausedLong,
    Stopped,
    StoppedLong,
    /// The library's keys vanish at one moment; the market's stay, so that it can be judged.
    Flushed,
    /// Killed, and back with all that it had written.
    Killed,
    /// Killed, and back without the library's keys.
    KilledAndFlushed,
}

const FAULTS: [Fault; 11] = [
    Fault::ScriptsFlushed,
    Fault::Cut,
    Fault::CutAll,
    Fault::Silence,
    Fault::Paused,
    Fault::PausedLong,
    Fault::Stopped,
    Fault::StoppedLong,
    Fault::Flushed,
    Fault::Killed,
    Fault::KilledAndFlushed,
];

const ENDS: [End; 4] = [End::Close, End::HalfClose, End::Reset, End::Silence];
const FLUSH: &str = "for _, key in ipairs(redis.call('KEYS', 'semaphore:*')) do \
    redis.call('DEL', key) end";

/// After all faults have come once. Long enough that what happens in it has no excuse.
const CALM: Duration = Duration::from_secs(12);

/// One fault after the other until there should be no more.
pub(crate) async fn inject(stage: &Stage, mut rng: Rng) {
    let mut deck = Deck::new(&FAULTS);
    while !stage.calm.is_cancelled() {
        sleep(rng.millis(1_000..4_000)).await;
        let fault = deck.draw(&mut rng);
        let unreachable = stage.reachable.write().await;
        one(stage, fault, &mut rng).await;
        drop(unreachable);
        if deck.is_used_up() {
            sleep(CALM).await;
        }
    }
}

async fn one(stage: &Stage, fault: Fault, rng: &mut Rng) {
    let (short, long) = (rng.millis(SHORT_MS), rng.millis(LONG_MS));
    stage.report.fault(format_args!("Redis {fault:?}"));
    match fault {
        Fault::ScriptsFlushed => command(stage, &["SCRIPT", "FLUSH"]).await,
        Fault::Cut => cut(stage, &[rng.below(PROCESSES)], rng),
        Fault::CutAll => cut(stage, &[0, 1, 2], rng),
        Fault::Silence => silence(stage, short, rng).await,
        Fault::Paused => {
            let _disturbance = stage.disturb(Whom::All);
            pause(stage, short).await;
        }
        Fault::PausedLong => {
            let _disturbance = stage.displace(Whom::All);
            pause(stage, long).await;
        }
        Fault::Stopped => {
            let _disturbance = stage.disturb(Whom::All);
            stop(stage, short).await;
        }
        Fault::StoppedLong => {
            let _disturbance = stage.displace(Whom::All);
            stop(stage, long).await;
        }
        Fault::Flushed | Fault::Killed | Fault::KilledAndFlushed => {
            let _disturbance = stage.displace(Whom::All);
            destroy(stage, fault, short).await;
        }
    }
}

async fn destroy(stage: &Stage, fault: Fault, away: Duration) {
    if !matches!(fault, Fault::Flushed) {
        let mut server = stage.server.lock().await;
        block_in_place(|| server.kill());
        sleep(away).await;
        block_in_place(|| server.restart());
    }
    if !matches!(fault, Fault::Killed) {
        command(stage, &["EVAL", FLUSH, "0"]).await;
    }
}

fn cut(stage: &Stage, processes: &[usize], rng: &mut Rng) {
    for at in processes {
        let end = rng.one_of(&ENDS);
        stage
            .report
            .fault(format_args!("connections of {at}: {end:?}"));
        stage.fleet.proxies[*at].kill(end);
    }
}

async fn silence(stage: &Stage, length: Duration, rng: &mut Rng) {
    let at = rng.below(PROCESSES);
    let _disturbance = stage.disturb(Whom::Process(at));
    let proxy = &stage.fleet.proxies[at];
    match rng.once_in(2) {
        true => proxy.black_hole(),
        false => proxy.mute(),
    }
    sleep(length).await;
    proxy.forward();
}

async fn pause(stage: &Stage, length: Duration) {
    let millis = length.as_millis().to_string();
    command(stage, &["CLIENT", "PAUSE", &millis]).await;
    sleep(length).await;
}

async fn stop(stage: &Stage, length: Duration) {
    let server = stage.server.lock().await;
    server.stop();
    sleep(length).await;
    server.cont();
    // Until it has run, nothing has been displaced yet.
    Raw::connect(stage.port).await.cmd(&["PING"]).await;
}

async fn command(stage: &Stage, args: &[&str]) {
    Raw::connect(stage.port).await.cmd(args).await;
}
