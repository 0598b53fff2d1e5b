//! Checks of the calls themselves: none without work, nothing twice, nothing for a claim that is over.

use super::{Flight, Flights, GivenUp, LATE, Verdict, Who, check, is_dazed};
use crate::{
    process::Process,
    schedule::Schedule,
    subject::{
        Acquired, Answer, Call, CallId, Claim, Command, Failure, Id, Key, PermitId, Refused,
        Settings, Time,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The most arguments of a call: ElastiCache Serverless accepts no more.
const MOST_ARGS: usize = 3_999;

/// With this many units in flight, everything waits for an answer.
const MANY_UNITS: usize = 12_000;

/// With this many calls in flight, polls wait for an answer.
const FEW_CALLS: usize = 4;

/// With this many calls in flight, releases wait too.
const MANY_CALLS: usize = 8;

/// With this many calls in flight, everything waits.
const MOST_CALLS: usize = 16;

/// How long a semaphore counts as full after an answer that left no room, at least.
const FULL_PERIOD: Duration = Duration::from_secs(5);

/// How long a process may wait after a call that failed, before it sends the next one.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The calls sent for a lease, and their results.
#[derive(Debug, Default)]
struct LeaseCalls {
    keys: Vec<Key>,
    /// The serial of its id. A lost lease may come back under another id, and is released under this one.
    serial: u64,
    /// The first and the last of its units of each semaphore.
    units: BTreeMap<Key, (u32, u32)>,
    /// True if some of its units were released, so that an acquire would bring them back.
    is_split: bool,
    /// True if it is the last lease of its claim: once it is granted, the claim is whole.
    is_widest: bool,
    /// True once all leases of its claim have been granted.
    is_whole: bool,
    /// True if it is a new id although the lease is held under an earlier one, as far as calls up to `confirmed` show.
    is_needless: bool,
    /// When the last call was sent whose timely answer confirmed that the server holds it.
    confirmed: Time,
    /// True once its claim was refused, or its caller has given it up.
    is_over: bool,
    /// Since when a call for it is due because its server has lost other leases.
    recheck: Option<Time>,
    /// Since when a call for it is due, because a message has reported its grant and no answer has done so yet.
    reported: Option<Time>,
    /// After a call that did not run, or may not have: when the next one is due.
    retry_at: Time,
    /// When the last call to acquire or refresh it was sent.
    last_call: Time,
    /// When that call is answered, or its deadline.
    last_call_ends: Time,
    /// True once an acquire of it was sent.
    was_sent: bool,
    /// When the last acquire that granted it was sent.
    last_grant: Time,
    /// When the last acquire after which it waited was sent.
    last_wait: Time,
    /// True if its server did not find it, and has not granted it since.
    is_lost: bool,
    /// True while its caller holds it. A message may have granted it while a call refuses it.
    was_granted: bool,
    /// True once a release of it was sent.
    was_released: bool,
    /// True if it was released although its claim was not over. Its core may not know which of its acquires have run.
    is_given_back: bool,
    /// When its caller gave it up, until a release is sent.
    due: Option<Time>,
    /// Until when a semaphore of it counts as full, because the last answer left no room for another such claim.
    full_until: Time,
    /// True if it counted as full when its caller gave it up, so that its release is sent at once instead of with other
    /// work.
    is_urgent: bool,
    /// When it ends on the server, unless another call acquires or refreshes it.
    expires: Time,
    /// Acquires without an answer, and until when each may run.
    may_run: BTreeMap<CallId, Time>,
    /// Acquires that may have run, as far as answers show. Once it is empty, no server has the lease.
    may_have_run: BTreeSet<CallId>,
    /// Releases in flight that were sent when no acquire could run any more.
    last_releases: BTreeSet<CallId>,
    /// True once such a release was answered, or an acquire was refused: no server has it.
    is_gone: bool,
    /// True once an answer has reported that an operator revoked it.
    is_revoked: bool,
    /// True if its core treats it and another of these records as one lease. See `part_renewed`.
    is_parted: bool,
}

/// How long a process may wait before it probes an unavailable server again.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// How long a process must keep to its share after the first answer of a server that was away.
const SHARE_PERIOD: Duration = Duration::from_secs(4);

/// A server as a process has seen it, by the process's clock.
#[derive(Debug, Default, Clone, Copy)]
struct ServerHistory {
    /// When a call last failed.
    failed: Time,
    /// When a call was last answered in time.
    worked: Time,
    /// When the last answered call was sent.
    last_answered_sent: Time,
    /// When it answered again after a failure.
    returned: Time,
    /// When the task that carried a call was last dropped.
    abandoned: Time,
    /// When a call of the keeper's thread last failed, regardless of answers over other connections.
    missed: Time,
    /// The same, but only if no later call was answered, so that the failure proves something about the server.
    outage: Time,
    /// When the first call after that outage was answered.
    outage_ended: Time,
    /// When the first call in the current row of failures was sent. `None`: the last call was answered.
    since: Option<Time>,
    /// When it took over a slot from a server that other processes may have found unavailable.
    took_over: Option<Time>,
}

/// The calls sent for the leases of each permit.
#[derive(Debug)]
pub(super) struct Calls {
    settings: Settings,
    seen: BTreeMap<(usize, usize), ServerHistory>,
    /// The servers that have reported their time, by process. Until a server has, a process sends it nothing else.
    timed: BTreeSet<(usize, usize)>,
    permits: BTreeMap<Who, Vec<LeaseCalls>>,
    /// The server of a moved slot, as far as a process knows, and since when it does. The keys are process and slot.
    places: BTreeMap<(usize, u16), (usize, Time)>,
}

impl Calls {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            settings: schedule.settings(0),
            seen: BTreeMap::new(),
            timed: BTreeSet::new(),
            permits: BTreeMap::new(),
            places: BTreeMap::new(),
        }
    }

    pub(super) fn asked(&mut self, who: Who, claim: Claim) {
        let leases = self.settings.leases(claim);
        let count = leases.len();
        let records = leases
            .into_iter()
            .enumerate()
            .map(|(number, levels)| LeaseCalls {
                keys: levels.iter().map(|level| level.key).collect(),
                units: levels
                    .iter()
                    .map(|level| (level.key, (1, level.weight)))
                    .collect(),
                serial: who.1.0,
                is_widest: number + 1 == count,
                ..LeaseCalls::default()
            });
        self.permits.insert(who, records.collect());
    }

    /// The leases of a permit.
    fn leases(&mut self, who: Who) -> impl Iterator<Item = &mut LeaseCalls> {
        self.permits.get_mut(&who).into_iter().flatten()
    }

    /// The lease of a process that has this id and semaphore. If its claim has the semaphore under an earlier id, the
    /// lease has a new id, and gets a new record.
    fn lease(&mut self, at: usize, (key, id): (Key, Id)) -> Option<&mut LeaseCalls> {
        let records = self.permits.get_mut(&(at, id.permit()))?;
        let has = |record: &LeaseCalls| record.keys.contains(&key);
        let own = records.iter().position(|record| {
            let is_one = has(record) && record.serial == id.serial;
            is_one && record.units[&key].0 == id.units.0
        });
        let Some(own) = own else {
            let mut others = records.iter_mut();
            let last = others.rfind(|record| has(record) && record.units[&key].0 == 1)?;
            let renewed = last.renewed(id.serial);
            records.extend(renewed);
            return records
                .last_mut()
                .filter(|record| record.serial == id.serial);
        };
        records.get_mut(own)
    }

    /// If an operator changes the limit of one semaphore of a lease, only that one gets another id. From then on it has
    /// a separate record.
    fn part_renewed(&mut self, at: usize, ids: &[(Key, Id)]) {
        for (key, id) in ids {
            let Some(records) = self.permits.get_mut(&(at, id.permit())) else {
                continue;
            };
            let keeps_id = |record: &LeaseCalls, other: &Key| {
                let mut named = ids.iter();
                named.any(|(key, named)| {
                    (key, named.permit(), named.serial) == (other, id.permit(), record.serial)
                })
            };
            let has_both = |record: &&mut LeaseCalls| {
                let is_older = record.keys.contains(key) && record.serial < id.serial;
                is_older && record.keys.iter().any(|other| keeps_id(record, other))
            };
            let mut own = records.iter_mut().rev();
            let part = own.find(has_both).map(|record| record.split_off(*key));
            records.extend(part);
        }
    }

    pub(super) fn over(&mut self, who: Who) {
        self.leases(who).for_each(|record| record.is_over = true);
    }

    /// A claim is granted, or a lost permit comes back if `is_back`. A growth does not come back with its permit if it
    /// has no answer yet, or if its last refresh did not find it.
    pub(super) fn granted(&mut self, who: Who, is_back: bool) {
        let returns = |record: &LeaseCalls| record.is_whole && !record.is_lost;
        let is_it = |record: &&mut LeaseCalls| !record.is_over && (!is_back || returns(record));
        for record in self.leases(who).filter(is_it) {
            (record.was_granted, record.is_whole) = (true, true);
            record.reported = None;
        }
    }

    /// Checks that a claim that waited at a wider lease has acquired its narrower ones again after that. Their keys may
    /// have been paused during the wait.
    pub(super) fn check_granted(&mut self, who: Who) -> Verdict {
        let mut acquired = Time::MAX;
        for record in self.leases(who).filter(|record| !record.is_over) {
            let is_right = record.is_whole || acquired >= record.last_wait;
            check(is_right, "a pause", || {
                format!(
                    "a claim is granted that waited at a wider lease after it last acquired {record:?}"
                )
            })?;
            acquired = acquired.min(record.last_grant);
        }
        Ok(())
    }

    /// True if a release under this id was sent although the permit was not over.
    pub(super) fn is_given_back(&self, at: usize, (key, id): (Key, Id)) -> bool {
        let records = self.permits.get(&(at, id.permit()));
        let mut own = records.into_iter().flatten();
        own.any(|record| {
            let is_one = record.serial == id.serial && record.keys.contains(&key);
            // Units that were taken from a permit have another record.
            is_one && record.is_given_back && record.units[&key].0 == id.units.0
        })
    }

    /// A message has reported the grant of a waiting claim.
    pub(super) fn notified(&mut self, who: Who, local: Time) {
        if let Some([record]) = self.permits.get_mut(&who).map(Vec::as_mut_slice) {
            // If the lease has several levels, the message does not name the granted one.
            let waits = !record.is_over && !record.was_granted && record.keys.len() == 1;
            record.reported = waits.then_some(local);
        }
    }

    /// A permit is lost, or goes on without its server.
    pub(super) fn lost(&mut self, who: Who) {
        self.leases(who)
            .for_each(|record| record.was_granted = false);
    }

    /// A caller gives up units of a lease. The first `keep` units of the id stay.
    pub(super) fn shrunk(&mut self, who: Who, (key, keep): (Key, u32), local: Time) {
        let mut records = self.leases(who);
        let record = records.find(|record| !record.is_over && record.keys.contains(&key));
        let part = record.map(|record| record.shrink(key, keep, local));
        drop(records);
        self.permits.entry(who).or_default().extend(part);
    }

    /// A caller gives up a permit or a claim. A release is due if a server may know it.
    pub(super) fn mark_due(&mut self, who: Who, local: Time, flights: &Flights) {
        let own = flights.range((who.0, CallId(0))..(who.0 + 1, CallId(0)));
        let by_callers = own.filter(|(_, flight)| flight.call.runtime > 0);
        let is_quiet = by_callers.count() < FEW_CALLS;
        for record in self.leases(who) {
            record.is_urgent = is_quiet && local < record.full_until;
            let is_there = record.was_sent && !record.is_gone && !record.is_revoked;
            let is_known = is_there && !record.is_over && !record.was_released;
            record.due = is_known.then_some(local);
        }
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.permits.retain(|(process, _), _| *process != at);
    }

    fn of_process(&self, at: usize) -> impl Iterator<Item = (&Who, &LeaseCalls)> {
        let own = self.permits.range((at, PermitId(0))..(at + 1, PermitId(0)));
        own.flat_map(|(who, records)| records.iter().map(move |record| (who, record)))
    }

    /// A server that has lost one lease may have lost others. A refresh is due of each lease that no later call has
    /// named.
    fn recheck(&mut self, at: usize, flight: &Flight, local: Time) {
        let own = self
            .permits
            .range_mut((at, PermitId(0))..(at + 1, PermitId(0)));
        for record in own.flat_map(|(_, records)| records) {
            let is_here = self.settings.server_of(record.keys[0]) == flight.call.server;
            let is_held = record.was_granted && !record.is_over && record.may_run.is_empty();
            if is_here && is_held && record.last_call < flight.sent {
                record.recheck = record.recheck.or(Some(local));
            }
        }
    }

    /// A server has not answered, or a connection to it is lost.
    pub(super) fn failed(&mut self, at: usize, server: usize, local: Time) {
        let seen = self.seen.entry((at, server)).or_default();
        seen.failed = seen.failed.max(local);
        // A lost connection also starts a row of failures.
        seen.since.get_or_insert(local);
    }

    /// True if no call of a process to a server has failed since the last answer.
    pub(super) fn works(&self, at: usize, server: usize) -> bool {
        let seen = self.seen.get(&(at, server));
        seen.is_none_or(|seen| seen.failed <= seen.worked)
    }

    /// True if all servers have reported their time to a process.
    pub(super) fn are_timed(&self, at: usize) -> bool {
        let mut servers = 0..self.settings.servers;
        servers.all(|server| self.is_timed(at, server))
    }

    /// True if a server has reported its time to a process.
    pub(super) fn is_timed(&self, at: usize, server: usize) -> bool {
        self.timed.contains(&(at, server))
    }

    /// When a call to acquire or refresh a lease was last sent.
    pub(super) fn last_named(&self, who: Who, key: Key) -> Time {
        let own = self.permits.get(&who).into_iter().flatten();
        let own = own.filter(|record| record.keys.contains(&key));
        own.map(|record| record.last_call).max().unwrap_or_default()
    }

    /// When a call of the keeper's thread of a process to a server last failed.
    pub(super) fn missed(&self, at: usize, server: usize) -> Time {
        let seen = self.seen.get(&(at, server));
        seen.map_or(Time::ZERO, |seen| seen.missed)
    }

    /// True if a process must assume that others may have found a server unavailable.
    pub(super) fn is_unwell(&self, at: usize, server: usize, local: Time) -> bool {
        let seen = self.seen.get(&(at, server)).copied().unwrap_or_default();
        let is_back = seen.outage_ended > seen.outage && local > seen.outage_ended + SHARE_PERIOD;
        let was_out = seen.outage > Time::ZERO && local > seen.outage + LATE && !is_back;
        let takes_over = seen
            .took_over
            .is_some_and(|then| local <= then + SHARE_PERIOD);
        was_out || takes_over
    }

    /// A server has refused a connection. A core treats that as an answer.
    pub(super) fn denied(&mut self, at: usize, server: usize, local: Time) {
        let seen = self.seen.entry((at, server)).or_default();
        seen.last_answered_sent = local;
    }

    /// The server that has a slot, as far as a process knows.
    fn server_of_slot(&self, at: usize, slot: u16) -> usize {
        let known = self.places.get(&(at, slot));
        known.map_or_else(
            || self.settings.first_home(slot.into()),
            |(server, _)| *server,
        )
    }

    /// The server that has a semaphore, as far as a process knows.
    pub(super) fn server_of(&self, at: usize, key: Key) -> usize {
        self.server_of_slot(at, self.settings.slot_of(key))
    }

    /// A process learns which server has a slot. A server that takes over a slot does not know which claims were
    /// admitted without the old server.
    pub(super) fn placed(&mut self, at: usize, (slot, server): (u16, usize), local: Time) {
        let before = self.server_of_slot(at, slot);
        if before != server && self.is_unwell(at, before, local) {
            let seen = self.seen.entry((at, server)).or_default();
            seen.took_over = Some(local);
        }
        if before != server {
            self.places.insert((at, slot), (server, local));
        }
    }

    /// Checks that a process sends a command to the server of its slot, as far as it knows, or to the server to which
    /// the slot is moving.
    fn check_server(&self, at: usize, call: &Call, local: Time) -> Verdict {
        for (script, command) in call.scripts.iter().zip(&call.commands) {
            let slots = command.ids().into_iter();
            let mut slots = slots.map(|(key, _)| self.settings.slot_of(key));
            let is_wrong = |slot| {
                let known = self.places.get(&(at, slot));
                known.is_some_and(|(server, since)| {
                    *server != call.server && local.saturating_sub(*since) > LATE
                })
            };
            check(script.is_asking || !slots.any(is_wrong), "slots", || {
                format!("p{at} asks server {} for {command:?}", call.server)
            })?;
        }
        Ok(())
    }

    /// A call has failed. This proves nothing about the server if a call that was sent later has been answered.
    fn call_failed(&mut self, at: usize, flight: &Flight, local: Time) {
        let server = flight.call.server;
        let seen = self.seen.entry((at, server)).or_default();
        if flight.call.runtime == 0 {
            seen.missed = seen.missed.max(local);
        }
        if flight.sent >= seen.last_answered_sent {
            seen.since = Some(
                seen.since
                    .map_or(flight.sent, |since| since.min(flight.sent)),
            );
            if flight.call.runtime == 0 {
                seen.outage = seen.outage.max(local);
            }
            self.failed(at, server, local);
        }
    }

    /// A call was answered in time.
    fn call_answered(&mut self, at: usize, flight: &Flight, local: Time) {
        let seen = self.seen.entry((at, flight.call.server)).or_default();
        let was_silent = seen.last_answered_sent + self.settings.timeout <= local;
        seen.last_answered_sent = seen.last_answered_sent.max(flight.sent);
        if seen.failed >= seen.worked {
            seen.returned = local;
        }
        let ends = seen.since.take_if(|since| *since <= flight.sent).is_some();
        if ends && seen.outage_ended <= seen.outage {
            // The outage does not count if the core may not have noticed it: the answer came at the same moment, or
            // another answer came less than a timeout ago.
            let is_known = was_silent && local > seen.outage + LATE;
            (seen.outage, seen.outage_ended) =
                (if is_known { seen.outage } else { Time::ZERO }, local);
        }
        seen.worked = local;
    }

    /// Checks that a process keeps probing a server that does not work.
    fn check_probes(
        &self,
        process: &Process,
        (at, server): (usize, usize),
        now: Duration,
    ) -> Verdict {
        let link = &process.links[self.settings.link(0, server)];
        let seen = self.seen[&(at, server)];
        let is_unwell = seen.failed > seen.worked && link.is_up && !is_dazed(process, now);
        let pause = PROBE_INTERVAL + LATE;
        let could = link.since.max(process.suspended_until);
        let last = seen.failed.max(seen.abandoned);
        let is_late = process.local(now) > last + pause && now > could + pause;
        check(
            !is_unwell || !is_late || !link.in_flight.is_empty(),
            "L2",
            || format!("p{at} does not probe server {server}, which may be back"),
        )
    }

    /// Checks that calls that are due are sent at once if a connection is up: releases, polls after a message, and
    /// calls for leases that a server may have lost.
    pub(super) fn pass(
        &mut self,
        processes: &[Process],
        flights: &Flights,
        now: Duration,
    ) -> Verdict {
        for ((at, _), flight) in flights {
            let deadline = flight.call.deadline;
            if deadline <= processes[*at].local(now) {
                self.call_failed(*at, flight, deadline);
            }
        }
        for who in self.seen.keys() {
            self.check_probes(&processes[who.0], *who, now)?;
        }
        let all = self.permits.iter();
        let all = all.flat_map(|(who, records)| records.iter().map(move |record| (who, record)));
        for ((at, permit), record) in all {
            let process = &processes[*at];
            let recheck = record.recheck.filter(|_| !record.is_over);
            let recheck = recheck.map(|since| since.max(record.last_call_ends));
            let poll = record.reported_since(process.local(now));
            let Some(since) = record.due.or(recheck).or(poll) else {
                continue;
            };
            // The keeper's thread sends everything that no other call takes along.
            let server = self.settings.server_of(record.keys[0]);
            let link = &process.links[self.settings.link(0, server)];
            let most = if poll.is_some() {
                FEW_CALLS
            } else {
                MANY_CALLS
            };
            let units = flights.range((*at, CallId(0))..(*at + 1, CallId(0)));
            let units = units.filter(|(_, other)| other.call.server == server);
            let units: usize = units.map(|(_, other)| other.units()).sum();
            let has_room = link.in_flight.len() < most && units < MANY_UNITS;
            let could =
                has_room && link.is_up && now > link.since + LATE && !is_dazed(process, now);
            let is_over = process.local(now) > record.expires;
            // A server that has failed to answer gets only probes until it answers.
            let seen = self.seen.get(&(*at, server)).copied().unwrap_or_default();
            let could = could && seen.failed <= seen.worked && self.is_timed(*at, server);
            let known = self.settings.slots.known(record.keys[0]);
            let could = could && now >= known;
            let since = since.max(seen.returned).max(process.local(known.min(now)));
            // If the slot has moved, a call that failed at the old server waits for its retry before it goes to the new
            // one.
            let has_moved = known > Duration::ZERO;
            let since = since.max(if has_moved { record.retry_at } else { since });
            let is_urgent = record.due.is_some() && record.is_urgent;
            let late = if is_urgent { Duration::ZERO } else { LATE };
            let is_late = could && !is_over && process.local(now) > since + late;
            check(!is_late, "L2", || {
                format!(
                    "p{at} does not release {permit:?}, or refresh it, or poll for it: {record:?}"
                )
            })?;
        }
        Ok(())
    }

    /// Units that a process has given up, and that no call in flight can bring back.
    pub(super) fn given_up(&self, at: usize) -> Vec<GivenUp> {
        let given_up = self.of_process(at).filter(|(_, record)| {
            let is_over = record.is_over && record.was_sent && !record.is_gone;
            is_over && record.may_run.is_empty()
        });
        given_up
            .flat_map(|(_, record)| {
                let units = record.units.iter();
                units.map(|(key, units)| (*key, record.serial, *units))
            })
            // While another program's value is in a key, units cannot be released. After that they are lost.
            .filter(|(key, ..)| self.settings.slots.poisoned(*key).is_none())
            .collect()
    }

    /// A process sends a call. Checks the call, and each id that it names.
    pub(super) fn sent(
        &mut self,
        at: usize,
        call: &Call,
        local: Time,
        flights: &Flights,
    ) -> Verdict {
        check(!call.commands.is_empty(), "work", || {
            "a call without a command".to_owned()
        })?;
        check(call.deadline > local, "work", || {
            "a call without time".to_owned()
        })?;
        let others = flights.range((at, CallId(0))..(at + 1, CallId(0)));
        let count = others.filter(|(_, other)| {
            let is_same = (other.call.runtime, other.call.server) == (call.runtime, call.server);
            is_same && other.call.deadline > local
        });
        check(count.count() < MOST_CALLS, "flow", || {
            format!("p{at} has more than {MOST_CALLS} calls in flight")
        })?;
        self.check_server(at, call, local)?;
        for command in call.commands.iter().filter(|command| !is_release(command)) {
            self.part_renewed(at, &command.ids());
        }
        for command in &call.commands {
            let ids = command.ids();
            check_size(command, &ids)?;
            let mut slots = ids.iter().map(|(key, _)| self.settings.slot_of(*key));
            let is_one = slots
                .next()
                .is_none_or(|first| slots.all(|slot| slot == first));
            check(is_one, "slots", || {
                format!("{command:?} names several slots")
            })?;
            for (key, id) in &ids {
                self.check_id((at, call.id, command), (*key, *id), (local, flights))?;
                self.note(at, call, command, (*key, *id), local);
            }
        }
        Ok(())
    }

    /// Checks that a process has at most one probe of a server under way. This applies until the process is closed.
    pub(super) fn check_probe(
        &self,
        (at, process): (usize, &Process),
        call: &Call,
        (local, flights): (Time, &Flights),
    ) -> Verdict {
        let is_probe = |call: &Call| matches!(call.commands.last(), Some(Command::Clock { .. }));
        // Events that came while the process was suspended may have started a second probe.
        let is_judged = process.suspended_until == Duration::ZERO;
        let mut others = flights.range((at, CallId(0))..(at + 1, CallId(0)));
        let other = others.find(|(_, other)| {
            let is_under_way = is_judged && other.call.deadline > local;
            is_under_way && other.call.server == call.server && is_probe(&other.call)
        });
        check(other.is_none() || !is_probe(call), "flow", || {
            format!("p{at} sends a second probe to server {}", call.server)
        })
    }

    /// Checks that a command may name an id now.
    fn check_id(
        &mut self,
        (at, call, command): (usize, CallId, &Command),
        (key, id): (Key, Id),
        (local, flights): (Time, &Flights),
    ) -> Verdict {
        let says = |what: &str| format!("p{at} {call:?} {what} {:?}", id.permit());
        let alive = self.settings.alive();
        // A core assumes the end of a lease a little before the server does.
        let known = self.settings.lease * 9 / 10;
        let Some(record) = self.lease(at, (key, id)) else {
            return check(false, "ids", || says("names what no caller has claimed,"));
        };
        if let Command::Release { .. } = command {
            check(record.was_sent, "work", || {
                says("releases what it never sent,")
            })?;
            // A release of it over another connection may still be under way.
            let mut own = flights.range((at, CallId(0))..(at + 1, CallId(0)));
            let is_release = |command: &Command| matches!(command, Command::Release { .. });
            let is_under_way = own.any(|(_, flight)| {
                let mut releases = flight
                    .call
                    .commands
                    .iter()
                    .filter(|command| is_release(command));
                releases.any(|command| command.ids().contains(&(key, id)))
            });
            let is_once = !record.is_gone || record.is_parted || is_under_way;
            return check(is_once, "work", || says("releases once more"));
        }
        check(!record.is_over, "an end", || {
            says("acquires or refreshes what is over,")
        })?;
        let is_short = command.lasts() <= alive;
        check(
            record.is_whole || record.is_widest || is_short,
            "a dead waiter",
            || says("holds for a lease, though its claim is not whole,"),
        )?;
        let keys = record.keys.clone();
        // With no newer answer, its process assumes that the lease has ended.
        record.is_needless &= local < record.confirmed + known;
        check(!record.is_needless, "ids", || {
            says("names under a new id what it still has,")
        })?;
        let is_right = record.units[&key] == id.units;
        let is_acquire = matches!(command, Command::Acquire { .. });
        check(
            is_right && !(is_acquire && record.is_split),
            "an end",
            || says("acquires or refreshes units that were given up,"),
        )?;
        check(!is_acquire || !record.was_released, "an end", || {
            says("acquires under an id that was released,")
        })?;
        let others = flights.range((at, CallId(0))..(at + 1, CallId(0)));
        let is_alone = !others
            .clone()
            .any(|(_, other)| names_lease(other, (&keys, id), local));
        check(is_alone, "one call", || says("names, beside another call,"))
    }

    /// Notes that a call with an id is sent.
    fn note(
        &mut self,
        at: usize,
        call: &Call,
        command: &Command,
        (key, id): (Key, Id),
        local: Time,
    ) {
        let Some(record) = self.lease(at, (key, id)) else {
            return;
        };
        if let Command::Release { .. } = command {
            (record.was_released, record.due) = (true, None);
            record.is_given_back |= !record.is_over;
        } else {
            record.expires = record.expires.max(call.deadline + command.lasts());
            (record.recheck, record.last_call, record.last_call_ends) =
                (None, local, call.deadline);
        }
        match command {
            Command::Acquire { .. } => {
                (record.was_sent, record.reported) = (true, None);
                (record.is_gone, record.is_revoked) = (false, false);
                record.may_run.insert(call.id, call.deadline);
                record.may_have_run.insert(call.id);
            }
            Command::Release { .. } if record.may_run.values().all(|end| *end <= local) => {
                record.last_releases.insert(call.id);
            }
            _ => {}
        }
    }

    /// A process receives an answer. Notes the result for each id in the call.
    pub(super) fn replied(
        &mut self,
        at: usize,
        flight: &Flight,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
    ) {
        // A core may ignore answers after the deadline.
        let is_timely = local < flight.call.deadline;
        let is_error = |answer: &Answer| matches!(answer, Answer::Error(Refused::Loading));
        match reply {
            Err(Failure::Abandoned) => {
                let seen = self.seen.entry((at, flight.call.server)).or_default();
                seen.abandoned = local;
            }
            Ok(answers) if is_timely && !answers.iter().any(is_error) => {
                self.call_answered(at, flight, local);
            }
            _ => self.call_failed(at, flight, local),
        }
        let has_time = |answer: &Answer| {
            matches!(
                answer,
                Answer::Clock(..) | Answer::Late(_) | Answer::Acquired(..)
            )
        };
        if is_timely && reply.iter().flatten().any(has_time) {
            self.timed.insert((at, flight.call.server));
        }
        if is_timely && has_lost(flight, reply) {
            self.recheck(at, flight, local);
        }
        for (number, command) in flight.call.commands.iter().enumerate() {
            let answer = reply.as_ref().map(|answers| answers.get(number));
            if let (true, Ok(Some(Answer::Error(Refused::Moved(server))))) = (is_timely, answer) {
                for (key, _) in command.ids() {
                    self.placed(at, (self.settings.slot_of(key), *server), local);
                }
            }
            for (place, (key, id)) in command.ids().into_iter().enumerate() {
                let Some(record) = self.lease(at, (key, id)) else {
                    continue;
                };
                if is_timely && matches!((command, answer), (Command::Refresh { .. }, Ok(Some(_))))
                {
                    // The refresh has run by now.
                    record.expires = local + command.lasts();
                    record.confirmed = flight.sent.max(record.confirmed);
                }
                if !is_release(command) {
                    record.last_call_ends = record.last_call_ends.min(local);
                }
                let is_lost = matches!(
                    (command, answer),
                    // The answer proves nothing about a lease that had more units when the call was sent.
                    (Command::Refresh { .. }, Ok(Some(Answer::Held(each))))
                        if !each[place] && record.units[&key] == id.units
                );
                record.was_granted &= !is_lost;
                record.is_lost |= is_lost;
                let may_run = matches!(
                    answer,
                    Err(Failure::Broken | Failure::Abandoned | Failure::Unconfirmed)
                );
                if !may_run && !record.is_given_back {
                    record.may_run.remove(&flight.call.id);
                }
                let has_run =
                    matches!(answer, Ok(Some(answer)) if !matches!(answer, Answer::Error(_)));
                if !has_run {
                    record.retry_at = local + RETRY_DELAY;
                }
                if is_timely && is_acquire(command) && has_not_run(answer) {
                    record.may_have_run.remove(&flight.call.id);
                    record.is_gone |= record.may_have_run.is_empty();
                }
                // An older acquire may run after this call.
                let may_follow = record.may_run.values().any(|end| *end > flight.sent);
                let may_hold = may_follow || record.was_granted;
                let acquired = acquired(command, answer, (key, id)).filter(|_| is_timely);
                match acquired {
                    Some(Acquired::Granted { .. }) => {
                        record.confirmed = flight.sent.max(record.confirmed);
                        record.last_grant = flight.sent.max(record.last_grant);
                    }
                    Some(Acquired::Queued { .. }) => {
                        record.last_wait = flight.sent.max(record.last_wait);
                    }
                    _ => {}
                }
                if acquired.is_some() {
                    record.is_lost &= !matches!(acquired, Some(Acquired::Granted { .. }));
                    let waits = matches!(acquired, Some(Acquired::Queued { .. }));
                    record.reported = record.reported.filter(|_| waits).map(|_| local);
                }
                if acquired.is_some() && record.serial == id.serial && !record.is_over {
                    let is_full = leaves_no_room(command, answer, id);
                    record.full_until = if is_full {
                        local + FULL_PERIOD
                    } else {
                        record.full_until
                    };
                }
                let acquired = acquired.filter(|_| !may_hold);
                if is_refused(acquired) {
                    record.is_gone = true;
                    record.may_have_run.clear();
                }
                // A revoked lease is not `is_gone`, because a core may still release it.
                let is_revoked = matches!(acquired, Some(Acquired::Revoked { .. }));
                let was_last = record.last_releases.remove(&flight.call.id);
                record.is_gone |= is_timely && was_last && answer == Ok(Some(&Answer::Released));
                record.is_revoked |= is_revoked;
                record.due = record.due.filter(|_| !record.is_gone && !is_revoked);
            }
        }
    }
}

