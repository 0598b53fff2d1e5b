//! The world: processes, servers and connections in simulated time. One schedule gives one course of
//! events, to the last one.

use crate::{
    judge::{Judge, Violation},
    process::{Conduct, Fate, Input, LATE, Process, Way},
    schedule::{Break, Data, Random, Schedule, Step},
    server::{Run, Server},
    subject::{
        Call, CallId, Command, Event, Failure, Message, PermitId, Said, Servers, Settings, Subject,
    },
    wire::{self, Script},
};
use model::lua::Runner;
use std::{collections::BTreeMap, time::Duration};

/// How a core is made.
pub type Make<'a> = &'a dyn Fn(Settings) -> Box<dyn Subject>;

/// How a simulation has ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was wrong first.
    pub violation: Option<Violation>,
    /// What has happened, a line each; empty unless it was asked for.
    pub trace: String,
    /// How many scripts have run.
    pub scripts: usize,
}

/// What happens at an instant.
#[derive(Debug)]
enum Happening {
    /// A step of the schedule.
    Step(Step),
    /// A call comes to a server over a connection of this generation.
    Call(usize, u32, Call),
    /// An answer comes to a process over this link, and such a connection.
    Reply(usize, usize, u32, CallId, Vec<Said>),
    /// Something else comes to a process.
    Input(usize, Input),
    /// A process goes on.
    Resume(usize),
    /// A process tries to connect a link.
    Connect(usize, usize),
    /// A connection of this generation and link breaks.
    Cut(usize, usize, u32),
    /// A server starts.
    Start(usize, Data),
    /// Every claim is over.
    Quiet,
    /// Nothing of them may be left.
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
    judge: Judge,
    trace: Option<String>,
    scripts: usize,
}

/// Runs a simulation until its end, or until something is wrong.
pub fn run(runner: &Runner, schedule: &Schedule, make: Make<'_>, is_traced: bool) -> Outcome {
    let mut world = World::new(runner, schedule, make);
    world.trace = is_traced.then(String::new);
    while world.judge.violation.is_none() && world.step() {}
    if let Some(violation) = &world.judge.violation {
        let text = format!("VIOLATION {violation}");
        world.note(|| text);
    }
    Outcome {
        violation: world.judge.violation.take(),
        trace: world.trace.take().unwrap_or_default(),
        scripts: world.scripts,
    }
}

impl<'a> World<'a> {
    fn new(runner: &'a Runner, schedule: &'a Schedule, make: Make<'_>) -> Self {
        let mut random = Random::new(!schedule.seed);
        let processes = (0..schedule.processes).map(|at| {
            let settings = schedule.settings(at);
            let (boot, drift) = (random.up_to_ms(100_000_000), random.below(400) as i64 - 200);
            Process::new(settings.clone(), make(settings), boot, drift)
        });
        let processes = processes.collect();
        let mut world = Self {
            schedule,
            runner,
            now: Duration::ZERO,
            processes,
            servers: (0..schedule.servers).map(|_| Server::new()).collect(),
            random,
            agenda: BTreeMap::new(),
            filed: 0,
            conduct: BTreeMap::new(),
            judge: Judge::new(schedule),
            trace: None,
            scripts: 0,
        };
        world.file_all();
        world
    }

    /// Files what is known at the start.
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

    /// The next process that is to be woken, and when.
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

    /// Goes on to what happens next. `false`: it is over.
    fn step(&mut self) -> bool {
        let wake = self.next_wake();
        let filed = self.agenda.first_key_value().map(|((at, _), _)| *at);
        let next = wake.map(|(at, _)| at).into_iter().chain(filed).min();
        let Some(next) = next.filter(|next| *next <= self.schedule.end()) else {
            self.now = self.schedule.end();
            self.judge.end(&self.processes, &self.servers, self.now);
            return false;
        };
        if next > self.now {
            self.judge.pass(&self.processes, &self.servers, self.now);
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

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Step(step) => self.take_step(step),
            Happening::Call(process, generation, call) => self.arrive(process, generation, call),
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
            Happening::Start(server, data) => {
                self.note(|| format!("server {server} starts with {data:?} data"));
                self.servers[server].start(self.now, data);
            }
            Happening::Quiet => self.quiet(),
            Happening::Settled => self.judge.settled(&self.servers, self.now),
        }
    }

    // Processes.

