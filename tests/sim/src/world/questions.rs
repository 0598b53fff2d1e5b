//! Operators' questions. The shipped `proto::question` names the server for each attempt, and decides after the outcome
//! when to try again.

use super::{Happening, World};
use crate::{
    process::Way,
    schedule::{OperatorAction, TIMEOUT},
    server::View,
    subject::{Key, Refused, Server},
    wire::{self, Script},
};
use proto::{
    core::CallFailure,
    question::{Attempt, Question, Recipient, Repeat},
    verbs::{self, CommandFault, Cursors},
};
use std::time::Duration;

/// The time from a question to its deadline.
const TIME_TO_DEADLINE: Duration = Duration::from_millis(500);

/// The outcome of an attempt: the fault of its command, if any, or the reason why no answer came.
pub(super) type Outcome = Result<Option<CommandFault>, CallFailure>;

/// A question without a final outcome.
#[derive(Debug)]
pub(super) struct Asked {
    process: usize,
    key: Key,
    action: OperatorAction,
    script: Script,
    question: Question,
    deadline: Duration,
    /// The number of attempts so far.
    attempts: usize,
    under_way: Option<Sent>,
    /// True if the attempt that is under way, or its answer, is lost.
    is_lost: bool,
}

/// One attempt of a question, over a connection of this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    question: u64,
    number: usize,
    attempt: Attempt,
    generation: u32,
}

