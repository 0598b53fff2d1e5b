//! The promises that must hold. The judge shares no code with a core: it uses the servers' own logs, the events that
//! callers received, and the calls themselves.
//!
//! The world calls a method of the judge for each event. In all of them, `at` is the number of a process, `now` is the
//! world's time, and `local` is the time on the process's clock. A *growth* is a claim for more units of a permit, its
//! parent.

mod budgets;
mod callers;
mod calls;
mod effect;
mod fair;
mod limits;
mod pauses;
mod questions;
mod record;
mod shares;
mod storage;
mod weights;

use crate::{
    process::Process,
    schedule::{Data, Schedule},
    server::{BudgetView, Run, Server, View},
    shipped::Shipped,
    subject::{
        Answer, Call, CallId, Claim, Command, Event, Failure, GENERATION, Key, Level, Message,
        PermitId, Resize, Time,
    },
};
use budgets::Budgets;
use callers::Callers;
use calls::Calls;
pub(crate) use effect::Name;
use limits::Limits;
use questions::Questions;
use shares::Shares;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
    time::Duration,
};
use storage::Storage;

/// A process and one of its permits.
type Who = (usize, PermitId);

/// How much later than it is due a running process may do something.
const LATE: Duration = Duration::from_millis(10);

/// True if a process is suspended, or was until a moment ago. Then it may be late with everything.
fn is_dazed(process: &Process, now: Duration) -> bool {
    now < process.suspended_until + LATE
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the promise.
    pub rule: &'static str,
    /// The observation that breaks it.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {}: {}", self.rule, self.text)
    }
}

type Verdict = Result<(), Violation>;

/// Returns a violation unless `holds`.
fn check(holds: bool, rule: &'static str, text: impl FnOnce() -> String) -> Verdict {
    match holds {
        true => Ok(()),
        false => Err(Violation { rule, text: text() }),
    }
}

/// Units that were given up: the semaphore, the serial of their id, and the numbers of the first and the last unit.
type GivenUp = (Key, u64, (u32, u32));

/// A call in flight.
#[derive(Debug)]
struct Flight {
    call: Call,
    sent: Time,
    /// Units that its process had already given up, and that no other call can bring back.
    given_up: Vec<GivenUp>,
    /// The ids that it was sent to release, but its server refused to run the release.
    not_released: BTreeSet<(Key, u64)>,
}

impl Flight {
    /// The number of units that it names.
    fn units(&self) -> usize {
        let ids = self.call.commands.iter().flat_map(Command::ids);
        ids.map(|(_, id)| id.count() as usize).sum()
    }
}

/// The calls of each process that are in flight.
type Flights = BTreeMap<(usize, CallId), Flight>;

/// The calls of a process that are in flight.
fn of_process(flights: &mut Flights, at: usize) -> impl Iterator<Item = &mut Flight> {
    let own = flights
        .iter_mut()
        .filter(move |((process, _), _)| *process == at);
    own.map(|(_, flight)| flight)
}

/// The judge of a simulation.
#[derive(Debug)]
pub struct Judge {
    /// The first violation.
    pub violation: Option<Violation>,
    flights: Flights,
    storage: Storage,
    callers: Callers,
    calls: Calls,
    limits: Limits,
    /// Operators' questions.
    pub questions: Questions,
    /// The processes that still remembered a claim at the last check.
    busy: BTreeSet<usize>,
    /// Judges claims that are admitted without their server. `None`: the schedule has no such claims.
    shares: Option<Shares>,
    /// Judges claims with budgets. If it is there, it gets the events instead of all the others.
    budgets: Option<Budgets>,
}

impl Judge {
    /// Creates a judge that has seen nothing.
    pub fn new(schedule: &Schedule) -> Self {
        Self {
            violation: None,
            flights: Flights::new(),
            storage: Storage::new(schedule),
            callers: Callers::new(schedule),
            calls: Calls::new(schedule),
            limits: Limits::new(schedule.settings(0)),
            questions: Questions::default(),
            busy: BTreeSet::new(),
            shares: schedule.admits().then(|| Shares::new(schedule)),
            budgets: schedule.has_budgets().then(|| Budgets::new(schedule)),
        }
    }