    /// The timeout of a process has come.
    fn wake(&mut self, at: usize) {
        let now = self.now;
        let process = &mut self.processes[at];
        let local = process.local(now);
        process.wake = None;
        if let Some(core) = &mut process.core {
            core.handle_timeout(local);
        }
        self.drive(at);
        let process = &self.processes[at];
        let next = process.core.as_ref().and_then(|core| core.poll_timeout());
        if next.is_some_and(|next| next <= local) {
            self.judge.fail("busy", || {
                format!("p{at} has done what is due, and it is due still")
            });
        }
    }

    /// Something comes to a process. One that stands still finds it later.
    fn input(&mut self, at: usize, input: Input) {
        let process = &mut self.processes[at];
        if !process.runs(self.now) {
            return process.inbox.push(input);
        }
        let local = process.local(self.now);
        self.note(|| format!("p{at}: {input:?}"));
        let Some(core) = &mut self.processes[at].core else {
            return;
        };
        match input {
            Input::Claim(from, claim, conduct) => {
                let permit = core.acquire(local, from, claim);
                self.claimed(at, permit, conduct);
                self.judge.asked(at, permit, claim, local);
            }
            Input::Release(permit) => {
                core.release(local, permit);
                self.judge.released(at, permit, local);
            }
            Input::Reply(call, reply) => {
                let answers = reply
                    .as_ref()
                    .map(|said| said.iter().map(|said| said.answer.clone()));
                let answers = answers.map(Iterator::collect).map_err(|failure| *failure);
                self.judge.replied(at, call, &answers, local);
                core.handle_reply(local, call, reply);
            }
            Input::Message(message) => core.handle_message(local, message),
            Input::Servers(change) => core.handle_servers(local, change),
        }
        self.drive(at);
    }

    fn claimed(&mut self, at: usize, permit: PermitId, conduct: Conduct) {
        self.note(|| format!("p{at} calls the claim {permit:?}"));
        self.conduct.insert((at, permit), conduct);
        if let Some(after) = conduct.cancel {
            self.after(after, Happening::Input(at, Input::Release(permit)));
        }
    }

    /// Sends and tells what the core of a process wants, and notes when it is to be woken.
    fn drive(&mut self, at: usize) {
        let now = self.now;
        loop {
            let process = &mut self.processes[at];
            let local = process.local(now);
            let Some(core) = &mut process.core else {
                return;
            };
            if let Some(event) = core.poll_event() {
                self.tell(at, event);
            } else if let Some(call) = core.poll_call(local) {
                self.send(at, call);
            } else {
                break;
            }
            if self.judge.violation.is_some() {
                return;
            }
        }
        let late = self.random.up_to_ms(2);
        let process = &mut self.processes[at];
        let next = process.core.as_ref().and_then(|core| core.poll_timeout());
        let next = next.filter(|next| *next < Duration::from_secs(1_000_000));
        if process.wake.map(|(local, _)| local) != next {
            process.wake = next.map(|local| (local, process.world(local).max(now) + late));
        }
    }

    /// A caller is told something. A holder releases its permit after its time, or soon after it is lost.
    fn tell(&mut self, at: usize, event: Event) {
        let process = &self.processes[at];
        let local = process.local(self.now);
        self.note(|| format!("p{at} is told {event:?}"));
        self.judge.told(
            at,
            &self.processes[at],
            &self.servers,
            event,
            (self.now, local),
        );
        let conduct = self.conduct.get(&(at, event.permit()));
        let after = match (event, conduct) {
            (Event::Granted(..), Some(conduct)) => Some(conduct.hold),
            (Event::Lost(_), Some(conduct)) if !conduct.goes_on => Some(self.random.up_to_ms(20)),
            _ => None,
        };
        if let Some(after) = after {
            self.after(after, Happening::Input(at, Input::Release(event.permit())));
        }
    }

    fn resume(&mut self, at: usize) {
        if self.now < self.processes[at].suspended_until {
            return;
        }
        self.note(|| format!("p{at} goes on"));
        // What has come and what is due meet in any order.
        if self.random.one_in(2) {
            self.wake(at);
        }
        for input in std::mem::take(&mut self.processes[at].inbox) {
            self.input(at, input);
        }
    }

    // Connections.

    fn connect(&mut self, process: usize, link: usize) {
        let (runtime, server) = (link / self.schedule.servers, link % self.schedule.servers);
        let pause = self.random.up_to_ms(100);
        if self.processes[process].core.is_none() {
            return;
        }
        let target = &self.servers[server];
        if !target.is_up || self.now < target.paused_until {
            return self.after(pause, Happening::Connect(process, link));
        }
        // Until now there was none.
        self.judge
            .gone(process, server, self.processes[process].local(self.now));
        self.processes[process].links[link].connect(self.now);
        let connected = Servers::Connected(runtime, server);
        self.input(process, Input::Servers(connected));
    }