impl LeaseCalls {
    /// Since when a poll is due because a message reported the grant, and no call of the lease is in flight.
    fn reported_since(&self, local: Time) -> Option<Time> {
        let last = self.may_run.values().max().copied().unwrap_or_default();
        let reported = self.reported.filter(|_| !self.is_over && last <= local);
        reported.map(|reported| reported.max(last).max(self.retry_at))
    }

    /// Keeps only the first `keep` units of a semaphore. Returns a record of the others, which must be released.
    fn shrink(&mut self, key: Key, keep: u32, local: Time) -> Self {
        let old = self.units.insert(key, (1, keep)).unwrap_or_default();
        self.is_split = true;
        Self {
            keys: vec![key],
            serial: self.serial,
            units: [(key, (keep + 1, old.1))].into(),
            is_over: true,
            was_sent: self.was_sent,
            due: self.was_granted.then_some(local),
            expires: self.expires,
            may_run: self.may_run.clone(),
            may_have_run: self.may_have_run.clone(),
            is_given_back: true,
            ..Self::default()
        }
    }

    /// Removes a semaphore, and returns a record of it.
    fn split_off(&mut self, key: Key) -> Self {
        self.keys.retain(|other| *other != key);
        self.is_parted = true;
        let units = self.units.remove(&key).unwrap_or_default();
        Self {
            keys: vec![key],
            serial: self.serial,
            units: [(key, units)].into(),
            is_widest: self.is_widest,
            is_whole: self.is_whole,
            last_wait: self.last_wait,
            was_sent: self.was_sent,
            is_lost: self.is_lost,
            was_granted: self.was_granted,
            expires: self.expires,
            may_run: self.may_run.clone(),
            may_have_run: self.may_have_run.clone(),
            // Its core treats all parts as one lease, so it applies answers for the others to this one.
            is_parted: true,
            ..Self::default()
        }
    }

