//! Faults of Redis, of the connections to it, and of the processes. Each kind occurs once per round, in random order.

use super::{
    fixture::Fixture,
    fleet::PROCESSES,
    plan::{LONG_MS, SHORT_MS},
    report::Whom,
};
use rustix::process::Signal;
use std::time::Duration;
use testing::{proxy::End, resp::Raw, rng::Rng};
use tokio::{
    task::block_in_place,
    time::{sleep, timeout},
};

/// A deck of cards that is refilled whenever it is empty.
struct Deck<T> {
    all: Vec<T>,
    remaining: Vec<T>,
}

impl<T: Copy> Deck<T> {
    fn new(all: &[T]) -> Self {
        Self {
            all: all.to_vec(),
            remaining: Vec::new(),
        }
    }

    /// True if all cards have been drawn.
    fn is_used_up(&self) -> bool {
        self.remaining.is_empty()
    }

    fn draw(&mut self, rng: &mut Rng) -> T {
        if self.remaining.is_empty() {
            self.remaining.clone_from(&self.all);
        }
        let at = rng.below(self.remaining.len());
        self.remaining.swap_remove(at)
    }
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The server loses the scripts.
    ScriptsFlushed,
    /// The connections of one process end.
    Cut,
    /// The connections of all processes end.
    CutAll,
    /// No data passes between one process and Redis, or no replies do.
    Silence,
    /// `CLIENT PAUSE`, shorter or longer than a lease.
    Paused,
    PausedLong,
    /// Redis gets a SIGSTOP, for shorter or longer than a lease.
    Stopped,
    StoppedLong,
    /// All keys of the library vanish at once. The market's keys stay, so that its trades can be judged.
    Flushed,
    /// Redis is killed and restarted with all its data.
    Killed,
    /// Redis is killed and restarted without the library's keys.
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

/// The pause after each round. A problem near its end is not the consequence of a fault.
const CALM: Duration = Duration::from_secs(12);

/// Injects faults of Redis and of the connections to it, one after another, until `calm` is cancelled.
pub(crate) async fn inject_redis_faults(fixture: &Fixture, mut rng: Rng) {
    let mut deck = Deck::new(&FAULTS);
    while !fixture.calm.is_cancelled() {
        sleep(rng.millis(1_000..4_000)).await;
        let fault = deck.draw(&mut rng);
        let unreachable = fixture.reachable.write().await;
        inject(fixture, fault, &mut rng).await;
        drop(unreachable);
        if deck.is_used_up() {
            sleep(CALM).await;
        }
    }
}

/// Injects a fault: with `disturb` if it is too short to lose permits, and with `displace` if it may lose some.
async fn inject(fixture: &Fixture, fault: Fault, rng: &mut Rng) {
    let (short, long) = (rng.millis(SHORT_MS), rng.millis(LONG_MS));
    fixture.report.fault(format_args!("Redis {fault:?}"));
    match fault {
        Fault::ScriptsFlushed => command(fixture, &["SCRIPT", "FLUSH"]).await,
        Fault::Cut => cut(fixture, &[rng.below(PROCESSES)], rng),
        Fault::CutAll => cut(fixture, &[0, 1, 2], rng),
        Fault::Silence => silence(fixture, short, rng).await,
        Fault::Paused => {
            let _disturbance = fixture.disturb(Whom::All);
            pause(fixture, short).await;
        }
        Fault::PausedLong => {
            let _disturbance = fixture.displace(Whom::All);
            pause(fixture, long).await;
        }
        Fault::Stopped => {
            let _disturbance = fixture.disturb(Whom::All);
            stop(fixture, short).await;
        }
        Fault::StoppedLong => {
            let _disturbance = fixture.displace(Whom::All);
            stop(fixture, long).await;
        }
        Fault::Flushed | Fault::Killed | Fault::KilledAndFlushed => {
            let _disturbance = fixture.displace(Whom::All);
            destroy(fixture, fault, short).await;
        }
    }
}

async fn destroy(fixture: &Fixture, fault: Fault, away: Duration) {
    if !matches!(fault, Fault::Flushed) {
        let mut server = fixture.server.lock().await;
        block_in_place(|| server.kill());
        sleep(away).await;
        block_in_place(|| server.restart());
    }
    if !matches!(fault, Fault::Killed) {
        command(fixture, &["EVAL", FLUSH, "0"]).await;
    }
}

fn cut(fixture: &Fixture, processes: &[usize], rng: &mut Rng) {
    for at in processes {
        let end = rng.one_of(&ENDS);
        fixture
            .report
            .fault(format_args!("connections of {at}: {end:?}"));
        fixture.fleet.proxies[*at].kill(end);
    }
}

async fn silence(fixture: &Fixture, length: Duration, rng: &mut Rng) {
    let at = rng.below(PROCESSES);
    let _disturbance = fixture.disturb(Whom::Process(at));
    let proxy = &fixture.fleet.proxies[at];
    if rng.once_in(2) {
        proxy.black_hole();
    } else {
        proxy.mute();
    }
    sleep(length).await;
    proxy.forward();
}

async fn pause(fixture: &Fixture, length: Duration) {
    let millis = length.as_millis().to_string();
    command(fixture, &["CLIENT", "PAUSE", &millis]).await;
    sleep(length).await;
}

async fn stop(fixture: &Fixture, length: Duration) {
    let server = fixture.server.lock().await;
    server.stop();
    sleep(length).await;
    server.cont();
    // The fault ends when the server answers again.
    Raw::connect(fixture.port).await.cmd(&["PING"]).await;
}

async fn command(fixture: &Fixture, args: &[&str]) {
    Raw::connect(fixture.port).await.cmd(args).await;
}

#[derive(Debug, Clone, Copy)]
enum ProcessFault {
    Killed,
    /// The process gets a SIGTERM, and ends by itself.
    Terminated,
    Stopped,
    StoppedLong,
}

const PROCESS_FAULTS: [ProcessFault; 4] = [
    ProcessFault::Killed,
    ProcessFault::Terminated,
    ProcessFault::Stopped,
    ProcessFault::StoppedLong,
];

/// The longest time for a process to end after a SIGTERM, even on a busy machine.
const END: Duration = Duration::from_secs(60);

/// Injects faults of the processes, one after another, until `calm` is cancelled.
pub(crate) async fn inject_process_faults(fixture: &Fixture, mut rng: Rng) {
    let mut deck = Deck::new(&PROCESS_FAULTS);
    while !fixture.calm.is_cancelled() {
        sleep(rng.millis(500..4_000)).await;
        let fault = deck.draw(&mut rng);
        inject_into_process(fixture, fault, &mut rng).await;
    }
}

/// Injects a fault of a process. The first process is never replaced, so that its memory is measured over the whole
/// run.
async fn inject_into_process(fixture: &Fixture, fault: ProcessFault, rng: &mut Rng) {
    let (any, replaced) = (rng.below(PROCESSES), 1 + rng.below(PROCESSES - 1));
    let (short, long) = (rng.millis(SHORT_MS), rng.millis(LONG_MS));
    fixture.report.fault(format_args!("process {fault:?}"));
    match fault {
        ProcessFault::Killed => replace(fixture, replaced, Signal::KILL).await,
        ProcessFault::Terminated => replace(fixture, replaced, Signal::TERM).await,
        ProcessFault::Stopped => stop_process(fixture, any, short).await,
        ProcessFault::StoppedLong => stop_process(fixture, any, long).await,
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

async fn stop_process(fixture: &Fixture, at: usize, length: Duration) {
    let _disturbance = fixture.displace(Whom::Process(at));
    fixture.fleet.with(at, |market| market.signal(Signal::STOP));
    sleep(length).await;
    fixture.fleet.with(at, |market| market.signal(Signal::CONT));
}