    fn send(&mut self, at: usize, call: Call) {
        let local = self.processes[at].local(self.now);
        self.note(|| format!("p{at} sends {:?} {:?}", call.id, call.commands));
        self.judge.sent(at, &call, local);
        let delay = self.delay();
        let link = self.processes[at].link(call.runtime, call.server);
        if !link.is_up {
            let failed = Input::Reply(call.id, Err(Failure::NotConnected));
            return self.after(Duration::ZERO, Happening::Input(at, failed));
        }
        link.in_flight.push(call.id);
        let (arrival, generation) = (link.arrival(Way::There, self.now, delay), link.generation);
        self.file(arrival, Happening::Call(at, generation, call));
    }

    /// The delay on a way. One in fifty is ten times as long.
    fn delay(&mut self) -> Duration {
        let slow = if self.random.one_in(50) { 10 } else { 1 };
        Duration::from_micros(100) + self.random.up_to_ms(self.schedule.delay * slow)
    }

    /// A call arrives. If its connection has broken it may do so much later, or not at all.
    fn arrive(&mut self, at: usize, generation: u32, call: Call) {
        let server = &self.servers[call.server];
        let is_up = server.is_up;
        if is_up && self.now < server.paused_until {
            return self.file(server.paused_until, Happening::Call(at, generation, call));
        }
        match self.processes[at]
            .link(call.runtime, call.server)
            .late(generation)
        {
            Some(late) if late > Duration::ZERO => {
                return self.after(late, Happening::Call(at, LATE, call));
            }
            Some(_) if is_up => {}
            _ => return self.note(|| format!("p{at} {:?} is lost", call.id)),
        }
        self.run(at, generation, &call);
    }

    fn run(&mut self, at: usize, generation: u32, call: &Call) {
        let answers: Option<Vec<_>> = call
            .scripts
            .iter()
            .zip(&call.commands)
            .map(|what| self.run_one(at, call, what))
            .collect();
        let delay = self.delay();
        let number = self.processes[at].settings.link(call.runtime, call.server);
        let link = &mut self.processes[at].links[number];
        let answers = answers.filter(|_| self.now >= link.deaf_until);
        if let Some(answers) = answers.filter(|_| link.generation == generation) {
            let arrival = link.arrival(Way::Back, self.now, delay);
            let reply = Happening::Reply(at, number, generation, call.id, answers);
            self.file(arrival, reply);
        }
    }

    fn run_one(&mut self, at: usize, call: &Call, what: (&Script, &Command)) -> Option<Said> {
        let server = call.server;
        let run = self.servers[server].run(self.runner, self.now, at, what);
        self.scripts += 1;
        match run {
            Ok(run) => {
                self.note(|| format!("server {server} runs p{at} {:?}: {:?}", call.id, run.answer));
                self.judge.ran(server, call.id, &run);
                self.publish(&run);
                Some(run.said())
            }
            Err(error) => {
                self.judge.fail("script", || error);
                None
            }
        }
    }

    fn publish(&mut self, run: &Run) {
        for (channel, text) in &run.published {
            let Some((name, message)) = wire::message(channel, text) else {
                self.judge.fail("message", || {
                    format!("a strange message {text} to {channel}")
                });
                return;
            };
            let at = self
                .processes
                .iter()
                .position(|process| process.settings.process == name);
            self.deliver(at, message);
        }
    }

    /// A message is lost, or comes, and one in eight comes late.
    fn deliver(&mut self, to: Option<usize>, message: Message) {
        let late = if self.random.one_in(8) { 2_000 } else { 0 };
        let delay = self.delay() + self.random.up_to_ms(late);
        if let Some(at) = to.filter(|_| self.random.below(100) >= self.schedule.messages_lost) {
            self.after(delay, Happening::Input(at, Input::Message(message)));
        }
    }

    fn reply(&mut self, at: usize, number: usize, generation: u32, id: CallId, answers: Vec<Said>) {
        let link = &mut self.processes[at].links[number];
        if link.generation != generation {
            return;
        }
        if self.now < link.stalled_until {
            let arrival = link.arrival(Way::Back, self.now, Duration::ZERO);
            return self.file(
                arrival,
                Happening::Reply(at, number, generation, id, answers),
            );
        }
        link.in_flight.retain(|other| *other != id);
        self.input(at, Input::Reply(id, Ok(answers)));
    }