    /// The units of each semaphore, numbered from 1 again.
    fn renewed_units(&self) -> BTreeMap<Key, (u32, u32)> {
        let units = self.units.iter();
        units
            .map(|(key, (first, last))| (*key, (1, last + 1 - first)))
            .collect()
    }

    /// Ends this record, and returns one for the same lease under a later id.
    fn renewed(&mut self, serial: u64) -> Option<Self> {
        let was_over = std::mem::replace(&mut self.is_over, true);
        (serial > self.serial).then(|| Self {
            keys: self.keys.clone(),
            serial,
            units: self.renewed_units(),
            is_needless: self.is_whole
                && self.was_granted
                && !was_over
                && !self.is_lost
                && !self.is_parted,
            confirmed: self.confirmed,
            // The claim has waited since its narrower leases were acquired, even if under another id.
            last_wait: self.last_wait,
            is_widest: self.is_widest,
            is_whole: self.is_whole,
            is_parted: self.is_parted,
            ..Self::default()
        })
    }
}

/// True if a server did not find a lease.
fn has_lost(flight: &Flight, reply: &Result<Vec<Answer>, Failure>) -> bool {
    let answers = reply.iter().flatten();
    let mut answers = flight.call.commands.iter().zip(answers);
    answers.any(|(command, answer)| match (command, answer) {
        (Command::Refresh { .. }, Answer::Held(each)) => each.contains(&false),
        _ => false,
    })
}

