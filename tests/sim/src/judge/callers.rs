//! Checks of the events that callers receive: each comes in time, comes once, and is true.

use super::{
    Flight, Flights, Verdict, Who,
    calls::Calls,
    check,
    effect::{self, LevelOutcome},
    is_dazed,
    limits::Limits,
    record::{Lease, Moment, Record, State},
    weights::Weights,
};
use crate::{
    process::Process,
    schedule::Schedule,
    server::{Run, Server},
    subject::{
        Acquired, Answer, CallId, Claim, Command, Event, Failure, GROWTH, Key, Level, PermitId,
        Policy, Refusal, Refused, Settings, Time,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long a process may still find a server unavailable after the server has come back.
const RECOVERY: Duration = Duration::from_secs(5);

/// How many finished leases the queues of a process may name, in addition to twice the most claims that it had at
/// once.
const SPARE_LEASES: usize = 100;

/// The context in which a caller receives an event.
pub(super) struct EventContext<'a> {
    pub(super) process: &'a Process,
    /// The world's time, and the process's.
    pub(super) now: Duration,
    pub(super) local: Time,
    pub(super) flights: &'a Flights,
    /// The tokens that the servers have given to its claim.
    pub(super) tokens: BTreeSet<u64>,
    /// True if a token may be given again.
    pub(super) repeats: bool,
    pub(super) limits: &'a Limits,
    pub(super) calls: &'a Calls,
}

/// The part of the judge that follows the claims and permits of all callers.
#[derive(Debug)]
pub(super) struct Callers {
    settings: Settings,
    pub(super) records: BTreeMap<Who, Record>,
    pub(super) weights: Weights,
    /// When a process last saw a call to a server fail, by the process's clock. The keys are process and server.
    failures: BTreeMap<(usize, usize), Time>,
    /// When a process was closed. After that it makes no more claims.
    closed: BTreeMap<usize, Time>,
    /// When a process last received an answer from a server.
    answers: BTreeMap<(usize, usize), Time>,
    /// When a server last refused a connection to a process. An answered call removes it.
    denied: BTreeMap<(usize, usize), Time>,
    /// The semaphores whose units were ever granted or kept without their servers.
    admitted: BTreeSet<Key>,
    /// The end of each pause that a process has requested for a semaphore, by the process's clock.
    paused: BTreeMap<(usize, Key), Time>,
    /// The most claims and permits that a process had at once.
    most: BTreeMap<usize, usize>,
}

impl Callers {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            settings: schedule.settings(0),
            records: BTreeMap::new(),
            weights: Weights::default(),
            failures: BTreeMap::new(),
            closed: BTreeMap::new(),
            answers: BTreeMap::new(),
            denied: BTreeMap::new(),
            admitted: BTreeSet::new(),
            paused: BTreeMap::new(),
            most: BTreeMap::new(),
        }
    }

    /// The levels of a permit and its growths, each with its id.
    pub(super) fn levels(&self, who: Who) -> Option<Vec<(PermitId, Level)>> {
        let leases = self.records.get(&who)?.leases.iter();
        let levels = leases.flat_map(|lease| {
            let levels = lease.levels.iter();
            levels.map(|level| (lease.permit, *level))
        });
        Some(levels.collect())
    }

    pub(super) fn asked(&mut self, who: Who, claim: Claim, local: Time) -> Verdict {
        let leases = self.settings.leases(claim);
        let record = Record::new(who.1, claim, leases, local);
        let old = self.records.insert(who, record);
        let own = self.records.iter().filter(|((at, _), _)| *at == who.0);
        let count = own
            .filter(|(_, record)| record.state != State::Over)
            .count();
        let most = self.most.entry(who.0).or_default();
        *most = count.max(*most);
        check(old.is_none(), "ids", || format!("{who:?} is used again"))
    }

    pub(super) fn closed(&mut self, at: usize, local: Time) {
        self.closed.entry(at).or_insert(local);
    }

    /// A process pauses a semaphore until `until`, or ends its pause.
    pub(super) fn requests_pause(&mut self, at_key: (usize, Key), until: Option<Time>) {
        match until {
            Some(until) => {
                let end = self.paused.entry(at_key).or_default();
                *end = until.max(*end);
            }
            None => drop(self.paused.remove(&at_key)),
        }
    }

    /// For each pause that a process has requested for a level of a claim: how long it may still last.
    fn left_of_pauses(
        &self,
        at: usize,
        record: &Record,
        local: Time,
    ) -> impl Iterator<Item = Duration> {
        let ends = record.claim.levels();
        let ends = ends.filter_map(move |level| self.paused.get(&(at, level.key)).copied());
        ends.filter(move |end| *end > local)
            .map(move |end| end - local)
    }

    pub(super) fn is_closed(&self, at: usize) -> bool {
        self.closed.contains_key(&at)
    }

    pub(super) fn over(&mut self, who: Who) {
        if let Some(record) = self.records.get_mut(&who) {
            (record.state, record.is_released) = (State::Over, true);
        }
    }

    /// Claims that have no permit yet. After a server started with old data, claims that were granted may be in its
    /// queue again. They do not count.
    pub(super) fn undecided(&self) -> Vec<Who> {
        let mut open = self.open();
        open.retain(|who| matches!(self.records[who].state, State::Waits));
        open
    }

    pub(super) fn open(&self) -> Vec<Who> {
        let open = self
            .records
            .iter()
            .filter(|(who, record)| !record.is_released && self.weights.parent(**who).is_none());
        open.map(|(who, _)| *who).collect()
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.records.retain(|(process, _), _| *process != at);
        self.paused.retain(|(process, _), _| *process != at);
    }

    /// An operator has revoked an id. This revokes the whole permit, even if the id is that of a growth whose grant has
    /// not reached the process yet.
    pub(super) fn revoked(&mut self, who: Who, server: usize) {
        // A growth that was given up has no parent any more, so the permit is also found by its serial.
        let permit = (who.0, PermitId(who.1.0 % GROWTH));
        for who in [self.root(who), permit] {
            if let Some(record) = self.records.get_mut(&who) {
                (record.revoked, record.is_remembered) = (Some(server), true);
            }
        }
    }

    pub(super) fn is_revoked(&self, who: Who) -> bool {
        self.records
            .get(&who)
            .is_some_and(|record| record.revoked.is_some())
    }

    /// A revoked permit has come back by its first acquire.
    pub(super) fn returned(&mut self, who: Who) {
        let who = self.root(who);
        if let Some(record) = self.records.get_mut(&who) {
            record.is_remembered = false;
        }
    }

    /// A server that starts with other data remembers no revocations.
    pub(super) fn forgotten(&mut self, server: usize) {
        for record in self.records.values_mut() {
            record.is_remembered &= record.revoked != Some(server);
        }
    }

    /// Another program has overwritten a key of a semaphore, so the semaphore remembers no revocations.
    pub(super) fn poisoned(&mut self, key: Key) {
        for record in self.records.values_mut() {
            record.is_remembered &= record.units(key) == 0;
        }
    }

    /// Checks that a process that received the message of a revocation has notified the caller.
    pub(super) fn heard(&self, who: Who) -> Verdict {
        let record = self.records.get(&self.root(who));
        // A permit that was lost when its process closed gets no further event.
        let is_notified = record.is_none_or(|record| record.state == State::Over);
        check(is_notified || self.is_closed(who.0), "a revocation", || {
            format!("{who:?} is not notified of the message: {record:?}")
        })
    }

    pub(super) fn failed(&mut self, at: usize, server: usize, local: Time) {
        self.failures.insert((at, server), local);
    }

    pub(super) fn denied(&mut self, at: usize, server: usize, local: Time) {
        self.failed(at, server, local);
        self.denied.insert((at, server), local);
    }

    pub(super) fn replied(
        &mut self,
        at: usize,
        flight: &Flight,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
        calls: &Calls,
    ) {
        let server = flight.call.server;
        let Ok(answers) = reply else {
            return self.failed(at, server, local);
        };
        if local >= flight.call.deadline {
            self.failed(at, server, local);
        }
        if local < flight.call.deadline && !answers.iter().any(is_loading) {
            self.answers.insert((at, server), local);
        }
        let is_error = |answer: &Answer| matches!(answer, Answer::Error(_));
        if local < flight.call.deadline && !answers.iter().any(is_error) {
            self.denied.remove(&(at, server));
        }
        for (command, answer) in flight.call.commands.iter().zip(answers) {
            self.answered(at, flight, (command, answer), local, calls);
        }
    }

    fn answered(
        &mut self,
        at: usize,
        flight: &Flight,
        (command, answer): (&Command, &Answer),
        local: Time,
        calls: &Calls,
    ) {
        match answer {
            Answer::Error(Refused::WrongType) => {
                if let Command::Acquire { claims, .. } = command {
                    for (key, wanted) in claims.iter().flatten() {
                        if let Some(lease) = self.lease((at, wanted.id.permit()), *key) {
                            lease.meets_foreign_key = true;
                        }
                    }
                }
            }
            // Such an error for the store's own keys does not count as a failure: it is no reason to refuse a claim.
            Answer::Error(
                Refused::Moved(_)
                | Refused::Ask(_)
                | Refused::Again
                | Refused::Unserved
                | Refused::Forbidden,
            ) if matches!(command, Command::Clock { .. }) => {}
            Answer::Late(_) | Answer::Error(_) => self.failed(at, flight.call.server, local),
            Answer::Acquired(_, each) => {
                let Command::Acquire { lasts, claims, .. } = command else {
                    return;
                };
                for (claim, acquired) in claims.iter().zip(each) {
                    let (key, wanted) = claim[0];
                    // A core may ignore answers for an id that it has released.
                    if calls.is_given_back(at, (key, wanted.id)) {
                        continue;
                    }
                    self.note_acquired(
                        (at, wanted.id.permit()),
                        (flight, key, *lasts),
                        *acquired,
                        local,
                    );
                }
            }
            Answer::Held(each) => {
                let Command::Refresh { lasts, .. } = command else {
                    return;
                };
                // A lease is held if all of its levels are.
                let ids = command.ids();
                let ids = ids.iter().zip(each);
                let lost: Vec<_> = ids.clone().filter(|(_, held)| !**held).collect();
                for ((key, id), _) in ids {
                    let who = (at, id.permit());
                    let is_lost = lost.iter().any(|((other, lost), _)| {
                        lost.permit() == id.permit() && self.share_lease(who, *key, *other)
                    });
                    if !is_lost {
                        self.note_held(who, (flight, *key, *lasts), local);
                    }
                }
                for ((key, id), _) in lost {
                    if let Some(lease) = self.lease((at, id.permit()), *key) {
                        let mut levels = lease.levels.iter();
                        let has =
                            levels.any(|level| (level.key, level.weight) == (*key, id.count()));
                        lease.is_not_found |= has;
                    }
                }
            }
            Answer::Released | Answer::Clock(..) | Answer::Budgets | Answer::Replicas(_) => {}
        }
    }

    /// The lease that has this id and semaphore. It belongs to the record of the permit, also if it is a growth.
    fn lease(&mut self, who: Who, key: Key) -> Option<&mut Lease> {
        let root = self.root(who);
        let leases = &mut self.records.get_mut(&root)?.leases;
        leases
            .iter_mut()
            .find(|lease| lease.permit == who.1 && lease.has(key))
    }

    /// True if one lease of a permit has both semaphores.
    fn share_lease(&mut self, who: Who, key: Key, other: Key) -> bool {
        self.lease(who, key).is_some_and(|lease| lease.has(other))
    }

    /// An answer shows that a lease is held from the sending of its call on.
    fn note_held(&mut self, who: Who, (flight, key, lasts): (&Flight, Key, Duration), local: Time) {
        if let Some(lease) = self.lease(who, key) {
            (lease.is_not_found, lease.meets_foreign_key) = (false, false);
            let until = Some(flight.sent + lasts);
            lease.until = lease.until.max(until);
            if local < flight.call.deadline {
                lease.counts_until = lease.counts_until.max(until);
            }
        }
    }

    fn note_acquired(
        &mut self,
        who: Who,
        (flight, key, lasts): (&Flight, Key, Duration),
        acquired: Acquired,
        local: Time,
    ) {
        let alive = flight.sent + self.settings.alive();
        if let Some(lease) = self.lease(who, key) {
            lease.answers = match local < flight.call.deadline {
                true => [Some(acquired), None],
                false => [lease.answers[0], Some(acquired)],
            };
            if let Acquired::Queued { pause, .. } = acquired {
                lease.alive = lease.alive.max(Some(alive));
                let paused = pause.map(|left| (flight.sent + left, local));
                lease.paused = if local < flight.call.deadline {
                    paused
                } else {
                    lease.paused
                };
            }
        }
        if let Acquired::Granted { .. } = acquired {
            self.note_held(who, (flight, key, lasts), local);
        }
    }

    /// A caller receives an event. Checks that it fits the state of the claim and is justified.
    pub(super) fn received(
        &mut self,
        who: Who,
        event: Event,
        context: &EventContext<'_>,
    ) -> Verdict {
        let says = |what: &str| format!("p{} receives {event:?}, {what}", who.0);
        let Some(record) = self.records.get(&who) else {
            return check(false, "events", || says("which no caller has claimed"));
        };
        let expected = match event {
            Event::Lost(_) => State::Holds,
            Event::Regained(..) if record.is_degraded => record.state,
            Event::Regained(..) => State::Lost,
            Event::Granted(..) | Event::Refused(..) => State::Waits,
            Event::Revoked(_) if record.state == State::Lost => State::Lost,
            Event::Revoked(_) | Event::Released(_) | Event::GivenUp(..) => State::Holds,
            Event::Degraded(_) => record.state,
        };
        check(record.state == expected, "events", || {
            says(&format!("but {:?}", record.state))
        })?;
        let is_whole = |tokens: &[u64]| {
            let count = tokens.iter().filter(|token| **token > 0).count();
            count == record.claim.levels().count()
        };
        match event {
            Event::Granted(_, [0, rest @ ..]) => {
                check(rest.iter().all(|token| *token == 0), "the truth", || {
                    says("admitted at one level, and granted at another")
                })?;
                let mut left = self.left_of_pauses(who.0, record, context.local);
                check(left.next().is_none(), "a pause", || {
                    says("but its process has paused a level")
                })?;
            }
            Event::Granted(_, tokens) | Event::Regained(_, tokens) => {
                check(is_whole(&tokens), "the truth", || {
                    says("without a token of each level")
                })?;
                // If only a growth was degraded, and was given up since, the tokens stay the same.
                let is_again = record.is_degraded && tokens == record.tokens;
                check(
                    tokens > record.tokens || is_again || context.repeats,
                    "S3",
                    || says(&format!("after {:?}", record.tokens)),
                )?;
                let until = record.earliest(|lease| lease.until.max(lease.alive));
                let mut tokens = tokens.iter().filter(|token| **token > 0);
                let given = tokens.all(|token| context.tokens.contains(token));
                check(given, "the truth", || {
                    says("but that token was never given")
                })?;
                check(until > Some(context.local), "S2", || {
                    says("but its time is over")
                })?;
                let is_stale = record.is_stale(event) && !context.repeats;
                check(!is_stale, "the truth", || {
                    says("but after that grant an answer was that it waits")
                })?;
            }
            Event::Refused(_, why) => {
                let is_justified = self.is_justified(who, record, why, context);
                check(is_justified, "the truth", || {
                    says(&format!("for which it has no reason: {record:?}"))
                })?;
            }
            Event::Degraded(_) => {
                let is_kept = context.process.settings.policy != Policy::Refuse;
                let is_over = record.state == State::Over;
                check(is_kept && !is_over, "the truth", || {
                    says("but its policy is to lose it")
                })?;
                let ago = self.settings.lease + RECOVERY;
                let since = match record.state {
                    State::Waits => record.asked,
                    _ => context.local.saturating_sub(ago),
                };
                // A call that was sent in time may be answered too late.
                let is_late = record.state != State::Waits && is_under_way(who, record, context);
                check(
                    is_late || self.was_silent(who.0, record, since, context),
                    "the truth",
                    || says("though its servers answer"),
                )?;
                let is_denied =
                    record.state == State::Waits && self.is_denied(who.0, record, context);
                check(!is_denied, "the truth", || {
                    says("though its server refuses connections, which is no outage")
                })?;
            }
            Event::Released(_) | Event::GivenUp(..) => {}
            Event::Revoked(_) => {
                check(record.revoked.is_some(), "the truth", || {
                    says("but no operator has revoked it")
                })?;
            }
            Event::Lost(_) if self.is_closed(who.0) => {}
            Event::Lost(_) => {
                let until = record
                    .earliest(|lease| lease.counts_until)
                    .unwrap_or_default();
                // A core ends a permit a little before the server does.
                let is_over = context.local + self.settings.lease / 10 >= until;
                let mut leases = record.leases.iter();
                let is_refused = leases.any(|lease| lease.answers.into_iter().any(is_refusal));
                let is_strict = record.claim.levels().any(|level| level.is_strict);
                let mut leases = record.leases.iter();
                let is_not_found = is_strict && leases.any(|lease| lease.is_not_found);
                let is_kept_away = record.leases.iter().any(|lease| lease.meets_foreign_key);
                let is_known = is_refused || is_not_found || is_kept_away;
                check(is_over || is_known, "too early", || {
                    says("although its server has not refused it yet")
                })?;
                let since = context.local.saturating_sub(self.settings.lease);
                let has_cause = is_refused
                    || is_not_found
                    || self.was_poisoned(record, self.settings.lease * 2, context)
                    || is_under_way(who, record, context)
                    || self.was_silent(who.0, record, since, context);
                check(has_cause, "a loss", || says("though its server answers"))?;
            }
        }
        self.note(who, event, context);
        Ok(())
    }

    /// Changes the state of a claim as an event demands.
    fn note(&mut self, who: Who, event: Event, context: &EventContext<'_>) {
        let is_closed = self.is_closed(who.0);
        let Some(record) = self.records.get_mut(&who) else {
            return;
        };
        record.state = match event {
            Event::Lost(_) if is_closed => State::Over,
            Event::Granted(..) | Event::Regained(..) => State::Holds,
            Event::Degraded(_) => {
                record.is_degraded = true;
                let keys = record.levels().map(|level| level.key);
                return self.admitted.extend(keys);
            }
            Event::Lost(_) => State::Lost,
            Event::Refused(..) | Event::Revoked(_) | Event::Released(_) | Event::GivenUp(..) => {
                State::Over
            }
        };
        record.was_granted |= matches!(event, Event::Granted(..));
        if let Event::Granted(_, tokens) | Event::Regained(_, tokens) = event {
            record.tokens = tokens;
        }
        record.is_degraded &= !matches!(event, Event::Regained(..));
        record.room_since = None;
        record.is_released = matches!(event, Event::Refused(..));
        // If no answer grants the lease now, a message did.
        for lease in &mut record.leases {
            let waited = matches!(lease.answers[0], Some(Acquired::Queued { .. }));
            if record.state == State::Holds && (waited || lease.until <= Some(context.local)) {
                lease.until = lease.alive;
            }
        }
        record.is_dazed = is_dazed(context.process, context.now);
    }

    /// True if the reason of a refusal is correct.
    fn is_justified(
        &self,
        who: Who,
        record: &Record,
        why: Refusal,
        context: &EventContext<'_>,
    ) -> bool {
        let local = context.local;
        let mut answered = record.leases.iter().flat_map(|lease| {
            let answers = lease.answers.iter().flatten();
            answers.map(|answer| (&lease.levels, answer))
        });
        match why {
            Refusal::Full => {
                let is_full = answered.any(|(levels, answer)| match answer {
                    Acquired::Full { level } => levels[*level].wait.is_none(),
                    _ => false,
                });
                is_full || context.limits.is_too_heavy(who.0, &record.claim)
            }
            Refusal::QueueFull => {
                answered.any(|(_, answer)| matches!(answer, Acquired::QueueFull { .. }))
            }
            Refusal::TimedOut => answered.any(|(levels, answer)| match answer {
                Acquired::Full { level } | Acquired::Queued { level, .. } => {
                    let wait = levels[*level].wait;
                    wait.is_some_and(|wait| local >= record.asked + wait.time)
                }
                _ => false,
            }),
            Refusal::Paused(left) => {
                let is_answered = record.leases.iter().any(|lease| {
                    let mut answers = lease.answers.iter().flatten();
                    answers.any(|answer| match *answer {
                        Acquired::Paused { left: rest, .. } => rest == left,
                        Acquired::Queued {
                            level,
                            pause: Some(rest),
                            ..
                        } => {
                            let wait_ends = lease.levels[level]
                                .wait
                                .map(|wait| record.asked + wait.time);
                            let until = lease.paused.map(|(until, _)| until);
                            rest == left && wait_ends < until
                        }
                        _ => false,
                    })
                });
                let mut own = self.left_of_pauses(who.0, record, local);
                let is_own = own.any(|own| own == left);
                is_answered
                    || is_own
                        && self.was_silent(
                            who.0,
                            record,
                            record.asked.saturating_sub(RECOVERY),
                            context,
                        )
            }
            Refusal::Closed => self.is_closed(who.0),
            Refusal::Failed => {
                let mut keys = record.claim.levels().map(|level| level.key);
                // Its process may not know where the keys are.
                let may_misdirect = self.settings.slots.is_unknown(context.now)
                    || is_dazed(context.process, context.now);
                let is_denied = |server| self.denied.contains_key(&(who.0, server));
                let mut servers = 0..self.settings.servers;
                self.was_poisoned(record, self.settings.timeout, context)
                    || self.untimed(who.0, record, context.calls).next().is_some()
                    || may_misdirect
                        && servers
                            .clone()
                            .any(|server| !context.calls.is_timed(who.0, server))
                    || keys.any(|key| is_denied(self.settings.server_of(key)))
                    || may_misdirect && servers.any(is_denied)
            }
            Refusal::Revoked => record.revoked.is_some() || self.is_orphan(who),
            Refusal::Unavailable | Refusal::Congested => {
                // Answers that are slow, but each in time, may together take the whole budget.
                let budget = record.claim.longest_wait() + self.settings.timeout * 2;
                let is_spent = local >= record.asked + budget && is_under_way(who, record, context);
                // While a server is unwell, a claim may find no room in its share.
                let ago = match context.process.settings.policy.shares() {
                    true => RECOVERY,
                    false => Duration::ZERO,
                };
                let since = record.asked.saturating_sub(ago);
                let is_cut_off = is_spent || self.was_silent(who.0, record, since, context);
                // Nothing can be sent to a server whose time is not known. That is a fault of the server, not
                // congestion. A process that was suspended may not know that its keys have moved to such a server.
                let is_congested = self.untimed(who.0, record, context.calls).count()
                    < record.leases.len()
                    || self.settings.slots.is_unknown(context.now)
                    || record.was_dazed;
                is_cut_off && (why == Refusal::Unavailable || is_congested)
            }
        }
    }

    /// The leases of a claim on servers that have not reported their time.
    fn untimed<'a>(
        &'a self,
        at: usize,
        record: &'a Record,
        calls: &'a Calls,
    ) -> impl Iterator<Item = &'a Lease> {
        let leases = record.leases.iter();
        leases.filter(move |lease| {
            let server = self.settings.server_of(lease.levels[0].key);
            !calls.is_timed(at, server)
        })
    }

    /// The releases of a permit are complete. Checks that a permit that was held until then was granted before.
    pub(super) fn given_up(&self, who: Who, was_held: bool) -> Verdict {
        let record = self.records.get(&who);
        let was_granted = record.is_none_or(|record| record.was_granted);
        check(was_granted || !was_held, "the truth", || {
            format!("{who:?} was held until its release, which was never granted: {record:?}")
        })
    }

    /// Checks that the queues of a process without claims name no lease. While a server does not report its time,
    /// nothing can be sent to it. Then they may name some.
    pub(super) fn check_memory(&self, at: usize, leases: usize, is_timed: bool) -> Verdict {
        let most = self.most.get(&at).copied().unwrap_or_default();
        let most = if is_timed { 0 } else { SPARE_LEASES + 2 * most };
        check(leases <= most, "memory", || {
            format!("p{at} names {leases} leases that are over, and may name {most}")
        })
    }

    /// True if a key of a claim had another program's value within the last `ago`.
    fn was_poisoned(&self, record: &Record, ago: Duration, context: &EventContext<'_>) -> bool {
        let mut ends = record
            .levels()
            .filter_map(|level| self.settings.slots.poisoned(level.key));
        ends.any(|end| context.now <= end + ago)
    }

    /// True if a claim is a growth, and its permit is over or revoked.
    fn is_orphan(&self, who: Who) -> bool {
        let parent = self.weights.parent(who);
        let parent = parent.and_then(|parent| self.records.get(&parent));
        parent.is_some_and(|parent| parent.state == State::Over || parent.revoked.is_some())
    }

    /// True if a process may have been unable to reach a server of a claim, or got no answer, after `since`. This
    /// includes a process that was suspended, and slots that are moving.
    fn was_silent(
        &self,
        at: usize,
        record: &Record,
        since: Time,
        context: &EventContext<'_>,
    ) -> bool {
        let mut keys = record.claim.levels().map(|level| level.key);
        let is_silent = |server| self.is_silent(at, server, since, context);
        let is_dazed = record.was_dazed || is_dazed(context.process, context.now);
        let is_moving = self.settings.slots.is_unknown(context.now);
        is_dazed || is_moving || keys.any(|key| is_silent(self.settings.server_of(key)))
    }

    /// True if each server of a claim that its process cannot reach has refused it a connection, and no call has failed
    /// since.
    fn is_denied(&self, at: usize, record: &Record, context: &EventContext<'_>) -> bool {
        let may_misdirect = self.settings.slots.is_unknown(context.now)
            || record.was_dazed
            || is_dazed(context.process, context.now);
        let servers = record.claim.levels();
        let servers = servers.map(|level| self.settings.server_of(level.key));
        let mut silent =
            servers.filter(|server| self.is_silent(at, *server, record.asked, context));
        let is_denied = |server| {
            let denied = self.denied.get(&(at, server));
            let is_last = |denied| self.failures.get(&(at, server)) <= Some(denied);
            denied.is_some_and(is_last) && !is_unanswered(at, server, context)
        };
        !may_misdirect && silent.all(is_denied)
    }

    fn is_silent(&self, at: usize, server: usize, since: Time, context: &EventContext<'_>) -> bool {
        let mut runtimes = 0..self.settings.runtimes;
        runtimes.any(|runtime| !context.process.links[self.settings.link(runtime, server)].is_up)
            || self.failures.get(&(at, server)) >= Some(&since)
            // No call to it was answered since.
            || self.failures.get(&(at, server)) > self.answers.get(&(at, server))
            || is_unanswered(at, server, context)
    }

    /// A server has run a script. Notes the leases that it refused, which it no longer holds.
    pub(super) fn ran(&mut self, run: &Run) {
        for (key, wanted, outcome) in effect::acquired(run) {
            let is_refused = matches!(
                outcome,
                LevelOutcome::Full
                    | LevelOutcome::QueueFull
                    | LevelOutcome::Paused
                    | LevelOutcome::Nothing
            );
            if let Some(lease) = self.lease((run.process, wanted.id.permit()), key) {
                lease.is_refused = is_refused;
            }
        }
    }

    /// Checks that the holders of a key, as far as they know, stay within the limit, in processes that run. A lease
    /// whose semaphore was lost is excused: if that semaphore has no room, the server refuses the whole lease, which
    /// frees its units of the other semaphores before the holder learns of it.
    pub(super) fn check_overlap(
        &self,
        (key, highest): (Key, u32),
        is_disturbed: impl Fn(Key) -> bool,
    ) -> Verdict {
        let holders = self.records.values();
        let holders = holders.filter(|record| {
            record.state == State::Holds && !record.is_dazed && record.revoked.is_none()
        });
        let is_lost = |lease: &&Lease| {
            let mut levels = lease.levels.iter();
            lease.is_refused && levels.any(|level| is_disturbed(level.key))
        };
        let leases = holders.flat_map(|record| &record.leases);
        let leases = leases.filter(|lease| !is_lost(lease));
        let levels = leases.flat_map(|lease| lease.levels.iter());
        let levels = levels.filter(|level| level.key == key);
        let limit = levels.clone().map(|level| level.limit.max(highest)).max();
        let units: u32 = levels.map(|level| level.weight).sum();
        check(
            is_disturbed(key) || self.admitted.contains(&key) || units <= limit.unwrap_or(0),
            "S1",
            || format!("callers hold {units} units of key {key}, of {limit:?}"),
        )
    }

    /// Checks that every caller is notified in time.
    pub(super) fn pass(
        &mut self,
        processes: &[Process],
        servers: &[Server],
        now: Duration,
        (calls, limits): (&Calls, &Limits),
    ) -> Verdict {
        for (who, record) in &mut self.records {
            let process = &processes[who.0];
            let moment = Moment {
                who: *who,
                process,
                local: process.local(now),
                servers,
                now,
                failures: &self.failures,
                closed: self.closed.get(&who.0).copied(),
                calls,
                limits,
            };
            record.pass(&moment)?;
        }
        Ok(())
    }
}

fn is_refusal(answer: Option<Acquired>) -> bool {
    matches!(
        answer,
        Some(Acquired::Full { .. } | Acquired::QueueFull { .. } | Acquired::Paused { .. })
    )
}

fn is_loading(answer: &Answer) -> bool {
    matches!(answer, Answer::Error(Refused::Loading))
}

/// True if a call to a server has passed its deadline without an answer.
fn is_unanswered(at: usize, server: usize, context: &EventContext<'_>) -> bool {
    let mut own = context.flights.range((at, CallId(0))..(at + 1, CallId(0)));
    own.any(|(_, flight)| flight.call.server == server && flight.call.deadline <= context.local)
}

/// True if a call in flight names a permit.
fn is_under_way(who: Who, record: &Record, context: &EventContext<'_>) -> bool {
    context.flights.iter().any(|((at, _), flight)| {
        let mut ids = flight.call.commands.iter().flat_map(Command::ids);
        *at == who.0 && ids.any(|(_, id)| record.has_part(id.permit()))
    })
}