    fn fate(&mut self) -> Fate {
        let most = self.random.pick(&[1, 100, 200, 3_000]);
        Fate {
            arrive: self.random.pick(&[0, 1, 2, 100]),
            late: self.random.up_to_ms(most),
        }
    }

    fn cut(&mut self, at: usize, number: usize) {
        let fate = self.fate();
        let (runtime, server) = (
            number / self.schedule.servers,
            number % self.schedule.servers,
        );
        let link = &mut self.processes[at].links[number];
        if !link.is_up {
            return;
        }
        let calls = link.cut(fate);
        self.judge
            .gone(at, server, self.processes[at].local(self.now));
        self.input(at, Input::Servers(Servers::Gone(runtime, server)));
        for call in calls {
            self.input(at, Input::Reply(call, Err(Failure::Broken)));
        }
        let most = self.random.pick(&[5, 100]);
        let pause = self.random.up_to_ms(most);
        self.after(pause, Happening::Connect(at, number));
    }

    /// The tasks that carry calls over a link are dropped. The calls go on.
    fn abandon(&mut self, at: usize, number: usize) {
        let link = &mut self.processes[at].links[number];
        for call in std::mem::take(&mut link.in_flight) {
            self.input(at, Input::Reply(call, Err(Failure::Abandoned)));
        }
    }

    // Steps.

    fn take_step(&mut self, step: Step) {
        if !matches!(step, Step::Claim { .. }) {
            self.note(|| format!("{step:?}"));
        }
        let now = self.now;
        match step {
            Step::Claim {
                process,
                runtime,
                claim,
                hold,
                cancel,
                goes_on,
            } => {
                let conduct = Conduct {
                    hold,
                    cancel,
                    goes_on,
                };
                self.input(process, Input::Claim(runtime, claim, conduct));
            }
            Step::Kill(process) => self.kill(process),
            Step::Suspend(process, time) => {
                let until = &mut self.processes[process].suspended_until;
                *until = (*until).max(now + time);
                let until = *until;
                self.file(until, Happening::Resume(process));
            }
            Step::Break(process, link, how) => self.break_link(process, link, how),
            Step::Abandon(process, link) => self.abandon(process, link),
            Step::Restart(server, time, data) => self.restart(server, time, data),
            Step::Pause(server, time) => self.pause(server, now + time),
            Step::ClockStep(server, ms) => {
                self.servers[server].offset += ms * 1_000;
                self.judge.stepped(server, ms);
            }
        }
    }

    fn kill(&mut self, at: usize) {
        let fate = self.fate();
        let process = &mut self.processes[at];
        process.core = None;
        process.inbox.clear();
        for link in &mut process.links {
            link.cut(fate);
        }
        self.judge.killed(at);
    }

    fn break_link(&mut self, at: usize, number: usize, how: Break) {
        let link = &mut self.processes[at].links[number];
        let generation = link.generation;
        let until = match how {
            Break::Reset => return self.cut(at, number),
            Break::Stall(time) | Break::Silence(time) | Break::Deaf(time) => self.now + time,
        };
        match how {
            Break::Deaf(_) => link.deaf_until = link.deaf_until.max(until),
            _ => link.stalled_until = link.stalled_until.max(until),
        }
        if !matches!(how, Break::Stall(_)) {
            self.file(until, Happening::Cut(at, number, generation));
        }
    }

    /// A server stands still. What has come to it and waits goes on waiting, in the same order.
    fn pause(&mut self, server: usize, until: Duration) {
        let old = self.servers[server].paused_until;
        let until = until.max(old);
        self.servers[server].paused_until = until;
        let waits = self.agenda.iter().filter(|((at, _), happening)| {
            let is_here = matches!(happening, Happening::Call(_, _, call) if call.server == server);
            *at == old && is_here
        });
        for (at, place) in waits.map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some(happening) = self.agenda.remove(&(at, place)) {
                self.agenda.insert((until, place), happening);
            }
        }
    }

    fn restart(&mut self, server: usize, time: Duration, data: Data) {
        if !self.servers[server].is_up {
            return;
        }
        self.servers[server].is_up = false;
        self.judge.restarted(server, data);
        for at in 0..self.processes.len() {
            let links = 0..self.processes[at].links.len();
            for link in links.skip(server).step_by(self.schedule.servers) {
                self.cut(at, link);
            }
        }
        self.after(time, Happening::Start(server, data));
    }

    /// All callers give up what they have.
    fn quiet(&mut self) {
        self.note(|| "every claim is over".to_owned());
        for (at, permit) in self.judge.open() {
            self.input(at, Input::Release(permit));
        }
    }
}
