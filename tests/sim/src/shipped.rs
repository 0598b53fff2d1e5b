//! The core that the library ships, behind the simulation's own types, which are those of [`subject`]. Its calls are
//! encoded by the shipped encoder and decoded again for the judge.

use crate::{
    subject::{self, Policy},
    wire::{self, Script},
};
use model::{scripts, stand_in};
use proto::{
    core::{
        Call, CallFailure, CallId, Change, Core, CoreSettings, Event, LevelClaim, LevelWait, Merge,
        OutagePolicy, PermitId, Refusal, RuntimeId, Time,
    },
    verbs::{
        Answer, Charge, Command, CommandFault, CommandSink, Flow, LeaseName, Message, Owner, Query,
        Reply, Sink, Verb,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt::Display,
    sync::Arc,
};

/// The runtime that stands for the keeper's thread.
const THREAD: subject::Runtime = 0;

fn runtime(number: subject::Runtime) -> RuntimeId {
    RuntimeId(number as u32)
}

/// The core of a process.
#[derive(Debug)]
pub(crate) struct Shipped {
    settings: subject::Settings,
    owner: Owner,
    core: Core,
    /// Calls that the core returned for claims and that the world has not polled yet.
    calls: VecDeque<(subject::Runtime, Call)>,
    /// The commands of calls without an answer, and the runtime that carries each call.
    commands: BTreeMap<CallId, (subject::Runtime, Vec<Command>)>,
    /// The runtime that used the core last. `poll_call` makes its calls, and then those of the keeper's thread.
    entered: subject::Runtime,
    /// The core's id of each permit and growth, by its name on servers, and the runtime of its caller.
    ids: BTreeMap<u64, (PermitId, subject::Runtime)>,
    /// The number of growths that a permit has had.
    growths: BTreeMap<u64, u64>,
    /// The name on servers of each growth, by the serial that the core gave it.
    names: BTreeMap<u64, subject::PermitId>,
    /// Permits that callers have given up, and whose release they await.
    waits: BTreeSet<PermitId>,
}

/// Records the script that a command is encoded as.
#[derive(Default)]
struct ScriptRecorder {
    script: Option<Script>,
    key_count: usize,
}

impl Sink for ScriptRecorder {
    fn begin(&mut self, verb: Verb, keys: usize, _: usize) {
        let verb = match verb {
            Verb::Acquire => scripts::Verb::Acquire,
            Verb::Refresh => scripts::Verb::Refresh,
            Verb::Release => scripts::Verb::Release,
            Verb::AcquireBudgets => scripts::Verb::AcquireBudgets,
            Verb::RefreshBudgets => scripts::Verb::RefreshBudgets,
            Verb::ReleaseBudgets => scripts::Verb::ReleaseBudgets,
            Verb::Presence => scripts::Verb::Presence,
            Verb::Usage => scripts::Verb::Usage,
            Verb::Revoke => scripts::Verb::Revoke,
            Verb::Pause => scripts::Verb::Pause,
            verb => panic!("no process sends {verb:?}"),
        };
        let script = Script {
            verb,
            keys: Vec::new(),
            args: Vec::new(),
            is_asking: false,
        };
        *self = Self {
            script: Some(script),
            key_count: keys,
        };
    }

    fn add(&mut self, item: impl Display) {
        let Some(script) = &mut self.script else {
            panic!("{item} comes before its script");
        };
        let all = match script.keys.len() < self.key_count {
            true => &mut script.keys,
            false => &mut script.args,
        };
        all.push(item.to_string());
    }
}

impl CommandSink for ScriptRecorder {
    fn plain(&mut self, words: &[&dyn Display]) {
        panic!("a command without a script, of {} words", words.len());
    }
}

/// Converts a reply of the simulated server for the shipped decoder.
fn read(reply: &stand_in::Reply) -> Reply {
    match reply {
        stand_in::Reply::Int(number) => Reply::Integer(*number),
        stand_in::Reply::Text(text) => Reply::Text(text.clone()),
        stand_in::Reply::List(items) => Reply::List(items.iter().map(read).collect()),
        stand_in::Reply::Nil | stand_in::Reply::Status(_) => Reply::Other,
    }
}

fn tokens(levels: impl Iterator<Item = u64>) -> [u64; subject::LEVELS] {
    let mut tokens = [0; subject::LEVELS];
    for (place, token) in tokens.iter_mut().zip(levels) {
        *place = token;
    }
    tokens
}

impl Shipped {
    /// Encodes a call, and decodes it again for the judge.
    fn call(&mut self, now: Time, from: subject::Runtime, call: Call) -> subject::Call {
        let (mut is_asking, mut confirms, progress) = (false, false, call.progress);
        let scripts = call.commands.iter().filter_map(|command| {
            is_asking |= matches!(command, Command::Asking);
            confirms |= matches!(command, Command::Confirm { .. });
            if matches!(command, Command::Asking | Command::Confirm { .. }) {
                return None;
            }
            let mut written = ScriptRecorder::default();
            command.encode(&self.owner, &mut written);
            let mut script = written.script.expect("a command is a script");
            script.is_asking = std::mem::take(&mut is_asking);
            Some(script)
        });
        let scripts: Vec<_> = scripts.collect();
        let commands = scripts.iter().map(|script| {
            let read = script.read(&self.settings);
            read.unwrap_or_else(|error| panic!("{error}"))
        });
        let commands = commands.collect();
        self.commands.insert(call.id, (from, call.commands));
        subject::Call {
            id: subject::CallId(call.id.0),
            runtime: from,
            server: call.server,
            scripts,
            commands,
            confirms,
            deadline: now + self.settings.timeout,
            on_written: subject::OnWritten(Arc::new(move || progress.note_written())),
        }
    }
}

/// Decodes a reply by the shipped decoder.
fn answer(command: &Command, said: &subject::Said) -> Answer {
    let answer = match &said.reply {
        Ok(reply) => command.decode(&read(reply)),
        Err(subject::Refused::Loading) => Some(Answer::Failed(CommandFault::Unavailable)),
        Err(subject::Refused::NoScript) => Some(Answer::NotRun),
        Err(subject::Refused::Moved(server)) => Some(Answer::Failed(CommandFault::Moved(*server))),
        Err(subject::Refused::Ask(server)) => Some(Answer::Failed(CommandFault::Ask(*server))),
        Err(subject::Refused::WrongType | subject::Refused::Forbidden) => {
            Some(Answer::Failed(CommandFault::Mistake))
        }
        Err(subject::Refused::Midway) => Some(Answer::Failed(CommandFault::Interrupted)),
        Err(subject::Refused::Unserved) => Some(Answer::Failed(CommandFault::Unserved)),
        Err(subject::Refused::Again) => Some(Answer::Failed(CommandFault::Again)),
    };
    answer.unwrap_or_else(|| panic!("{:?} is no answer to {command:?}", said.reply))
}

impl Shipped {
    pub(crate) fn new(settings: subject::Settings) -> Self {
        let mut core = Core::new(CoreSettings {
            lease: settings.lease,
            timeout: settings.timeout,
            slots_of_store: settings.slots_of_store(),
            slot_of_process: None,
            claims: true,
            replicas: settings.replicas,
            policy: match settings.policy {
                Policy::Refuse => OutagePolicy::Refuse,
                Policy::Admit => OutagePolicy::Admit,
                Policy::Share => OutagePolicy::Share,
                Policy::Half => OutagePolicy::ShareOf { fraction: 0.5 },
            },
        });
        core.handle_servers(Time::ZERO, Change::Slots(settings.all_slots()));
        let owner = Owner {
            process: settings.process.as_str().into(),
            lease_ms: settings.lease.as_millis() as u64,
            prefix: wire::PREFIX.to_owned(),
            about: String::new(),
        };
        Self {
            settings,
            owner,
            core,
            calls: VecDeque::new(),
            commands: BTreeMap::new(),
            entered: THREAD,
            ids: BTreeMap::new(),
            growths: BTreeMap::new(),
            names: BTreeMap::new(),
            waits: BTreeSet::new(),
        }
    }

    /// Makes a claim from a task of a runtime.
    pub(crate) fn acquire(
        &mut self,
        now: Time,
        from: subject::Runtime,
        claim: subject::Claim,
    ) -> subject::PermitId {
        let levels = claim.levels().map(|level| LevelClaim {
            name: wire::name(level.key).into(),
            slot: self.settings.slot_of(level.key),
            limit: level.limit,
            weight: level.weight,
            charge: level.charge.map(|charge| match charge {
                subject::Charge::Grant => Charge::Grant,
                subject::Charge::Settlement { .. } => Charge::Settlement,
            }),
            wait: level.wait.map(|wait| LevelWait {
                time: wait.time,
                max_waiting: wait.max_waiting,
                head_start: wait.head_start,
            }),
            is_strict: level.is_strict,
            label: None,
            flow: level.flow.map(|(flow, share)| {
                Flow::new(share.into(), char::from(flow).encode_utf8(&mut [0]))
            }),
        });
        self.entered = from;
        let (id, call) = self
            .core
            .acquire(now, runtime(from), &levels.collect::<Vec<_>>());
        self.calls.extend(call.map(|call| (from, call)));
        self.ids.insert(id.serial, (id, from));
        subject::PermitId(id.serial)
    }

    /// Notes how many units of a budget the holder of a permit has used.
    pub(crate) fn settle(&mut self, permit: subject::PermitId, level: usize, used: u32) {
        if let Some((id, _)) = self.ids.get(&permit.0) {
            self.core.settle(*id, level, used);
        }
    }

    /// Gives up a permit or a claim, at any time.
    pub(crate) fn release(&mut self, now: Time, permit: subject::PermitId) {
        let Some((id, from)) = self.ids.remove(&permit.0) else {
            return;
        };
        // Callers with even serials wait for the release. The caller's own task sends it if it can.
        let waits = id.serial.is_multiple_of(2);
        self.core.release(now, id, waits);
        // Some permits are dropped outside of any runtime.
        self.entered = if id.serial % 4 == 3 { THREAD } else { from };
        if waits {
            self.waits.insert(id);
            let call = self.core.release_alone(now, runtime(from), id);
            self.calls.extend(call.map(|call| (from, call)));
        }
    }

    /// Claims more units for a level of a permit, from a task of a runtime. Returns the growth, for which the outcome
    /// is reported, and the number of units of earlier growths that it claims too and replaces. The caller must give
    /// up that number once the growth is granted.
    pub(crate) fn grow(
        &mut self,
        now: Time,
        from: subject::Runtime,
        permit: subject::PermitId,
        to: subject::Resize,
    ) -> Option<(subject::PermitId, u32)> {
        let (root, _) = *self.ids.get(&permit.0)?;
        let (level, more) = ((root, to.level), (to.units, to.limit));
        self.entered = from;
        let growth = self
            .core
            .grow(now, runtime(from), level, more, Merge::Smallest)?;
        self.calls.extend(growth.call.map(|call| (from, call)));
        let number = self.growths.entry(permit.0).or_default();
        *number += 1;
        let name = subject::PermitId(permit.0 + subject::GROWTH * *number);
        self.ids.insert(name.0, (growth.id, from));
        self.names.insert(growth.id.serial, name);
        Some((name, growth.merged))
    }

    /// Gives up units of a level of a permit. Returns the parts whose release will be reported.
    pub(crate) fn shrink(
        &mut self,
        now: Time,
        permit: subject::PermitId,
        by: subject::Resize,
    ) -> Vec<subject::PermitId> {
        let root = self.ids.get(&permit.0).map(|(id, _)| *id);
        let parts = root.and_then(|root| self.core.shrink(now, root, (by.level, by.units)));
        let parts = parts.unwrap_or_default().into_iter();
        parts.map(|part| self.name(part)).collect()
    }

    /// The name of a permit on servers. A growth is named after its permit.
    fn name(&self, id: PermitId) -> subject::PermitId {
        let name = self.names.get(&id.serial).copied();
        name.unwrap_or(subject::PermitId(id.serial))
    }

    /// Notes that its process pauses a semaphore until `until`, or ends its pause.
    pub(crate) fn note_pause(&mut self, now: Time, key: subject::Key, until: Option<Time>) {
        self.core.note_pause(now, wire::tag(key).into(), until);
    }

    /// Makes no more claims, and gives up everything.
    pub(crate) fn shutdown(&mut self) {
        self.core.shutdown();
    }

    /// Handles the answers to a call, one for each command.
    pub(crate) fn handle_reply(
        &mut self,
        now: Time,
        call: subject::CallId,
        reply: Result<Vec<subject::Said>, subject::Failure>,
    ) {
        let call = CallId(call.0);
        let (from, commands) = self.commands.remove(&call).unwrap_or_default();
        self.entered = from;
        let reply = match reply {
            Ok(said) => {
                let mut said = said.iter();
                let answers = commands.iter().map(|command| match command {
                    Command::Asking => Answer::Done,
                    _ => answer(command, said.next().expect("an answer for each script")),
                });
                Ok(answers.collect())
            }
            Err(subject::Failure::NotConnected) => Err(CallFailure::NotConnected),
            Err(subject::Failure::Broken) => Err(CallFailure::Broken),
            Err(subject::Failure::Abandoned) => Err(CallFailure::Abandoned),
            Err(subject::Failure::Unconfirmed) => {
                panic!("only the core finds out that replicas lack writes")
            }
        };
        self.core.handle_reply(now, call, reply);
    }

    /// Handles the message of a grant. Its serial is that of the permit, plus `GROWTH` times the lease, plus
    /// `GENERATION` times the generation.
    pub(crate) fn handle_message(&mut self, now: Time, message: subject::Message) {
        let name = LeaseName {
            permit: message.serial % subject::GROWTH,
            lease: (message.serial % subject::GENERATION / subject::GROWTH) as u32,
            generation: (message.serial / subject::GENERATION) as u32,
        };
        let message = Message::Granted(name, message.token, 0);
        self.entered = THREAD;
        self.core.handle_message(now, message);
    }

    /// Messages arrive from now on.
    pub(crate) fn handle_subscription(&mut self, now: Time) {
        self.entered = THREAD;
        self.core.handle_message(now, Message::Subscribed);
    }

    /// Handles the message that an operator has revoked a permit.
    pub(crate) fn handle_revocation(&mut self, now: Time, permit: subject::PermitId) {
        self.core.handle_message(now, Message::Revoked(permit.0));
    }

    /// Handles a change of slots or connections.
    pub(crate) fn handle_servers(&mut self, now: Time, change: subject::Servers) {
        let change = match change {
            subject::Servers::Slots(slots) => Change::Slots(slots),
            subject::Servers::Connected(from, server) => {
                self.entered = from;
                Change::Connected(runtime(from), server)
            }
            subject::Servers::Replaced(from, server) => {
                self.entered = from;
                Change::Replaced(runtime(from), server)
            }
            subject::Servers::Gone(from, server) => Change::Gone(runtime(from), server),
            subject::Servers::Denied(server, is_denied) => {
                Change::NotConnected { server, is_denied }
            }
        };
        self.core.handle_servers(now, change);
    }

    /// Encodes a query of an operator.
    pub(crate) fn query(&self, query: &Query<'_>) -> Script {
        let mut written = ScriptRecorder::default();
        query.encode(&self.owner, &mut written);
        written.script.expect("a query is a script")
    }

    /// The server last known to own a slot.
    pub(crate) fn server_at(&self, slot: u16) -> usize {
        self.core.server_at(slot)
    }

    /// When it next has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        self.core.poll_timeout()
    }

    /// Does everything that is due.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.entered = THREAD;
        self.core.handle_timeout(now);
    }

    /// The next call to send now.
    pub(crate) fn poll_call(&mut self, now: Time) -> Option<subject::Call> {
        let call = self.calls.pop_front();
        let mut runtimes = [self.entered, THREAD].into_iter();
        let core = &mut self.core;
        let (from, call) = call.or_else(|| {
            runtimes.find_map(|from| Some((from, core.poll_call(now, runtime(from))?)))
        })?;
        Some(self.call(now, from, call))
    }

    /// True if it remembers no claims.
    pub(crate) fn is_idle(&self) -> bool {
        self.core.is_idle()
    }

    /// The number of times that its debug text names a lease. This includes outdated entries in queues.
    pub(crate) fn count_leases(&self) -> usize {
        format!("{:?}", self.core).matches("LeaseRef(").count()
    }

    /// The next event for a caller.
    pub(crate) fn poll_event(&mut self) -> Option<subject::Event> {
        loop {
            let (id, event) = self.core.poll_event()?;
            let permit = self.name(id);
            return Some(match event {
                Event::Granted(levels) => {
                    let granted = levels.into_iter().map(|(token, ..)| token);
                    subject::Event::Granted(permit, tokens(granted))
                }
                Event::Refused(why) => {
                    let why = match why {
                        Refusal::Full(..) => subject::Refusal::Full,
                        Refusal::QueueFull(..) => subject::Refusal::QueueFull,
                        Refusal::TimedOut(..) => subject::Refusal::TimedOut,
                        Refusal::Paused(_, _, left) => subject::Refusal::Paused(left),
                        Refusal::Revoked => subject::Refusal::Revoked,
                        Refusal::Closed => subject::Refusal::Closed,
                        Refusal::Failed(_) => subject::Refusal::Failed,
                        Refusal::Unavailable(_) => subject::Refusal::Unavailable,
                        Refusal::Congested(_) => subject::Refusal::Congested,
                    };
                    subject::Event::Refused(permit, why)
                }
                Event::Lost => subject::Event::Lost(permit),
                Event::Regained(all) => {
                    let tokens = tokens(all.into_iter());
                    subject::Event::Regained(permit, tokens)
                }
                Event::Revoked => subject::Event::Revoked(permit),
                Event::Released(was_held) if self.waits.remove(&id) => {
                    subject::Event::GivenUp(permit, was_held)
                }
                Event::Released(_) => subject::Event::Released(permit),
                Event::Degraded => subject::Event::Degraded(permit),
                Event::Queued(_) | Event::Held(_) => continue,
            });
        }
    }
}