    fn note(&mut self, verdict: Verdict) {
        if let (Err(violation), None) = (verdict, &self.violation) {
            self.violation = Some(violation);
        }
    }

    /// Notes a violation.
    pub fn fail(&mut self, rule: &'static str, text: impl FnOnce() -> String) {
        self.note(check(false, rule, text));
    }

    /// A caller makes a claim.
    pub fn asked(&mut self, at: usize, permit: PermitId, claim: Claim, local: Time) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.asked((at, permit), claim, local);
        }
        self.calls.asked((at, permit), claim);
        self.limits.asked((at, permit), claim);
        if let Some(shares) = &mut self.shares {
            shares.asked((at, permit), claim, local);
        }
        let verdict = self.callers.asked((at, permit), claim, local);
        self.note(verdict);
    }

    /// Picks a level of a permit that a process holds. Returns the permit, the level with its units, and its key.
    pub fn resizable(&self, at: usize, pick: usize) -> Option<(PermitId, Resize, Key)> {
        // No permit with budgets changes its weight.
        self.budgets.is_none().then_some(())?;
        self.callers.resizable(at, pick)
    }

    /// The permit of a process that holds the most units of a semaphore.
    pub fn heaviest(&self, at: usize, key: Key) -> Option<(PermitId, Resize)> {
        self.budgets.is_none().then_some(())?;
        self.callers.heaviest(at, key)
    }

    /// A caller claims more units for a permit: `claim` is for the growth, which has a separate id.
    pub fn grows(
        &mut self,
        at: usize,
        (growth, parent): (PermitId, PermitId),
        claim: Claim,
        local: Time,
    ) {
        self.callers.grows((at, growth), (at, parent));
        self.asked(at, growth, claim, local);
        if let Some(shares) = &mut self.shares {
            shares.grows((at, growth), (at, parent));
        }
    }

    /// A caller gives up units of a permit. The process will report the release of each of `parts`.
    pub fn shrinks(
        &mut self,
        at: usize,
        permit: PermitId,
        (key, units): (Key, u32),
        parts: &[PermitId],
        local: Time,
    ) {
        for (who, keeps) in self.callers.shrinks((at, permit), (key, units), parts) {
            if keeps > 0 {
                self.calls.shrunk(who, (key, keeps), local);
            } else {
                self.calls.mark_due(who, local, &self.flights);
                self.calls.over(who);
            }
            if let Some(shares) = &mut self.shares {
                shares.shrunk(who, (key, keeps));
            }
        }
    }

    /// Checks that servers hold the units that callers have, for processes that wait for no answer.
    pub fn weigh(&mut self, processes: &[Process], servers: &[Server], now: Duration) {
        if self.budgets.is_some() {
            return;
        }
        let mut verdict = Ok(());
        for (at, record, units) in self.callers.holders() {
            let mut flights = self.flights.range((at, CallId(0))..(at + 1, CallId(0)));
            let is_quiet = flights.next().is_none() && self.callers.weights.has_reported_all(at);
            if !is_quiet
                || record.was_dazed
                || record.is_degraded
                || record.revoked.is_some()
                || processes[at].core.is_none()
            {
                continue;
            }
            for part in units {
                verdict = verdict.and_then(|()| self.storage.check_weight(servers, part, now));
            }
        }
        self.note(verdict);
    }

    /// An operator has set a limit.
    pub fn limited(&mut self, limit: Option<u32>) {
        self.limits.set(limit);
    }

    /// A process is closed: it makes no more claims.
    pub fn closed(&mut self, at: usize, local: Time) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.closed(at);
        }
        self.callers.closed(at, local);
        self.limits.closed(at);
    }

    /// A caller has given up a claim or a permit.
    pub fn released(&mut self, at: usize, permit: PermitId, local: Time) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.released((at, permit));
        }
        for who in self.callers.family((at, permit)) {
            self.calls.mark_due(who, local, &self.flights);
            self.calls.over(who);
            self.shares.iter_mut().for_each(|shares| shares.over(who));
        }
        self.callers.over((at, permit));
    }

    /// The claims in a call, without those that callers have given up.
    pub fn claims(&self, at: usize, call: CallId) -> Vec<PermitId> {
        let open = self.open();
        let flight = self.flights.get(&(at, call)).into_iter();
        let wanted =
            flight.flat_map(|flight| flight.call.commands.iter().flat_map(Command::wanted));
        let claims = wanted.map(|(_, wanted)| wanted.id.permit());
        let flight = self.flights.get(&(at, call)).into_iter();
        let commands = flight.flat_map(|flight| &flight.call.commands);
        let with_budgets = commands.flat_map(|command| match command {
            Command::Budgets { wanted, .. } => wanted.clone(),
            _ => Vec::new(),
        });
        claims
            .chain(with_budgets)
            .filter(|permit| open.contains(&(at, *permit)))
            .collect()
    }

    /// The claims that callers have not given up.
    pub fn open(&self) -> Vec<Who> {
        if let Some(budgets) = &self.budgets {
            return budgets.open();
        }
        self.callers.open()
    }

    /// A process sends a call. `times` are the world's and the process's.
    pub fn sent(&mut self, at: usize, process: &Process, call: &Call, times: (Duration, Time)) {
        let (now, local) = times;
        if self.budgets.is_some() {
            let flight = Flight {
                call: call.clone(),
                sent: local,
                given_up: Vec::new(),
                not_released: BTreeSet::new(),
            };
            self.flights.insert((at, call.id), flight);
            return;
        }
        if !self.callers.is_closed(at) {
            let flights = (local, &self.flights);
            self.note(self.calls.check_probe((at, process), call, flights));
        }
        let verdict = self.limits.sent(at, call, local);
        self.note(verdict);
        let verdict = self.calls.sent(at, call, local, &self.flights);
        self.note(verdict);
        let verdict = self.callers.check_parts(at, call);
        self.note(verdict);
        if let Some(shares) = self.shares.as_ref().filter(|_| !is_dazed(process, now)) {
            let is_unwell = |key| self.is_unwell(at, key, local);
            let verdict = shares.sent(at, call, (local, &self.flights), is_unwell);
            self.note(verdict);
        }
        let mut given_up = self.calls.given_up(at);
        for flight in of_process(&mut self.flights, at) {
            given_up.retain(|(key, serial, _)| !flight.not_released.contains(&(*key, *serial)));
        }
        let flight = Flight {
            given_up,
            not_released: BTreeSet::new(),
            call: call.clone(),
            sent: local,
        };
        self.flights.insert((at, call.id), flight);
    }

    /// True if a process knows that the server of a semaphore is unwell.
    fn is_unwell(&self, at: usize, key: Key, local: Time) -> bool {
        let server = self.calls.server_of(at, key);
        self.calls.is_unwell(at, server, local)
    }

    /// A process receives an answer.
    pub fn replied(
        &mut self,
        at: usize,
        id: CallId,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
    ) {
        let flight = self.flights.remove(&(at, id));
        if let Some(flight) = flight.filter(|_| self.budgets.is_none()) {
            self.callers.replied(at, &flight, reply, local, &self.calls);
            self.limits.replied(at, &flight.call, reply, local);
            self.calls.replied(at, &flight, reply, local);
            let in_time = local < flight.call.deadline;
            if let Some(shares) = self.shares.as_mut().filter(|_| in_time) {
                shares.counted(at, &flight.call, reply, local);
            }
        }
    }

    /// A caller receives an event. `times` are the world's and the process's.
    pub fn received(
        &mut self,
        at: usize,
        process: &Process,
        servers: &[Server],
        event: Event,
        times: (Duration, Time),
    ) {
        let who = (at, event.permit());
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.received(who, event, (process, servers), times);
            return self.note(verdict);
        }
        if let Event::Released(_) = event {
            let verdict = self.callers.weights.released(who);
            return self.note(verdict);
        }
        if let Event::GivenUp(_, was_held) = event {
            let verdict = self.callers.given_up(who, was_held);
            return self.note(verdict);
        }
        let is_closed = self.callers.is_closed(at);
        for other in self.callers.family(who) {
            match event {
                Event::Lost(_) if is_closed => {
                    self.calls.mark_due(other, times.1, &self.flights);
                    self.calls.over(other);
                    self.shares.iter_mut().for_each(|shares| shares.over(other));
                }
                // The token 0: the claim is admitted without its server.
                Event::Granted(_, [0, ..]) => {
                    self.calls.granted(other, false);
                    self.calls.lost(other);
                }
                Event::Granted(..) => {
                    let verdict = self.calls.check_granted(other);
                    self.note(verdict);
                    self.calls.granted(other, false);
                }
                Event::Regained(..) => self.calls.granted(other, true),
                Event::Refused(..) | Event::Revoked(_) => {
                    self.calls.over(other);
                    // `shares.received` below ends `who` itself.
                    let shares = self.shares.iter_mut().filter(|_| other != who);
                    shares.for_each(|shares| shares.over(other));
                }
                Event::Lost(_) | Event::Degraded(_) => self.calls.lost(other),
                Event::Released(_) | Event::GivenUp(..) => {}
            }
        }
        // Growths of a permit have their own tokens.
        let permits = self.callers.with_growths(who);
        let context = callers::EventContext {
            process,
            now: times.0,
            local: times.1,
            flights: &self.flights,
            tokens: permits.flat_map(|who| self.storage.tokens(who)).collect(),
            repeats: self.storage.repeats(),
            limits: &self.limits,
            calls: &self.calls,
        };
        let verdict = self.callers.received(who, event, &context);
        self.note(verdict);
        let levels = self.callers.levels(who).unwrap_or_default();
        let mut keys = levels.iter().map(|(_, level)| level.key);
        let is_unwell = keys.any(|key| self.is_unwell(at, key, times.1));
        let is_unwell = is_unwell && !is_dazed(process, times.0);
        if let Some(shares) = &mut self.shares {
            let verdict = shares.received(who, event, (times.1, is_unwell));
            self.note(verdict);
        }
        let is_grant = matches!(event, Event::Granted(..) | Event::Regained(..));
        if is_grant {
            let is_admitted = matches!(event, Event::Granted(_, [0, ..]));
            let is_revoked = self.callers.is_revoked(who);
            self.callers.grown(who);
            for (permit, level) in levels.into_iter().filter(|_| !is_admitted) {
                let weight = (level.key, level.weight);
                let verdict = self
                    .storage
                    .check_held(servers, (at, permit), weight, times.0);
                self.note(verdict.or_else(|violation| match is_revoked {
                    true => Ok(()),
                    false => Err(violation),
                }));
                let is_disturbed = |key| self.storage.is_disturbed(key);
                let verdict = self
                    .callers
                    .check_overlap((level.key, self.limits.highest(level.key)), is_disturbed);
                self.note(verdict);
            }
        }
    }

    /// A server has run a script.
    pub fn ran(&mut self, server: usize, call: CallId, run: &Run) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.ran(server, run);
            return self.note(verdict);
        }
        let flight = self.flights.get(&(run.process, call));
        if let Some(flight) = flight.filter(|_| !self.storage.brings_back(server)) {
            self.note(storage::check_own(run, &flight.given_up));
        }
        let verdict = self.storage.ran(server, run);
        self.note(verdict);
        self.storage.released(run);
        self.callers.ran(run);
        match self.storage.returned(run) {
            Ok(all) => all.into_iter().for_each(|who| self.callers.returned(who)),
            Err(violation) => self.note(Err(violation)),
        }
    }

    /// A server did not run a command of a call. If the command was a release, other calls in flight assumed that it
    /// would free its units. So the judge no longer counts these units as given up, until the process receives the
    /// answer.
    pub fn refused(&mut self, at: usize, call: CallId, command: &Command) {
        let Command::Release { of, .. } = command else {
            return;
        };
        let units = of
            .iter()
            .flat_map(|(key, ids)| ids.iter().map(|id| (*key, id.serial)));
        let units: BTreeSet<_> = units.collect();
        for flight in of_process(&mut self.flights, at) {
            let other = |(key, serial, _): &GivenUp| !units.contains(&(*key, *serial));
            flight.given_up.retain(other);
        }
        if let Some(flight) = self.flights.get_mut(&(at, call)) {
            flight.not_released.extend(units);
        }
    }

    /// A server has revoked an id for an operator, or did not find it.
    pub fn revoked(&mut self, server: usize, run: &Run, was_there: bool) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.ran(server, run);
            return self.note(verdict);
        }
        let verdict = self.storage.ran(server, run);
        self.note(verdict);
        let verdict = self.storage.revoked(run, was_there);
        self.note(verdict);
        for (_, id) in run.command.ids().into_iter().filter(|_| was_there) {
            self.callers.revoked((run.process, id.permit()), server);
        }
    }

    /// A server has run a pause for `length` ms, or the end of a pause if that is 0. `is_paused` is its answer.
    pub fn paused(&mut self, server: usize, run: &Run, length: i64, is_paused: bool) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.ran(server, run);
            return self.note(verdict);
        }
        let verdict = self.storage.paused(run, length, is_paused);
        self.note(verdict);
        let verdict = self.storage.ran(server, run);
        self.note(verdict);
    }

    /// A process requests a pause of a semaphore until `until`, or the end of its pause.
    pub fn requests_pause(&mut self, at_key: (usize, Key), until: Option<Time>) {
        self.callers.requests_pause(at_key, until);
    }

    /// The message of a grant arrives at its process.
    pub fn notified(&mut self, at: usize, message: Message, local: Time) {
        let who = (at, PermitId(message.serial % GENERATION));
        // An older token is no news. With shares, a process may have to hold back the next poll, because the claim
        // would exceed the share.
        let is_last = self.storage.tokens(who).max() == Some(message.token);
        if is_last && self.shares.is_none() {
            self.calls.notified(who, local);
        }
    }

    /// The message of a revocation has arrived at its process, which has emitted all events that follow from it.
    pub fn heard(&mut self, at: usize, permit: PermitId) {
        if self.budgets.is_some() {
            return;
        }
        let verdict = self.callers.heard((at, permit));
        self.note(verdict);
    }

    /// Time passes.
    pub fn pass(&mut self, processes: &[Process], servers: &[Server], now: Duration) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.pass(processes, servers, now);
            return self.note(verdict);
        }
        for (at, process) in processes.iter().enumerate() {
            let is_idle = process.core.as_ref().is_some_and(Shipped::is_idle);
            // Once a process has forgotten its last claim, its servers must hold nothing of it.
            let has_forgotten = is_idle && self.busy.remove(&at);
            if has_forgotten {
                let verdict = self.storage.forgets(servers, at, now);
                self.note(verdict);
            } else if !is_idle {
                self.busy.insert(at);
            }
        }
        let verdict = self.calls.pass(processes, &self.flights, now);
        self.note(verdict);
        let verdict = self
            .callers
            .pass(processes, servers, now, (&self.calls, &self.limits));
        self.note(verdict);
        if let Some(shares) = &mut self.shares {
            let verdict = shares.check_returns(processes, servers, (now, &self.calls));
            self.note(verdict);
        }
        let verdict = self.limits.pass(
            processes,
            servers,
            (now, &self.calls),
            (&self.flights, &self.callers.undecided()),
        );
        self.note(verdict);
    }

    /// A runtime of a process has lost its connection to a server, or cannot make one.
    pub fn gone(&mut self, at: usize, (runtime, server): (usize, usize), local: Time) {
        self.callers.failed(at, server, local);
        if runtime == 0 {
            self.calls.failed(at, server, local);
        }
    }

    /// A server has refused a connection.
    pub fn denied(&mut self, at: usize, server: usize, local: Time) {
        self.callers.denied(at, server, local);
        self.calls.denied(at, server, local);
    }

    /// A process learns where slots are.
    pub fn placed(&mut self, at: usize, slots: &[(Range<usize>, usize)], local: Time) {
        for (slots, server) in slots {
            for slot in slots.clone() {
                self.calls.placed(at, (slot as u16, *server), local);
            }
        }
    }

    /// A process was killed.
    pub fn killed(&mut self, at: usize) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.killed(at);
        }
        self.callers.killed(at);
        self.shares.iter_mut().for_each(|shares| shares.killed(at));
        self.calls.killed(at);
        self.limits.killed(at);
        self.storage.killed(at);
    }

    /// Another program has written over a key of a semaphore.
    pub fn poisoned(&mut self, key: Key) {
        self.storage.poisoned(key);
        self.callers.poisoned(key);
    }

    /// The clock of a server was set.
    pub fn stepped(&mut self, server: usize, ms: i64) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.stepped(server);
        }
        self.storage.stepped(server, ms);
    }

    /// The location of a slot changes. Processes may not know it yet, so for all of them every server counts as failed.
    pub fn moves(&mut self, processes: &[Process], now: Duration) {
        if self.budgets.is_some() {
            return;
        }
        for (at, process) in processes.iter().enumerate() {
            for server in 0..process.settings.servers {
                self.callers.failed(at, server, process.local(now));
            }
        }
    }

    /// The keys of a semaphore have moved to a server whose clock is `ahead` ms ahead.
    pub fn migrated(&mut self, key: Key, way: (usize, usize), ahead: i64) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.migrated(key, way);
        }
        self.storage.migrated(key, way, ahead);
    }

    /// The replica of a server has taken its place. It has every grant that was confirmed.
    pub fn failed_over(&mut self, server: usize) {
        if let Some(budgets) = &mut self.budgets {
            return budgets.forgets(server);
        }
        self.callers.forgotten(server);
        self.storage.failed_over(server);
    }

    /// A server was stopped, and starts again with `data`.
    pub fn restarted(&mut self, server: usize, data: Data) {
        if let Some(budgets) = &mut self.budgets {
            if data != Data::Same {
                budgets.forgets(server);
            }
            return;
        }
        if data != Data::Same {
            self.callers.forgotten(server);
        }
        self.storage.restarted(server, data);
    }

    /// Checks that nothing is left: every claim has been over for a while, and nothing fails any more.
    pub fn check_cleared(&mut self, servers: &[Server], now: Duration) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.check_cleared(servers, now);
            return self.note(verdict);
        }
        let verdict = self.storage.check_cleared(servers, now);
        self.note(verdict);
    }

    /// The holder of a permit has used this number of units of a level's budget.
    pub fn settled_use(&mut self, at: usize, permit: PermitId, used: (usize, u32)) {
        if let Some(budgets) = &mut self.budgets {
            budgets.uses((at, permit), used);
        }
    }

    /// The levels of a claim with budgets.
    pub fn claim_of(&self, at: usize, permit: PermitId) -> Vec<Level> {
        let budgets = self.budgets.iter();
        budgets
            .flat_map(|budgets| budgets.claim_of((at, permit)))
            .collect()
    }

    /// A script has run at a budget of a server long after all claims were over. `clock` is the server's, in ms.
    pub fn touched(&mut self, server: usize, key: Key, data: &(View, BudgetView), clock: i64) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.touched((server, key), data, clock);
            self.note(verdict);
        }
    }

    /// The simulation is over.
    pub fn end(&mut self, processes: &[Process], servers: &[Server], now: Duration) {
        if let Some(budgets) = &mut self.budgets {
            let verdict = budgets.end(processes);
            return self.note(verdict);
        }
        for (at, process) in processes.iter().enumerate() {
            let is_idle = process.core.as_ref().is_none_or(Shipped::is_idle);
            // A process sends nothing to a server that has not reported its time, so it cannot release units whose slot
            // moved there, and remembers them until they expire.
            let is_timed = self.calls.are_timed(at);
            self.note(check(is_idle || !is_timed, "memory", || {
                format!("p{at} remembers what is over: {:?}", process.core)
            }));
            let leases = process.core.as_ref().map_or(0, Shipped::count_leases);
            let verdict = self.callers.check_memory(at, leases, is_timed);
            self.note(verdict);
        }
        let verdict = self.callers.weights.check_all_reported(processes);
        self.note(verdict);
        let verdict = self.storage.end(servers, now);
        self.note(verdict);
        let verdict = self.questions.end(now);
        self.note(verdict);
    }
}