impl World<'_> {
    /// An operator asks a question in a process.
    pub(super) fn ask(&mut self, at: usize, key: Key, action: OperatorAction) {
        let process = &mut self.processes[at];
        if !process.runs(self.now) {
            return;
        }
        if let OperatorAction::Pause(time) = action {
            // Noted before the question is sent, as in the library: claims that are decided without the server observe
            // the pause at once. The end of a pause is noted only when the server has confirmed it.
            let local = process.local(self.now);
            self.note_pause(at, key, Some(local + time));
        }
        let Some((script, repeat)) = self.script_of(at, key, action) else {
            return;
        };
        let slot = self.processes[at].settings.slot_of(key);
        let asked = Asked {
            process: at,
            key,
            action,
            script,
            question: Question::new(Recipient::Slot(slot), repeat),
            deadline: self.now + TIME_TO_DEADLINE,
            attempts: 0,
            under_way: None,
            is_lost: false,
        };
        // The number of events so far. It is unique, because sending a question schedules at least one event.
        let (number, deadline) = (self.scheduled, asked.deadline);
        let may_repeat = repeat == Repeat::EvenIfRun;
        self.judge
            .questions
            .asked(number, (self.now, deadline), may_repeat);
        self.questions.insert(number, asked);
        self.send_question(number);
    }

    /// Notes in the process's core that a pause lasts until `until`, or has ended.
    fn note_pause(&mut self, at: usize, key: Key, until: Option<Duration>) {
        let process = &mut self.processes[at];
        let local = process.local(self.now);
        if let Some(core) = &mut process.core {
            core.note_pause(local, key, until);
            self.judge.requests_pause((at, key), until);
            self.drive(at);
        }
    }

    /// Builds the question's script without the shipped encoder, as the header of the Lua file describes it. Reports a
    /// violation if the shipped encoding differs. Returns `None` if the question has no target.
    fn script_of(
        &mut self,
        at: usize,
        key: Key,
        action: OperatorAction,
    ) -> Option<(Script, Repeat)> {
        let name = wire::name(key);
        let process = &self.processes[at];
        let pause_query = |time: Option<Duration>| verbs::Query::Pause {
            name: &name,
            floor: 0,
            pause: time.map(|time| (time, "")),
        };
        let pause_script = |length| wire::pause(key, &process.settings.process, length);
        // The query borrows these.
        let (first, id);
        let (script, query, repeat) = match action {
            OperatorAction::Usage => {
                first = Cursors::first();
                let from = &first;
                let usage = verbs::Query::Usage { name: &name, from };
                (wire::usage(key), usage, Repeat::EvenIfRun)
            }
            OperatorAction::Pause(time) => {
                let length = time.as_millis() as u64;
                (
                    pause_script(length),
                    pause_query(Some(time)),
                    Repeat::EvenIfRun,
                )
            }
            OperatorAction::Resume => (pause_script(0), pause_query(None), Repeat::IfNotRun),
            OperatorAction::Revoke(pick) => {
                let View { held, queue, .. } = self.servers[self.home(key)].view(key);
                let ids = held.into_iter().chain(queue).map(|(id, _)| id);
                // A colon marks a further unit of a permit.
                let ids: Vec<_> = ids.filter(|id| !id.contains(':')).collect();
                id = ids.get(pick % ids.len().max(1))?.clone();
                let revocation = verbs::RevokeQuery::new(&name, &id, 0, u32::MAX)?;
                let revoke = verbs::Query::Revoke(revocation);
                (wire::revocation(key, &id), revoke, Repeat::IfNotRun)
            }
        };
        let written = process.core.as_ref()?.query(&query);
        if written != script {
            let text = || format!("{written:?} is not {script:?}");
            self.judge.fail("a question", text);
        }
        Some((script, repeat))
    }

    /// A process sends a question, to the server that the core names.
    pub(super) fn send_question(&mut self, number: u64) {
        let delay = self.delay();
        let Some(asked) = self.questions.get_mut(&number) else {
            return;
        };
        let process = &mut self.processes[asked.process];
        let Some(core) = &process.core else {
            return self.forget_question(number);
        };
        if !process.runs(self.now) {
            let then = process.suspended_until;
            self.judge.questions.delayed(number, then);
            return self.schedule_at(then, Happening::AskAgain(number));
        }
        asked.attempts += 1;
        let attempt = asked.question.attempt(|slot| core.server_at(slot));
        // The first runtime is that of the keeper's thread, so operators ask from the last.
        let runtime = process.settings.runtimes - 1;
        let link = process.link(runtime, attempt.server);
        let sent = Sent {
            question: number,
            number: asked.attempts,
            attempt,
            generation: link.generation,
        };
        asked.under_way = Some(sent);
        let (verb, is_up) = (asked.script.verb, link.is_up);
        let left = asked.deadline.saturating_sub(self.now);
        if is_up {
            let arrival = link.arrival(Way::There, self.now, delay);
            self.schedule_at(arrival, Happening::Question(sent));
            self.schedule_after(
                TIMEOUT.min(left),
                Happening::Outcome(sent, Err(CallFailure::TimedOut)),
            );
        } else {
            let unsent = Happening::Outcome(sent, Err(CallFailure::NotConnected));
            self.schedule_after(Duration::ZERO, unsent);
        }
        self.note(|| format!("question {number}, {verb:?}, is sent to {attempt:?}: {is_up}"));
    }

    /// The asking process has died.
    fn forget_question(&mut self, number: u64) {
        self.questions.remove(&number);
        self.judge.questions.forget(number);
    }

    /// A question arrives at a server. If its connection has broken since, it may be lost.
    pub(super) fn run_question(&mut self, sent: Sent) {
        let number = sent.attempt.server;
        let (loses_if_broken, delay) = (self.random.one_in(2), self.delay());
        let Some(asked) = self.questions.get(&sent.question) else {
            return;
        };
        let (at, key, action) = (asked.process, asked.key, asked.action);
        let mut script = asked.script.clone();
        script.is_asking = sent.attempt.sends_asking;
        let server = &self.servers[number];
        if server.is_up && self.now < server.paused_until {
            let until = server.paused_until;
            return self.schedule_at(until, Happening::Question(sent));
        }
        let link = self.question_link(at, number);
        let is_misled = link.is_misled;
        let is_broken = link.generation != sent.generation;
        if !self.servers[number].is_up || is_broken && loses_if_broken {
            return self.lose_attempt(sent);
        }
        // A server that is not ready, or that Sentinels have replaced, refuses every question as unavailable.
        let refused = match self.servers[number].is_ready(self.now) && !is_misled {
            true => self.redirects(number, &script),
            false => Some(Refused::Loading),
        };
        let fault = match refused {
            None if self.servers[number].is_poisoned(key) => Some(CommandFault::Mistake),
            None => {
                self.judge_run(sent.question);
                self.run_action((at, key), action, (number, &script));
                None
            }
            Some(Refused::Moved(server)) => Some(CommandFault::Moved(server)),
            Some(Refused::Ask(server)) => Some(CommandFault::Ask(server)),
            Some(Refused::Again) => Some(CommandFault::Again),
            Some(Refused::Unserved) => Some(CommandFault::Unserved),
            Some(_) => Some(CommandFault::Unavailable),
        };
        if self.random.one_in(12) {
            return self.lose_attempt(sent);
        }
        let now = self.now;
        let link = self.question_link(at, number);
        let arrival = link.arrival(Way::Back, now, delay);
        self.schedule_at(arrival, Happening::Outcome(sent, Ok(fault)));
    }

    /// Notes that an attempt or its answer is lost. Only the attempt under way excuses a failure.
    fn lose_attempt(&mut self, sent: Sent) {
        let asked = self.questions.get_mut(&sent.question);
        if let Some(asked) = asked.filter(|asked| asked.under_way == Some(sent)) {
            asked.is_lost = true;
        }
    }

    /// The link over which a process sends questions: that of its last runtime.
    fn question_link(&mut self, at: usize, server: Server) -> &mut crate::process::Link {
        let process = &mut self.processes[at];
        let runtime = process.settings.runtimes - 1;
        process.link(runtime, server)
    }

    /// Notes that a question runs, and reports a second run that is not allowed.
    fn judge_run(&mut self, question: u64) {
        self.note(|| format!("question {question} runs"));
        if let Err(violation) = self.judge.questions.ran(question) {
            self.judge.fail(violation.rule, || violation.text);
        }
    }

    fn run_action(
        &mut self,
        (at, key): (usize, Key),
        action: OperatorAction,
        on: (Server, &Script),
    ) {
        match action {
            OperatorAction::Pause(time) => self.run_pause_on(on, key, Some(time)),
            OperatorAction::Resume => self.run_pause_on(on, key, None),
            OperatorAction::Revoke(_) => {
                let id = on.1.args.last().cloned().unwrap_or_default();
                self.run_revocation_on(on, key, &id);
            }
            OperatorAction::Usage => {
                let (number, script) = on;
                match self.servers[number].usage(self.runner, self.now, (key, script)) {
                    Ok(None) => {}
                    Ok(Some(left_out)) => self.judge.fail("a question", || {
                        format!("the usage of key {key} for p{at} lacks {left_out}")
                    }),
                    Err(error) => self.judge.fail("script", || error),
                }
            }
        }
    }

    /// Ends an attempt: answered, timed out, or over a connection that has broken.
    pub(super) fn attempt_ends(&mut self, sent: Sent, outcome: Outcome) {
        let Some(asked) = self.questions.get_mut(&sent.question) else {
            return;
        };
        let process = &mut self.processes[asked.process];
        if process.core.is_none() {
            return self.forget_question(sent.question);
        }
        if asked.under_way != Some(sent) {
            return;
        }
        if !process.runs(self.now) {
            let then = process.suspended_until;
            self.judge.questions.delayed(sent.question, then);
            return self.schedule_at(then, Happening::Outcome(sent, outcome));
        }
        let link = process.link(process.settings.runtimes - 1, sent.attempt.server);
        let outcome = match outcome {
            Ok(_) if link.generation != sent.generation => Err(CallFailure::Broken),
            outcome => outcome,
        };
        if asked.is_lost {
            self.judge.questions.troubled(sent.question, self.now);
        }
        (asked.under_way, asked.is_lost) = (None, false);
        let delay = asked.question.retry_delay_after(outcome);
        let next = delay.map(|delay| self.now + delay);
        let next = next.filter(|next| *next < asked.deadline);
        let (at, key, action) = (asked.process, asked.key, asked.action);
        self.note(|| format!("question {}: {outcome:?}, then {next:?}", sent.question));
        match next {
            Some(next) => self.schedule_at(next, Happening::AskAgain(sent.question)),
            None => {
                self.questions.remove(&sent.question);
                if action == OperatorAction::Resume && outcome == Ok(None) {
                    self.note_pause(at, key, None);
                }
                let times = (self.now, self.bound_of_questions());
                let verdict = self.judge.questions.finish(sent.question, outcome, times);
                if let Err(violation) = verdict {
                    self.judge.fail(violation.rule, || violation.text);
                }
            }
        }
    }

    /// The longest that a question may take if nothing is wrong. It needs up to three attempts: at the former owner of
    /// the slot, at the owner, and at the new owner. A fourth is added as a margin.
    fn bound_of_questions(&self) -> Duration {
        let way = Duration::from_micros(100) + Duration::from_millis(self.schedule.delay * 10);
        (way * 2 + proto::question::RETRY_DELAY) * 4
    }

    /// Excuses the questions that cannot be answered before `next`, the time of the next event.
    pub(super) fn note_troubles(&mut self, next: Duration) {
        let troubled = self.questions.iter();
        let troubled = troubled.filter(|(_, asked)| !self.could_answer(asked));
        let troubled: Vec<_> = troubled.map(|(number, _)| *number).collect();
        for number in troubled {
            self.judge.questions.troubled(number, next);
        }
    }

    /// True if nothing prevents an answer: the process runs, the slot is served, and every server on the way works.
    fn could_answer(&self, asked: &Asked) -> bool {
        let process = &self.processes[asked.process];
        let place = self.schedule.slots.place(asked.key);
        let home = self.home(asked.key);
        // The slot's owner, the server that has its keys, and the one to which it moves.
        let places = place.map(|place| [place.owner, place.home, place.moves_to.unwrap_or(home)]);
        let servers = places.unwrap_or([home; 3]).into_iter();
        let mut servers = servers.chain(asked.under_way.map(|sent| sent.attempt.server));
        let is_well = |number: Server| {
            let server = &self.servers[number];
            let runtime = process.settings.runtimes - 1;
            let link = &process.links[process.settings.link(runtime, number)];
            let has_link = link.is_up && self.now >= link.since + MIN_LINK_AGE && !link.is_misled;
            server.is_ready(self.now)
                && has_link
                && self.now >= link.stalled_until.max(link.deaf_until)
        };
        // An attempt gets no answer if its connection was replaced.
        let is_link_replaced = asked.under_way.is_some_and(|sent| {
            let runtime = process.settings.runtimes - 1;
            let link = process.settings.link(runtime, sent.attempt.server);
            process.links[link].generation != sent.generation
        });
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
        let is_poisoned = self.servers[home].is_poisoned(asked.key);
        !is_link_replaced
            && process.runs(self.now)
            && servers.all(is_well)
            && is_served
            && !is_poisoned
    }
}

/// A younger connection does not count as usable yet.
const MIN_LINK_AGE: Duration = Duration::from_millis(1);