/// True if another call acquires or refreshes the lease, and may still be answered.
fn names_lease(other: &Flight, (keys, id): (&[Key], Id), local: Time) -> bool {
    let is_same = |(key, other): (Key, Id)| keys.contains(&key) && other.serial == id.serial;
    let mut commands = other.call.commands.iter();
    other.call.deadline > local
        && commands.any(|command| !is_release(command) && command.ids().into_iter().any(is_same))
}

/// True if an answer proves that its command did not run.
fn has_not_run(answer: Result<Option<&Answer>, &Failure>) -> bool {
    use Refused::{Again, Ask, Moved, NoScript, Unserved};
    matches!(
        answer,
        Ok(Some(
            Answer::Late(_) | Answer::Error(NoScript | Moved(_) | Ask(_) | Again | Unserved)
        )) | Err(Failure::NotConnected)
    )
}

fn is_acquire(command: &Command) -> bool {
    matches!(command, Command::Acquire { .. })
}

fn is_release(command: &Command) -> bool {
    matches!(command, Command::Release { .. })
}

/// True if an answer shows that the server no longer has anything of a lease.
fn is_refused(acquired: Option<Acquired>) -> bool {
    matches!(
        acquired,
        Some(Acquired::Full { .. } | Acquired::QueueFull { .. } | Acquired::Paused { .. })
    )
}

