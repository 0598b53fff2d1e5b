//! Operators' questions: each goes to the server that `proto::question` names, and the server runs it or refuses it.

use super::{Happening, World};
use crate::{
    process::Way,
    schedule::{Query, TIMEOUT},
    server::View,
    subject::{Key, Refused, Server},
    wire::{self, Script},
};
use proto::{
    core::Failure,
    question::{Attempt, Question, Recipient, Repeat},
    verbs::{self, Cursors, Fault},
};
use std::time::Duration;

/// How long an operator's call lasts at most.
const BUDGET: Duration = Duration::from_millis(500);

/// The outcome of an attempt: the fault of its command, if any, or why there is no answer.
pub(super) type Outcome = Result<Option<Fault>, Failure>;

/// A question without a final outcome.
#[derive(Debug)]
pub(super) struct Asked {
    process: usize,
    key: Key,
    query: Query,
    script: Script,
    question: Question,
    deadline: Duration,
    /// The number of attempts so far.
    attempts: usize,
}

/// An attempt that is under way, over a connection of this generation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    question: u64,
    number: usize,
    attempt: Attempt,
    generation: u32,
}

impl World<'_> {
    pub(super) fn ask(&mut self, at: usize, key: Key, query: Query) {
        let process = &mut self.processes[at];
        if !process.runs(self.now) {
            return;
        }
        let local = process.local(self.now);
        let until = match query {
            Query::Pause(time) => Some(local + time),
            _ => None,
        };
        if let (Query::Pause(_) | Query::Resume, Some(core)) = (query, &mut process.core) {
            core.note_pause(local, key, until);
            self.judge.closes((at, key), until);
            self.drive(at);
        }
        let Some((script, repeat)) = self.script_of(at, key, query) else {
            return;
        };
        let slot = self.processes[at].settings.slot_of(key);
        let asked = Asked {
            process: at,
            key,
            query,
            script,
            question: Question::new(Recipient::Slot(slot), repeat),
            deadline: self.now + BUDGET,
            attempts: 0,
        };
        let number = self.filed;
        let may_repeat = repeat == Repeat::Always;
        self.judge.questions.asked(number, self.now, may_repeat);
        self.questions.insert(number, asked);
        self.send_question(number);
    }

    /// The script of a query as the header of the script has it, which is what the process writes.
    fn script_of(&mut self, at: usize, key: Key, query: Query) -> Option<(Script, Repeat)> {
        let name = wire::name(key);
        let process = &self.processes[at];
        let pausing = |time: Option<Duration>| verbs::Query::Pause {
            name: &name,
            floor: 0,
            pause: time.map(|time| (time, "")),
        };
        let paused = |length| wire::pause(key, &process.settings.process, length);
        let (first, id);
        let (script, written, repeat) = match query {
            Query::Usage => {
                first = Cursors::first();
                let from = &first;
                let usage = verbs::Query::Usage { name: &name, from };
                (wire::usage(key), usage, Repeat::Always)
            }
            Query::Pause(time) => {
                let length = time.as_millis() as u64;
                (paused(length), pausing(Some(time)), Repeat::Always)
            }
            Query::Resume => (paused(0), pausing(None), Repeat::IfNotRun),
            Query::Revoke(pick) => {
                let View { held, queue, .. } = self.servers[self.home(key)].view(key);
                let ids = held.into_iter().chain(queue).map(|(id, _)| id);
                let ids: Vec<_> = ids.filter(|id| !id.contains(':')).collect();
                id = ids.get(pick % ids.len().max(1))?.clone();
                let revocation = verbs::Revocation::new(&name, &id, 0, u32::MAX)?;
                let revoke = verbs::Query::Revoke(revocation);
                (wire::revocation(key, &id), revoke, Repeat::IfNotRun)
            }
        };
        let written = process.core.as_ref()?.query(&written);
        if written != script {
            let text = || format!("{written:?} is not {script:?}");
            self.judge.fail("a question", text);
        }
        Some((script, repeat))
    }

    pub(super) fn send_question(&mut self, number: u64) {
        let delay = self.delay();
        let Some(asked) = self.questions.get_mut(&number) else {
            return;
        };
        let process = &mut self.processes[asked.process];
        let Some(core) = &process.core else {
            self.questions.remove(&number);
            return;
        };
        if !process.runs(self.now) {
            let then = process.suspended_until;
            return self.file(then, Happening::AskAgain(number));
        }
        asked.attempts += 1;
        let attempt = asked.question.attempt(|slot| core.server_at(slot));
        let runtime = process.settings.runtimes - 1;
        let link = process.link(runtime, attempt.server);
        let sent = Sent {
            question: number,
            number: asked.attempts,
            attempt,
            generation: link.generation,
        };
        let (name, is_up) = (asked.script.verb, link.is_up);
        if is_up {
            let arrival = link.arrival(Way::There, self.now, delay);
            self.file(arrival, Happening::Question(sent));
            self.after(TIMEOUT, Happening::Outcome(sent, Err(Failure::TimedOut)));
        } else {
            let unsent = Happening::Outcome(sent, Err(Failure::NotConnected));
            self.after(Duration::ZERO, unsent);
        }
        self.note(|| format!("question {number}, {name:?}, is sent to {attempt:?}: {is_up}"));
    }

    /// A question comes to a server. If its connection has broken, it may be lost.
    pub(super) fn run_question(&mut self, sent: Sent) {
        let number = sent.attempt.server;
        let (is_lost, delay) = (self.random.one_in(2), self.delay());
        let Some(asked) = self.questions.get(&sent.question) else {
            return;
        };
        let (at, key, query) = (asked.process, asked.key, asked.query);
        let mut script = asked.script.clone();
        script.is_asking = sent.attempt.asks;
        let server = &self.servers[number];
        if server.is_up && self.now < server.paused_until {
            let until = server.paused_until;
            return self.file(until, Happening::Question(sent));
        }
        let link = self.question_link(at, number);
        let is_misled = link.is_misled;
        let is_broken = link.generation != sent.generation;
        if !self.servers[number].is_up || is_broken && is_lost {
            return;
        }
        let refused = match self.servers[number].is_ready(self.now) && !is_misled {
            true => self.redirects(number, &script),
            false => Some(Refused::Loading),
        };
        let fault = match refused {
            None if self.servers[number].is_poisoned(key) => Some(Fault::Mistake),
            None => {
                self.judge_run(sent.question);
                self.run_query((at, key), query, (number, &script));
                None
            }
            Some(Refused::Moved(server)) => Some(Fault::Moved(server)),
            Some(Refused::Ask(server)) => Some(Fault::Ask(server)),
            Some(Refused::Again) => Some(Fault::Again),
            Some(Refused::Unserved) => Some(Fault::Unserved),
            Some(_) => Some(Fault::Unavailable),
        };
        if self.random.one_in(12) {
            return self.judge.questions.troubled(sent.question, self.now);
        }
        let now = self.now;
        let link = self.question_link(at, number);
        let arrival = link.arrival(Way::Back, now, delay);
        self.file(arrival, Happening::Outcome(sent, Ok(fault)));
    }

    fn question_link(&mut self, at: usize, server: Server) -> &mut crate::process::Link {
        let process = &mut self.processes[at];
        let runtime = process.settings.runtimes - 1;
        process.link(runtime, server)
    }

    fn judge_run(&mut self, question: u64) {
        self.note(|| format!("question {question} runs"));
        if let Err(violation) = self.judge.questions.ran(question) {
            self.judge.fail(violation.rule, || violation.text);
        }
    }

    fn run_query(&mut self, (at, key): (usize, Key), query: Query, on: (Server, &Script)) {
        match query {
            Query::Pause(time) => self.run_pause_on(on, key, Some(time)),
            Query::Resume => self.run_pause_on(on, key, None),
            Query::Revoke(_) => {
                let id = on.1.args.last().cloned().unwrap_or_default();
                self.run_revocation_on(on, key, &id);
            }
            Query::Usage => {
                let (number, script) = on;
                match self.servers[number].usage(self.runner, self.now, (key, script)) {
                    Ok(None) => {}
                    Ok(Some(left_out)) => self.judge.fail("a question", || {
                        format!("p{at} is not told of {left_out} at key {key}")
                    }),
                    Err(error) => self.judge.fail("script", || error),
                }
            }
        }
    }

    /// An attempt has ended: with an answer, or without one after a timeout or with its connection.
    pub(super) fn question_ends(&mut self, sent: Sent, outcome: Outcome) {
        let Some(asked) = self.questions.get_mut(&sent.question) else {
            return;
        };
        let process = &mut self.processes[asked.process];
        if process.core.is_none() {
            self.questions.remove(&sent.question);
            return;
        }
        if sent.number != asked.attempts {
            return;
        }
        if !process.runs(self.now) {
            let then = process.suspended_until;
            return self.file(then, Happening::Outcome(sent, outcome));
        }
        let link = process.link(process.settings.runtimes - 1, sent.attempt.server);
        let outcome = match outcome {
            Ok(_) if link.generation != sent.generation => Err(Failure::Broken),
            outcome => outcome,
        };
        // The same attempt ends once.
        asked.attempts += 1;
        let pause = asked.question.pause_after(outcome);
        let next = pause.map(|pause| self.now + pause);
        let (next, deadline) = (next.filter(|next| *next < asked.deadline), asked.deadline);
        self.note(|| format!("question {}: {outcome:?}, then {next:?}", sent.question));
        match next {
            Some(next) => self.file(next, Happening::AskAgain(sent.question)),
            None => {
                self.questions.remove(&sent.question);
                let bound = self.bound_of_questions();
                let times = (self.now, deadline, bound);
                if let Err(violation) = self.judge.questions.over(sent.question, outcome, times) {
                    self.judge.fail(violation.rule, || violation.text);
                }
            }
        }
    }

    /// How long a question takes at most where nothing is wrong: to a server that had the slot, to one that has it, and to
    /// one that it moves to, each after a pause.
    fn bound_of_questions(&self) -> Duration {
        let way = Duration::from_micros(100) + Duration::from_millis(self.schedule.delay * 10);
        (way * 2 + proto::question::RETRY_DELAY) * 4
    }

    /// Notes the questions that something stands in the way of now.
    pub(super) fn note_troubles(&mut self) {
        let troubled = self.questions.iter();
        let troubled = troubled.filter(|(_, asked)| !self.could_answer(asked));
        let troubled: Vec<_> = troubled.map(|(number, _)| *number).collect();
        for number in troubled {
            self.judge.questions.troubled(number, self.now);
        }
    }

    /// True if the servers of a key could answer its question now.
    fn could_answer(&self, asked: &Asked) -> bool {
        let process = &self.processes[asked.process];
        let place = self.schedule.slots.place(asked.key);
        let home = self.home(asked.key);
        let places = place.map(|place| [place.owner, place.home, place.moves_to.unwrap_or(home)]);
        let servers = places.unwrap_or([home; 3]);
        let is_well = |number: &Server| {
            let server = &self.servers[*number];
            let runtime = process.settings.runtimes - 1;
            let link = &process.links[process.settings.link(runtime, *number)];
            let has_link = link.is_up && self.now >= link.since + LINKED && !link.is_misled;
            server.is_ready(self.now)
                && has_link
                && self.now >= link.stalled_until.max(link.deaf_until)
        };
        let mut asking = asked.script.clone();
        let owner = place.map_or(home, |place| place.owner);
        let is_served = match self.redirects(owner, &asked.script) {
            None => true,
            Some(Refused::Ask(to)) => {
                asking.is_asking = true;
                self.redirects(to, &asking).is_none()
            }
            Some(_) => false,
        };
        let is_foreign = self.servers[home].is_poisoned(asked.key);
        process.runs(self.now) && servers.iter().all(is_well) && is_served && !is_foreign
    }
}

/// After so long a connection is not the one before.
const LINKED: Duration = Duration::from_millis(1);
