//! The world: processes, servers and connections in simulated time. A schedule determines the course of events
//! completely.

mod moves;
mod network;
mod processes;
mod questions;
mod steps;

use crate::wire::{BUDGET, BUDGETS};
use crate::{
    judge::{Judge, Violation},
    process::{Conduct, Input, Process},
    schedule::{Data, Random, Schedule, Step},
    server::Server,
    subject::{Call, CallId, Key, PermitId, Resize, Said, SlotNo},
};
use model::lua::Runner;
use questions::{Asked, Outcome, Sent};
use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// Much longer than any budget needs to be full again, in ms.
const AGES: i64 = 24 * 60 * 60 * 1_000;

/// The result of a simulation.
#[derive(Debug)]
pub struct Course {
    /// The first violation.
    pub violation: Option<Violation>,
    /// The events, one per line. Empty unless a trace was requested.
    pub trace: String,
    /// The number of scripts that have run.
    pub scripts: usize,
}

/// An event.
#[derive(Debug)]
enum Happening {
    /// A step of the schedule.
    Step(Step),
    /// A call leaves a process over a connection of this generation.
    Leave(usize, u32, Call),
    /// A call arrives at a server over a connection of this generation.
    Call(usize, u32, Call),
    /// An answer arrives at a process over this link, by a connection of this generation.
    Reply(usize, usize, u32, CallId, Vec<Said>),
    /// Another input arrives at a process.
    Input(usize, Input),
    /// A suspended process goes on.
    Resume(usize),
    /// A process tries to connect a link.
    Connect(usize, usize),
    /// A connection of this generation and link breaks.
    Cut(usize, usize, u32),
    /// An operator revokes an id of a semaphore.
    Revoke(Key, String),
    /// The request to pause a semaphore, or to end its pause, arrives at a server from a process.
    PauseKey(usize, Key, Option<Duration>),
    /// A process sends an operator's question again.
    AskAgain(u64),
    /// An attempt of a question arrives at a server.
    Question(Sent),
    /// An attempt of a question has ended.
    Outcome(Sent, Outcome),
    /// Some keys of a moving slot move to the new server; with `Migrate`, all of them do.
    Split(SlotNo),
    Migrate(SlotNo),
    /// A slot has moved.
    Moved(SlotNo),
    /// All processes know of a move.
    Known,
    /// The value that another program has written over a key of a semaphore is deleted.
    Cure(Key),
    /// The replica of a server receives everything again.
    Unmute(usize),
    /// A server starts.
    Start(usize, Data),
    /// The judge compares held units with the permits that callers know.
    Weigh,
    /// All callers give up their claims.
    Quiet,
    /// Nothing of the claims may be left.
    Settled,
}

#[derive(Debug)]
struct World<'a> {
    schedule: &'a Schedule,
    runner: &'a Runner,
    now: Duration,
    random: Random,
    agenda: BTreeMap<(Duration, u64), Happening>,
    filed: u64,
    processes: Vec<Process>,
    servers: Vec<Server>,
    conduct: BTreeMap<(usize, PermitId), Conduct>,
    /// Growths without an outcome. Each has its permit, and the units of earlier growths that it replaces.
    merges: BTreeMap<(usize, PermitId), (PermitId, Key, Resize)>,
    /// Operators' questions without a final outcome.
    questions: BTreeMap<u64, Asked>,
    /// When a server reports its time to a process again.
    hidden: BTreeMap<(usize, usize), Duration>,
    judge: Judge,
    trace: Option<String>,
    scripts: usize,
}

/// Runs a simulation until its end, or until the first violation.
pub fn run(runner: &Runner, schedule: &Schedule, is_traced: bool) -> Course {
    let mut world = World::new(runner, schedule);
    world.trace = is_traced.then(String::new);
    while world.judge.violation.is_none() && world.goes_on() {}
    if let Some(violation) = &world.judge.violation {
        let text = format!("VIOLATION {violation}");
        world.note(|| text);
    }
    Course {
        violation: world.judge.violation.take(),
        trace: world.trace.take().unwrap_or_default(),
        scripts: world.scripts,
    }
}

impl<'a> World<'a> {
    fn new(runner: &'a Runner, schedule: &'a Schedule) -> Self {
        let mut random = Random::new(!schedule.seed);
        schedule.slots.reset();
        let processes = (0..schedule.processes).map(|at| {
            let settings = schedule.settings(at);
            let (boot, drift) = (random.up_to_ms(100_000_000), random.below(400) as i64 - 200);
            Process::new(settings, boot, drift)
        });
        let processes = processes.collect();
        let clocks = schedule.clocks.iter().take(schedule.servers);
        let mut world = Self {
            schedule,
            runner,
            now: Duration::ZERO,
            processes,
            servers: clocks.map(|clock| Server::new(*clock)).collect(),
            random,
            agenda: BTreeMap::new(),
            filed: 0,
            conduct: BTreeMap::new(),
            merges: BTreeMap::new(),
            questions: BTreeMap::new(),
            hidden: BTreeMap::new(),
            judge: Judge::new(schedule),
            trace: None,
            scripts: 0,
        };
        world.file_all();
        world
    }