/// The answer to an acquire of a permit.
fn acquired(
    command: &Command,
    answer: Result<Option<&Answer>, &Failure>,
    (key, id): (Key, Id),
) -> Option<Acquired> {
    let (Command::Acquire { claims, .. }, Ok(Some(Answer::Acquired(_, each)))) = (command, answer)
    else {
        return None;
    };
    let mut own = claims.iter().zip(each).filter(|(claim, _)| {
        let mut levels = claim.iter();
        levels.any(|(other, wanted)| *other == key && wanted.id.serial == id.serial)
    });
    own.next().map(|(_, acquired)| *acquired)
}

/// True if an answered claim waits, or leaves no room for another claim like it.
fn leaves_no_room(command: &Command, answer: Result<Option<&Answer>, &Failure>, id: Id) -> bool {
    let (Command::Acquire { claims, .. }, Ok(Some(Answer::Acquired(_, each)))) = (command, answer)
    else {
        return false;
    };
    let mut all = claims.iter().zip(each);
    all.any(|(claim, acquired)| match acquired {
        Acquired::Granted { held, .. } => {
            let mut levels = claim.iter().zip(held);
            levels.any(|((_, wanted), held)| {
                let is_it = wanted.id.serial == id.serial;
                is_it && held + u64::from(wanted.id.weight) > wanted.id.limit.into()
            })
        }
        Acquired::Queued { .. } => claim
            .iter()
            .any(|(_, wanted)| wanted.id.serial == id.serial),
        _ => false,
    })
}

fn check_size(command: &Command, ids: &[(Key, Id)]) -> Verdict {
    if !matches!(command, Command::Clock { .. } | Command::Leave) {
        let names: BTreeSet<_> = ids
            .iter()
            .map(|(key, id)| (key, id.serial, id.units))
            .collect();
        let units: usize = ids.iter().map(|(_, id)| id.count() as usize).sum();
        check(!ids.is_empty(), "work", || {
            format!("{command:?} names nothing")
        })?;
        check(names.len() == ids.len(), "work", || {
            format!("{command:?} names one twice")
        })?;
        // About the number of keys and arguments: five for each id, one for each unit, and some for the command.
        let size = 8 + 5 * ids.len() + units;
        return check(size <= MOST_ARGS, "size", || {
            format!("some {size} arguments")
        });
    }
    Ok(())
}
