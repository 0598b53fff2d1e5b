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

/// Much longer than any budget takes until all units have come back, in ms.
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
    /// A call leaves a process. The numbers are the process and the generation of the connection.
    Leave(usize, u32, Call),
    /// A call arrives at its server. The numbers are as for `Leave`.
    Call(usize, u32, Call),
    /// The answer to a call arrives at a process. The numbers are the process, its link, and the generation.
    Reply(usize, usize, u32, CallId, Vec<Said>),
    /// Another input arrives at a process.
    Input(usize, Input),
    /// A suspended process goes on.
    Resume(usize),
    /// A process tries to connect a link.
    Connect(usize, usize),
    /// A connection of a process breaks. The numbers are the process, its link, and the generation.
    Cut(usize, usize, u32),
    /// An operator revokes an id of a semaphore.
    Revoke(Key, String),
    /// A process's request to pause a semaphore arrives at the server. `None`: to end the pause.
    PauseKey(usize, Key, Option<Duration>),
    /// A process sends an operator's question again.
    AskAgain(u64),
    /// An attempt of a question arrives at a server.
    Question(Sent),
    /// An attempt of a question has ended.
    Outcome(Sent, Outcome),
    /// The first keys of a moving slot move to the new server.
    Split(SlotNo),
    /// The other keys of the slot do.
    Migrate(SlotNo),
    /// The new server owns a slot whose keys have moved.
    Moved(SlotNo),
    /// All processes know of a move.
    Known,
    /// The value that another program has written over a key of a semaphore is deleted.
    Cure(Key),
    /// The replica of a server receives everything again.
    Unmute(usize),
    /// A server starts.
    Start(usize, Data),
    /// The judge compares the units on servers with the permits that callers have.
    Weigh,
    /// All callers give up their claims.
    Quiet,
    /// The judge checks that nothing is left of the claims.
    Cleared,
}

#[derive(Debug)]
struct World<'a> {
    schedule: &'a Schedule,
    runner: &'a Runner,
    now: Duration,
    random: Random,
    /// The events to come, by their time and by the order in which they were scheduled.
    agenda: BTreeMap<(Duration, u64), Happening>,
    /// The number of events that were ever scheduled.
    scheduled: u64,
    processes: Vec<Process>,
    servers: Vec<Server>,
    /// How the caller of each claim behaves.
    conduct: BTreeMap<(usize, PermitId), Conduct>,
    /// Growths without an outcome. Each has the permit that grows, the semaphore, and the units of earlier growths that
    /// it replaces once it is granted.
    merges: BTreeMap<(usize, PermitId), (PermitId, Key, Resize)>,
    /// Operators' questions without a final outcome.
    questions: BTreeMap<u64, Asked>,
    /// When a server reports its time to a process again.
    hidden: BTreeMap<(usize, usize), Duration>,
    judge: Judge,
    trace: Option<String>,
    /// The number of scripts that have run.
    scripts: usize,
}

/// Runs a simulation until its end, or until the first violation.
pub fn run(runner: &Runner, schedule: &Schedule, is_traced: bool) -> Course {
    let mut world = World::new(runner, schedule);
    world.trace = is_traced.then(String::new);
    while world.judge.violation.is_none() && world.run_next() {}
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
        // The schedule was drawn from the seed itself.
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
            scheduled: 0,
            conduct: BTreeMap::new(),
            merges: BTreeMap::new(),
            questions: BTreeMap::new(),
            hidden: BTreeMap::new(),
            judge: Judge::new(schedule),
            trace: None,
            scripts: 0,
        };
        world.schedule_all();
        world
    }

    /// Schedules the events that are certain from the start.
    fn schedule_all(&mut self) {
        let schedule = self.schedule;
        for (at, step) in &schedule.steps {
            self.schedule_at(*at, Happening::Step(*step));
        }
        for process in 0..schedule.processes {
            for link in 0..self.processes[process].links.len() {
                self.schedule_at(Duration::ZERO, Happening::Connect(process, link));
            }
        }
        let ms = schedule.quiet().as_millis() as u64;
        for at in (500..ms).step_by(250).map(Duration::from_millis) {
            self.schedule_at(at, Happening::Weigh);
        }
        self.schedule_at(schedule.quiet(), Happening::Quiet);
        // The simulation ends 2 s later, or after two leases.
        for at in [0, 500, 1_000, 1_900].map(Duration::from_millis) {
            self.schedule_at(schedule.cleared() + at, Happening::Cleared);
        }
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let micros = self.now.as_micros();
            let (ms, rest) = (micros / 1_000, micros % 1_000);
            trace.push_str(&format!("{ms:>6}.{rest:03} ms  {}\n", text()));
        }
    }

    fn schedule_at(&mut self, at: Duration, happening: Happening) {
        self.scheduled += 1;
        self.agenda.insert((at, self.scheduled), happening);
    }

    fn schedule_after(&mut self, time: Duration, happening: Happening) {
        self.schedule_at(self.now + time, happening);
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

    /// Runs the next event, and reports a panic of a core as a violation. Returns false at the end.
    fn run_next(&mut self) -> bool {
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
        let scheduled = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let next = wake.map(|(at, _)| at).into_iter().chain(scheduled).min();
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
                    self.handle(happening);
                }
            }
        }
        true
    }

    /// Runs a script at each budget, once now that all leases have ended, and once as if much later.
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

    fn handle(&mut self, happening: Happening) {
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
            Happening::Cleared => self.judge.check_cleared(&self.servers, self.now),
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