    /// Schedules the events that are known at the start.
    fn file_all(&mut self) {
        let schedule = self.schedule;
        for (at, step) in &schedule.steps {
            self.file(*at, Happening::Step(*step));
        }
        for process in 0..schedule.processes {
            for link in 0..self.processes[process].links.len() {
                self.file(Duration::ZERO, Happening::Connect(process, link));
            }
        }
        let ms = schedule.quiet().as_millis() as u64;
        for at in (500..ms).step_by(250).map(Duration::from_millis) {
            self.file(at, Happening::Weigh);
        }
        self.file(schedule.quiet(), Happening::Quiet);
        for at in [0, 500, 1_000, 1_900].map(Duration::from_millis) {
            self.file(schedule.settled() + at, Happening::Settled);
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let micros = self.now.as_micros();
            let (ms, rest) = (micros / 1_000, micros % 1_000);
            trace.push_str(&format!("{ms:>6}.{rest:03} ms  {}\n", text()));
        }
    }

    fn file(&mut self, at: Duration, happening: Happening) {
        self.filed += 1;
        self.agenda.insert((at, self.filed), happening);
    }

    fn after(&mut self, time: Duration, happening: Happening) {
        self.file(self.now + time, happening);
    }

    /// The process to wake next, and when.
    fn next_wake(&self) -> Option<(Duration, usize)> {
        let wakes = self
            .processes
            .iter()
            .enumerate()
            .filter_map(|(at, process)| {
                let (_, wake) = process.wake.filter(|_| process.core.is_some())?;
                Some((wake.max(process.suspended_until), at))
            });
        wakes.min()
    }

    /// Runs the next event. A core must not panic, whatever the event is. Returns false at the end.
    fn goes_on(&mut self) -> bool {
        let step = catch_unwind(AssertUnwindSafe(|| self.step()));
        step.unwrap_or_else(|_| {
            self.judge
                .fail("a panic", || "a core has panicked".to_owned());
            false
        })
    }

    /// Runs the next event. Returns false at the end.
    fn step(&mut self) -> bool {
        let wake = self.next_wake();
        let filed = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let next = wake.map(|(at, _)| at).into_iter().chain(filed).min();
        let Some(next) = next.filter(|next| *next <= self.schedule.end()) else {
            self.now = self.schedule.end();
            self.touch_budgets();
            self.judge.end(&self.processes, &self.servers, self.now);
            return false;
        };
        if next > self.now {
            self.judge.pass(&self.processes, &self.servers, self.now);
            self.note_troubles(next);
            self.now = next;
        }
        match wake.filter(|(at, _)| *at == next) {
            Some((_, process)) => self.wake(process),
            None => {
                if let Some((_, happening)) = self.agenda.pop_first() {
                    self.happen(happening);
                }
            }
        }
        true
    }

    /// Looks at all budgets once all leases have ended, and much later.
    fn touch_budgets(&mut self) {
        if !self.schedule.has_budgets() {
            return;
        }
        for (key, ahead) in (BUDGET..BUDGET + BUDGETS).flat_map(|key| [(key, 0), (key, AGES)]) {
            let number = self.home(key);
            let server = &mut self.servers[number];
            let clock = server.clock(self.now) / 1_000 + ahead;
            match server.touch(self.runner, self.now, (key, ahead)) {
                Ok(data) => self.judge.touched(number, key, &data, clock),
                Err(error) => self.judge.fail("script", || error),
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step(step) => self.take_step(step),
            Happening::Call(process, generation, call) => self.arrive(process, generation, call),
            Happening::Leave(process, generation, call) => self.leave(process, generation, call),
            Happening::Reply(process, link, generation, id, answers) => {
                self.reply(process, link, generation, id, answers);
            }
            Happening::Input(process, input) => self.input(process, input),
            Happening::Resume(process) => self.resume(process),
            Happening::Connect(process, link) => self.connect(process, link),
            Happening::Cut(process, link, generation) => {
                if self.processes[process].links[link].generation == generation {
                    self.cut(process, link);
                }
            }
            Happening::Unmute(server) => self.servers[server].unmute(),
            Happening::Cure(key) => {
                let home = self.home(key);
                self.servers[home].cure(key);
            }
            Happening::Split(slot) => self.schedule.slots.split(slot),
            Happening::Migrate(slot) => self.migrate(slot),
            Happening::Moved(slot) => self.moved(slot),
            Happening::Known => self.judge.moves(&self.processes, self.now),
            Happening::Revoke(key, id) => self.revoke(key, &id),
            Happening::PauseKey(process, key, time) => self.run_pause(process, key, time),
            Happening::AskAgain(question) => self.send_question(question),
            Happening::Question(sent) => self.run_question(sent),
            Happening::Outcome(sent, outcome) => self.attempt_ends(sent, outcome),
            Happening::Start(server, data) => {
                self.note(|| format!("server {server} starts with {data:?} data"));
                self.servers[server].start(self.now, data);
                self.forget_moved(server);
            }
            Happening::Weigh => self.judge.weigh(&self.processes, &self.servers, self.now),
            Happening::Quiet => self.quiet(),
            Happening::Settled => self.judge.settled(&self.servers, self.now),
        }
    }

    /// All callers give up their permits and claims.
    fn quiet(&mut self) {
        self.note(|| "every claim is over".to_owned());
        for (at, permit) in self.judge.open() {
            self.input(at, Input::Release(permit));
        }
    }
}
