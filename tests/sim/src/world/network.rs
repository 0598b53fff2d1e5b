//! Connections: everything that travels over them, arrives late or is lost.

use super::{Happening, World};
use crate::{
    process::{Fate, Input, LATE, Way},
    server::Run,
    subject::{Answer, Call, CallId, Command, Failure, PermitId, Refused, Said, Servers},
    wire::{self, Script},
};
use model::{scripts::Verb, stand_in::Reply};
use std::time::Duration;

impl World<'_> {
    /// A process tries to connect a link. If it fails, it tries again later.
    pub(super) fn connect(&mut self, process: usize, link: usize) {
        let (runtime, server) = (link / self.schedule.servers, link % self.schedule.servers);
        // The longer a process has tried, the longer it waits before the next attempt.
        let tried_for = self
            .now
            .saturating_sub(self.processes[process].links[link].since);
        let longest = (tried_for.as_millis() as u64 / 4).clamp(100, 2_000);
        let pause = self.random.up_to_ms(longest);
        let own = &self.processes[process];
        if own.core.is_none() {
            return;
        }
        // A process makes no new connection before it knows that the old one is gone.
        if !own.runs(self.now) || !own.inbox.is_empty() {
            let then = own.suspended_until.max(self.now) + pause;
            return self.schedule_at(then, Happening::Connect(process, link));
        }
        let target = &self.servers[server];
        let is_there = target.is_up && self.now >= target.paused_until;
        let is_denied = is_there && self.now < target.denies_until;
        let local = self.processes[process].local(self.now);
        match is_there {
            true if is_denied => self.judge.denied(process, server, local),
            true => {}
            // A server that does not answer is an outage, even if it refused connections before.
            false => self.judge.gone(process, (runtime, server), local),
        }
        if !is_there || is_denied {
            let denied = Servers::Denied(server, is_denied);
            self.input(process, Input::Servers(denied));
            self.input(process, Input::Servers(Servers::Gone(runtime, server)));
            return self.schedule_after(pause, Happening::Connect(process, link));
        }
        // Until now the process had no connection.
        self.judge.gone(process, (runtime, server), local);
        self.processes[process].links[link].connect(self.now);
        self.mislead(process, link, server);
        let connected = Servers::Connected(runtime, server);
        self.input(process, Input::Servers(connected));
        if runtime == 0 && self.schedule.subscribes_late > Duration::ZERO {
            self.subscribe(process);
        }
    }

    /// The keeper's thread of a process subscribes again, which takes some time. Messages that are published in that
    /// time are lost.
    fn subscribe(&mut self, process: usize) {
        let most = self.schedule.subscribes_late.as_millis() as u64;
        let pause = self.random.up_to_ms(most);
        self.processes[process].deaf_until = self.now + pause;
        self.schedule_after(pause, Happening::Input(process, Input::Subscribed));
    }

    /// While Sentinels disagree, every second connection leads to the server that was replaced, until the process
    /// notices.
    fn mislead(&mut self, process: usize, link_number: usize, server: usize) {
        if self.now < self.servers[server].disputed_until && self.random.one_in(2) {
            let link = &mut self.processes[process].links[link_number];
            link.is_misled = true;
            let generation = link.generation;
            let noticed_after = self.random.up_to_ms(500);
            self.schedule_after(
                noticed_after,
                Happening::Cut(process, link_number, generation),
            );
        }
    }

    /// A process sends a call. It fails at once if the process has no connection.
    pub(super) fn send(&mut self, at: usize, call: Call) {
        let local = self.processes[at].local(self.now);
        self.note(|| format!("p{at} sends {:?} {:?}", call.id, call.commands));
        self.judge
            .sent(at, &self.processes[at], &call, (self.now, local));
        let link = self.processes[at].link(call.runtime, call.server);
        if !link.is_up {
            let failed = Input::Reply(call.id, Err(Failure::NotConnected));
            return self.schedule_after(Duration::ZERO, Happening::Input(at, failed));
        }
        link.in_flight.push(call.id);
        let generation = link.generation;
        // The task that carries the call may be slower than the task of the next call.
        match call.runtime > 0 && self.random.one_in(12) {
            true => {
                let late = self.random.up_to_ms(5);
                self.schedule_after(late, Happening::Leave(at, generation, call));
            }
            false => self.leave(at, generation, call),
        }
    }

    /// A call leaves over its connection, if that is still up.
    pub(super) fn leave(&mut self, at: usize, generation: u32, call: Call) {
        let delay = self.delay();
        let process = &mut self.processes[at];
        let runs = process.runs(self.now);
        let link = process.link(call.runtime, call.server);
        if link.generation != generation || !runs || !link.in_flight.contains(&call.id) {
            return;
        }
        (call.on_written.0)();
        let arrival = link.arrival(Way::There, self.now, delay);
        self.schedule_at(arrival, Happening::Call(at, generation, call));
    }

    /// A delay in one direction. One delay in fifty may be ten times as long.
    pub(super) fn delay(&mut self) -> Duration {
        let slow = if self.random.one_in(50) { 10 } else { 1 };
        Duration::from_micros(100) + self.random.up_to_ms(self.schedule.delay * slow)
    }

    /// A call arrives. If its connection has broken since, it arrives much later or not at all.
    pub(super) fn arrive(&mut self, at: usize, generation: u32, call: Call) {
        let server = &self.servers[call.server];
        let is_up = server.is_up;
        if is_up && self.now < server.paused_until {
            return self.schedule_at(server.paused_until, Happening::Call(at, generation, call));
        }
        match self.processes[at]
            .link(call.runtime, call.server)
            .late(generation)
        {
            Some(late) if late > Duration::ZERO => {
                return self.schedule_after(late, Happening::Call(at, LATE, call));
            }
            Some(_) if is_up => {}
            _ => return self.note(|| format!("p{at} {:?} is lost", call.id)),
        }
        self.run(at, generation, &call);
    }

    /// A server runs the commands of a call. The answers are lost if the connection is broken or deaf.
    fn run(&mut self, at: usize, generation: u32, call: &Call) {
        let mut answers: Option<Vec<_>> = call
            .scripts
            .iter()
            .zip(&call.commands)
            .map(|what| self.run_one(at, call, what))
            .collect();
        let mut delay = self.delay();
        if call.confirms {
            let replicas = self.servers[call.server].replicas();
            let said = Said {
                reply: Ok(Reply::Int(replicas.into())),
                answer: Answer::Replicas(replicas),
            };
            answers.iter_mut().for_each(|all| all.push(said.clone()));
            // If the replica lags, `WAIT` takes its whole time, half of `TIMEOUT`.
            delay += Duration::from_millis(if replicas > 0 { 0 } else { 125 });
        }
        let link_number = self.processes[at].settings.link(call.runtime, call.server);
        let link = &mut self.processes[at].links[link_number];
        let answers = answers.filter(|_| self.now >= link.deaf_until);
        if let Some(answers) = answers.filter(|_| link.generation == generation) {
            let arrival = link.arrival(Way::Back, self.now, delay);
            let reply = Happening::Reply(at, link_number, generation, call.id, answers);
            self.schedule_at(arrival, reply);
        }
    }

    fn run_one(&mut self, at: usize, call: &Call, what: (&Script, &Command)) -> Option<Said> {
        let server = call.server;
        let link = self.processes[at].link(call.runtime, server);
        let refused = match link.is_misled && link.in_flight.contains(&call.id) {
            true => Some(Refused::Loading),
            false if self.hides_time(at, server, what.0) => Some(Refused::Forbidden),
            false => self.redirects(server, what.0),
        };
        if let Some(refused) = refused {
            self.note(|| format!("server {server} refuses p{at} {:?}: {refused:?}", call.id));
            self.judge.refused(at, call.id, what.1);
            return Some(Said {
                reply: Err(refused),
                answer: Answer::Error(refused),
            });
        }
        self.servers[server].gives_away = self.gives_away(server, what.0);
        let run = self.servers[server].run(self.runner, self.now, at, what);
        self.scripts += 1;
        match run {
            Ok(run) => {
                self.note(|| format!("server {server} runs p{at} {:?}: {:?}", call.id, run.answer));
                self.judge.ran(server, call.id, &run);
                // After these errors the command has not run at all. After an error in a key it may have run in part,
                // and releases at other keys must have had their effect.
                if let Answer::Error(Refused::NoScript | Refused::Loading) = run.answer {
                    self.judge.refused(at, call.id, what.1);
                }
                self.publish(&run);
                Some(run.said())
            }
            Err(error) => {
                self.judge.fail("script", || error);
                None
            }
        }
    }

    /// True if a process may not run the script that reports a server's time.
    fn hides_time(&self, at: usize, server: usize, script: &Script) -> bool {
        let until = self.hidden.get(&(at, server));
        script.verb == Verb::Presence && until.is_some_and(|until| self.now < *until)
    }

    /// Delivers the messages that a script has published.
    pub(super) fn publish(&mut self, run: &Run) {
        for (channel, text) in &run.published {
            let granted = wire::message(channel, text)
                .map(|(process, message)| (process, Input::Message(message)));
            let Some((name, message)) = granted.or_else(|| revocation(channel, text)) else {
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

    /// Delivers a message, or loses it. One in eight may come late.
    fn deliver(&mut self, to: Option<usize>, message: Input) {
        let late = if self.random.one_in(8) { 2_000 } else { 0 };
        let delay = self.delay() + self.random.up_to_ms(late);
        let is_subscribed = |at: &usize| self.now >= self.processes[*at].deaf_until;
        let to = to.filter(is_subscribed);
        if let Some(at) = to.filter(|_| self.random.below(100) >= self.schedule.messages_lost) {
            self.schedule_after(delay, Happening::Input(at, message));
        }
    }

    /// An answer arrives, unless its connection is gone or stalls.
    pub(super) fn reply(
        &mut self,
        at: usize,
        link_number: usize,
        generation: u32,
        id: CallId,
        answers: Vec<Said>,
    ) {
        let link = &mut self.processes[at].links[link_number];
        if link.generation != generation {
            return;
        }
        if self.now < link.stalled_until {
            let arrival = link.arrival(Way::Back, self.now, Duration::ZERO);
            return self.schedule_at(
                arrival,
                Happening::Reply(at, link_number, generation, id, answers),
            );
        }
        link.in_flight.retain(|other| *other != id);
        self.input(at, Input::Reply(id, Ok(answers)));
    }

    /// A random fate of the calls under way over a connection that breaks.
    pub(super) fn fate(&mut self) -> Fate {
        let most = self.random.pick(&[1, 100, 200, 3_000]);
        Fate {
            arrive: self.random.pick(&[0, 1, 2, 100]),
            late: self.random.up_to_ms(most),
        }
    }

    /// A connection breaks. The process notices at once, or makes another one before it gives up this one.
    pub(super) fn cut(&mut self, at: usize, link_number: usize) {
        let fate = self.fate();
        let (runtime, server) = (
            link_number / self.schedule.servers,
            link_number % self.schedule.servers,
        );
        let link = &mut self.processes[at].links[link_number];
        if !link.is_up {
            return;
        }
        let calls = link.cut(fate);
        link.since = self.now;
        if self.is_replaced(at, link_number, fate) {
            return self.replace(at, link_number, calls);
        }
        let local = self.processes[at].local(self.now);
        self.judge.gone(at, (runtime, server), local);
        self.input(at, Input::Servers(Servers::Gone(runtime, server)));
        for call in calls {
            self.input(at, Input::Reply(call, Err(Failure::Broken)));
        }
        let most = self.random.pick(&[5, 100]);
        let pause = self.random.up_to_ms(most);
        self.schedule_after(pause, Happening::Connect(at, link_number));
    }

    /// True if the process replaces this connection while it still counts as up. The random `fate.arrive` decides: one
    /// break in four has 2.
    fn is_replaced(&self, at: usize, link_number: usize, fate: Fate) -> bool {
        let server = &self.servers[link_number % self.schedule.servers];
        let is_ready = server.is_up && self.now >= server.paused_until.max(server.denies_until);
        let process = &self.processes[at];
        let is_awake = process.runs(self.now) && process.inbox.is_empty();
        fate.arrive == 2 && is_ready && is_awake
    }

    /// Another connection replaces a silent one. Calls that were sent over the old one may still run.
    fn replace(&mut self, at: usize, link_number: usize, calls: Vec<CallId>) {
        let (runtime, server) = (
            link_number / self.schedule.servers,
            link_number % self.schedule.servers,
        );
        self.processes[at].links[link_number].connect(self.now);
        self.mislead(at, link_number, server);
        self.note(|| format!("p{at} replaces its connection {link_number}"));
        let local = self.processes[at].local(self.now);
        for call in calls {
            self.judge
                .replied(at, call, &Err(Failure::Abandoned), local);
        }
        self.input(at, Input::Servers(Servers::Replaced(runtime, server)));
    }

    /// Drops the tasks that carry calls over a link, and in half of the cases their callers too. The calls still run.
    pub(super) fn abandon(&mut self, at: usize, link_number: usize) {
        let link = &mut self.processes[at].links[link_number];
        let (calls, gives_up) = (std::mem::take(&mut link.in_flight), self.random.one_in(2));
        for call in calls {
            let claims = self.judge.claims(at, call);
            self.input(at, Input::Reply(call, Err(Failure::Abandoned)));
            for permit in claims.into_iter().filter(|_| gives_up) {
                self.input(at, Input::Release(permit));
            }
        }
    }
}

/// Reads the message of a revocation. Returns the name of the process that receives it, and its input.
fn revocation(channel: &str, text: &str) -> Option<(String, Input)> {
    let (_, process) = channel.split_once(":wake:")?;
    let permit = text.strip_suffix(" revoked")?;
    let permit = u64::from_str_radix(permit, 36).ok()?;
    Some((process.to_owned(), Input::Revoked(PermitId(permit))))
}
