//! The calls themselves: none without work, nothing twice, nothing for a claim that is over.

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

/// The most arguments of a call.
const MOST_ARGS: usize = 3_999;

/// With so many units in flight everything waits for an answer.
const MANY_UNITS: usize = 12_000;

/// With so many calls in flight a poll waits for an answer, with so many a release, and with so many everything does.
const FEW_CALLS: usize = 4;
const MANY_CALLS: usize = 8;
const MOST_CALLS: usize = 16;

/// For how long a semaphore counts as full at least.
const FULL: Duration = Duration::from_secs(5);

/// The pause after a call that failed.
const PAUSE: Duration = Duration::from_millis(20);

/// What was sent for a lease.
#[derive(Debug, Default)]
struct Record {
    /// Its semaphores.
    keys: Vec<Key>,
    /// The serial of its id. One that was lost may come back under another, and is released under this one.
    serial: u64,
    /// The first and the last of the units that it has of each.
    units: BTreeMap<Key, (u32, u32)>,
    /// Whether some of them were released, so that an acquire would bring these back.
    is_split: bool,
    /// Whether it is the last one of its claim, which is whole with it.
    is_widest: bool,
    /// Whether its claim is whole.
    is_whole: bool,
    /// True if it got a new id while it was held under another, as far as calls up to `confirmed` show.
    is_needless: bool,
    /// When the last call was sent whose answer, in time, said that the server has it.
    confirmed: Time,
    /// Its claim was refused, or its caller has given it up.
    is_over: bool,
    /// Since when a call of it is due because its server has lost others.
    recheck: Option<Time>,
    /// Since when one is due because a message has told of its grant, and an answer that was under way has not.
    told: Option<Time>,
    /// Until when it pauses after a call that did not run, or may not have.
    pauses: Time,
    /// When the last call that acquires or refreshes it was sent, and until when that may have an answer.
    named: Time,
    answered: Time,
    was_sent: bool,
    /// When the last acquire was sent that has granted it, and the last one after which it waited.
    acquired: Time,
    waited: Time,
    /// Its server has not found it, and not granted it since.
    is_lost: bool,
    /// A message may have granted it, beside a call that refuses it.
    was_granted: bool,
    was_released: bool,
    /// It was given back while its claim waits. Its core may not know then which of its acquires have run.
    is_given_back: bool,
    /// When its caller gave it up, until a release is sent.
    due: Option<Time>,
    /// Until when a semaphore of it counts as full, because there was no room for another such claim when it was answered.
    full_until: Time,
    /// Whether it counted as full when its caller gave it up, and no call that was to come could take the release along.
    is_urgent: bool,
    /// When the server has forgotten it, if no call acquires or refreshes it any more.
    lasts: Time,
    /// Acquires without an answer, and until when each may run.
    may_run: BTreeMap<CallId, Time>,
    /// Releases in flight that were sent when no acquire could run any more.
    last_releases: BTreeSet<CallId>,
    /// Such a release was answered, or a refusal.
    is_gone: bool,
    /// An answer has said that an operator has revoked it.
    is_revoked: bool,
    /// Its core knows it with others as one lease.
    is_parted: bool,
}

/// How long a process may wait until it looks again whether a server is back.
const PROBES: Duration = Duration::from_millis(500);

/// How long after the first answer a process may not take more than its share yet.
const SETTLES: Duration = Duration::from_secs(4);

/// What a process has seen of a server, by its own clock.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    /// When the last call failed, and when the last one was answered in time.
    failed: Time,
    worked: Time,
    /// When the last one was sent that was answered.
    sent: Time,
    /// When it was answered again.
    returned: Time,
    /// When the task that carried a call was dropped last.
    abandoned: Time,
    /// When a call of the thread has failed last, whatever was answered over other connections.
    missed: Time,
    /// The same, if it tells of the server, and when the first one after that was answered.
    outage: Time,
    over: Time,
    /// When the first call was sent that has failed since.
    since: Option<Time>,
    /// When it took over from a server that others may have taken for unavailable.
    took_over: Option<Time>,
}

/// What was sent for the leases of each permit.
#[derive(Debug)]
pub(super) struct Calls {
    settings: Settings,
    seen: BTreeMap<(usize, usize), Seen>,
    /// The servers that have reported their time to a process. Nothing else is sent to the others.
    timed: BTreeSet<(usize, usize)>,
    permits: BTreeMap<Who, Vec<Record>>,
    /// Where a process knows a slot to be that has moved, and since when.
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
            .map(|(number, levels)| Record {
                keys: levels.iter().map(|level| level.key).collect(),
                units: levels
                    .iter()
                    .map(|level| (level.key, (1, level.weight)))
                    .collect(),
                serial: who.1.0,
                is_widest: number + 1 == count,
                ..Record::default()
            });
        self.permits.insert(who, records.collect());
    }

    /// The leases of a permit.
    fn leases(&mut self, who: Who) -> impl Iterator<Item = &mut Record> {
        self.permits.get_mut(&who).into_iter().flatten()
    }

    /// The lease of a process that has a semaphore, under this id.
    fn lease(&mut self, at: usize, (key, id): (Key, Id)) -> Option<&mut Record> {
        let records = self.permits.get_mut(&(at, id.permit()))?;
        let has = |record: &Record| record.keys.contains(&key);
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

    /// Under another limit one semaphore of a lease gets another id alone: it is a record of its own from now on.
    fn part_renewed(&mut self, at: usize, ids: &[(Key, Id)]) {
        for (key, id) in ids {
            let Some(records) = self.permits.get_mut(&(at, id.permit())) else {
                continue;
            };
            let keeps = |record: &Record, other: &Key| {
                let mut named = ids.iter();
                named.any(|(key, named)| {
                    (key, named.permit(), named.serial) == (other, id.permit(), record.serial)
                })
            };
            let is_one = |record: &&mut Record| {
                let is_older = record.keys.contains(key) && record.serial < id.serial;
                is_older && record.keys.iter().any(|other| keeps(record, other))
            };
            let mut own = records.iter_mut().rev();
            let part = own.find(is_one).map(|record| record.without(*key));
            records.extend(part);
        }
    }

    pub(super) fn over(&mut self, who: Who) {
        self.leases(who).for_each(|record| record.is_over = true);
    }

    /// The grant of a claim, or the return of a permit. A growth without an answer does not return with its permit, nor does
    /// one whose refresh found nothing.
    pub(super) fn granted(&mut self, who: Who, is_back: bool) {
        let returns = |record: &Record| record.is_whole && !record.is_lost;
        let is_it = |record: &&mut Record| !record.is_over && (!is_back || returns(record));
        for record in self.leases(who).filter(is_it) {
            (record.was_granted, record.is_whole) = (true, true);
            record.told = None;
        }
    }

    /// Checks that a claim has acquired its narrower leases after it has waited: their keys may have been paused then.
    pub(super) fn check_granted(&mut self, who: Who) -> Verdict {
        let mut acquired = Time::MAX;
        for record in self.leases(who).filter(|record| !record.is_over) {
            let is_right = record.is_whole || acquired >= record.waited;
            check(is_right, "a pause", || {
                format!(
                    "a claim is granted that has waited since its leases were acquired, {record:?}"
                )
            })?;
            acquired = acquired.min(record.acquired);
        }
        Ok(())
    }

    /// A message has told of the grant of a claim that waits.
    pub(super) fn notified(&mut self, who: Who, local: Time) {
        if let Some([record]) = self.permits.get_mut(&who).map(Vec::as_mut_slice) {
            // Of several levels it does not say which is granted.
            let waits = !record.is_over && !record.was_granted && record.keys.len() == 1;
            record.told = waits.then_some(local);
        }
    }

    pub(super) fn lost(&mut self, who: Who) {
        self.leases(who)
            .for_each(|record| record.was_granted = false);
    }

    /// A caller has given up units of a lease: all but the first ones of an id.
    pub(super) fn shrunk(&mut self, who: Who, (key, keep): (Key, u32), local: Time) {
        let mut records = self.leases(who);
        let record = records.find(|record| !record.is_over && record.keys.contains(&key));
        let part = record.map(|record| record.part(key, keep, local));
        drop(records);
        self.permits.entry(who).or_default().extend(part);
    }

    /// A caller has given up something that a server may know.
    pub(super) fn is_due(&mut self, who: Who, local: Time, flights: &Flights) {
        let own = flights.range((who.0, CallId(0))..(who.0 + 1, CallId(0)));
        let callers = own.filter(|(_, flight)| flight.call.runtime > 0);
        let is_quiet = callers.count() < FEW_CALLS;
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

    fn of_process(&self, at: usize) -> impl Iterator<Item = (&Who, &Record)> {
        let own = self.permits.range((at, PermitId(0))..(at + 1, PermitId(0)));
        own.flat_map(|(who, records)| records.iter().map(move |record| (who, record)))
    }

    /// A server that has lost a lease may have lost others: all that were not refreshed since are due.
    fn recheck(&mut self, at: usize, flight: &Flight, local: Time) {
        let own = self
            .permits
            .range_mut((at, PermitId(0))..(at + 1, PermitId(0)));
        for record in own.flat_map(|(_, records)| records) {
            let is_here = self.settings.server_of(record.keys[0]) == flight.call.server;
            let is_held = record.was_granted && !record.is_over && record.may_run.is_empty();
            if is_here && is_held && record.named < flight.sent {
                record.recheck = record.recheck.or(Some(local));
            }
        }
    }

    /// A server has not answered, or there is no connection.
    pub(super) fn failed(&mut self, at: usize, server: usize, local: Time) {
        let seen = self.seen.entry((at, server)).or_default();
        seen.failed = seen.failed.max(local);
        // A connection that is gone begins a row of failures too.
        seen.since.get_or_insert(local);
    }

    /// Whether the last call of a process was answered.
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

    /// When a call that acquires or refreshes a lease was sent last.
    pub(super) fn named(&self, who: Who, key: Key) -> Time {
        let own = self.permits.get(&who).into_iter().flatten();
        let own = own.filter(|record| record.keys.contains(&key));
        own.map(|record| record.named).max().unwrap_or_default()
    }

    /// When a call of the thread of a process has failed last.
    pub(super) fn missed(&self, at: usize, server: usize) -> Time {
        let seen = self.seen.get(&(at, server));
        seen.map_or(Time::ZERO, |seen| seen.missed)
    }

    /// Whether a process knows that others may have taken a server for unavailable.
    pub(super) fn is_unwell(&self, at: usize, server: usize, local: Time) -> bool {
        let seen = self.seen.get(&(at, server)).copied().unwrap_or_default();
        let is_back = seen.over > seen.outage && local > seen.over + SETTLES;
        let was_out = seen.outage > Time::ZERO && local > seen.outage + LATE && !is_back;
        let takes_over = seen.took_over.is_some_and(|then| local <= then + SETTLES);
        was_out || takes_over
    }

    /// A server has refused a connection, which a core takes for an answer.
    pub(super) fn denied(&mut self, at: usize, server: usize, local: Time) {
        let seen = self.seen.entry((at, server)).or_default();
        seen.sent = local;
    }

    /// The server that has a slot, as far as a process knows.
    fn place(&self, at: usize, slot: u16) -> usize {
        let known = self.places.get(&(at, slot));
        known.map_or_else(|| self.settings.home(slot.into()), |(server, _)| *server)
    }

    /// The same of a semaphore.
    pub(super) fn place_of(&self, at: usize, key: Key) -> usize {
        self.place(at, self.settings.slot_of(key))
    }

    /// A process learns which server has a slot. One that takes over from another was not told what was admitted
    /// without that.
    pub(super) fn placed(&mut self, at: usize, (slot, server): (u16, usize), local: Time) {
        let before = self.place(at, slot);
        if before != server && self.is_unwell(at, before, local) {
            let seen = self.seen.entry((at, server)).or_default();
            seen.took_over = Some(local);
        }
        if before != server {
            self.places.insert((at, slot), (server, local));
        }
    }

    /// A process asks the server that has a slot as far as it knows, or the one where that is moving.
    fn check_place(&self, at: usize, call: &Call, local: Time) -> Verdict {
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

    /// A call that was sent before the last answered one tells nothing.
    fn call_failed(&mut self, at: usize, flight: &Flight, local: Time) {
        let server = flight.call.server;
        let seen = self.seen.entry((at, server)).or_default();
        if flight.call.runtime == 0 {
            seen.missed = seen.missed.max(local);
        }
        if flight.sent >= seen.sent {
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

    fn worked(&mut self, at: usize, flight: &Flight, local: Time) {
        let seen = self.seen.entry((at, flight.call.server)).or_default();
        let was_silent = seen.sent + self.settings.timeout <= local;
        seen.sent = seen.sent.max(flight.sent);
        if seen.failed >= seen.worked {
            seen.returned = local;
        }
        let ends = seen.since.take_if(|since| *since <= flight.sent).is_some();
        if ends && seen.over <= seen.outage {
            // A core that has met the answer first knows of no failure, and nobody has taken a server for unavailable
            // that was there within a timeout.
            let is_known = was_silent && local > seen.outage + LATE;
            (seen.outage, seen.over) = (if is_known { seen.outage } else { Time::ZERO }, local);
        }
        seen.worked = local;
    }

    /// While a server does not work, its processes look again and again whether it is back.
    fn looks(&self, process: &Process, (at, server): (usize, usize), now: Duration) -> Verdict {
        let link = &process.links[self.settings.link(0, server)];
        let seen = self.seen[&(at, server)];
        let is_unwell = seen.failed > seen.worked && link.is_up && !is_dazed(process, now);
        let pause = PROBES + LATE;
        let could = link.since.max(process.suspended_until);
        let last = seen.failed.max(seen.abandoned);
        let is_late = process.local(now) > last + pause && now > could + pause;
        check(
            !is_unwell || !is_late || !link.in_flight.is_empty(),
            "L2",
            || format!("p{at} does not look whether server {server} is back"),
        )
    }

    /// A release is sent at once, and what a server may have lost is, if there is a connection.
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
            self.looks(&processes[who.0], *who, now)?;
        }
        let all = self.permits.iter();
        let all = all.flat_map(|(who, records)| records.iter().map(move |record| (who, record)));
        for ((at, permit), record) in all {
            let process = &processes[*at];
            let recheck = record.recheck.filter(|_| !record.is_over);
            let recheck = recheck.map(|since| since.max(record.answered));
            let told = record.told_since(process.local(now));
            let Some(since) = record.due.or(recheck).or(told) else {
                continue;
            };
            // The keeper's thread carries what nothing else does.
            let server = self.settings.server_of(record.keys[0]);
            let link = &process.links[self.settings.link(0, server)];
            let most = if told.is_some() {
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
            let is_over = process.local(now) > record.lasts;
            // A server that has not answered is left in peace until it does.
            let seen = self.seen.get(&(*at, server)).copied().unwrap_or_default();
            let could = could && seen.failed <= seen.worked && self.is_timed(*at, server);
            let known = self.settings.slots.known(record.keys[0]);
            let could = could && now >= known;
            let since = since.max(seen.returned).max(process.local(known.min(now)));
            // What waited for the server that had the slot waits for the end of a pause elsewhere.
            let has_moved = known > Duration::ZERO;
            let since = since.max(if has_moved { record.pauses } else { since });
            let is_urgent = record.due.is_some() && record.is_urgent;
            let late = if is_urgent { Duration::ZERO } else { LATE };
            let is_late = could && !is_over && process.local(now) > since + late;
            check(!is_late, "L2", || {
                format!(
                    "p{at} does not release {permit:?}, or refresh it, or ask for it: {record:?}"
                )
            })?;
        }
        Ok(())
    }

    /// What a process has given up, and no call in flight can bring back.
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
            // What another program has written over is lost, or cannot be released yet.
            .filter(|(key, ..)| self.settings.slots.poisoned(*key).is_none())
            .collect()
    }

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
        self.check_place(at, call, local)?;
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
                self.check((at, call.id, command), (*key, *id), (local, flights))?;
                self.note(at, call, command, (*key, *id), local);
            }
        }
        Ok(())
    }

    /// A process has one probe of a server under way, until it claims no more.
    pub(super) fn check_probe(
        &self,
        (at, process): (usize, &Process),
        call: &Call,
        (local, flights): (Time, &Flights),
    ) -> Verdict {
        let is_probe = |call: &Call| matches!(call.commands.last(), Some(Command::Clock { .. }));
        // What has come while it stood still may have begun a second one.
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

    fn check(
        &mut self,
        (at, call, command): (usize, CallId, &Command),
        (key, id): (Key, Id),
        (local, flights): (Time, &Flights),
    ) -> Verdict {
        let says = |what: &str| format!("p{at} {call:?} {what} {:?}", id.permit());
        let alive = self.settings.alive();
        let known = self.settings.lease * 9 / 10;
        let Some(record) = self.lease(at, (key, id)) else {
            return check(false, "ids", || says("names what nobody claims,"));
        };
        if let Command::Release { .. } = command {
            check(record.was_sent, "work", || {
                says("releases what it never sent,")
            })?;
            // Another connection's release of it may still be under way.
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
        // Without a newer answer it ends in the eyes of its process.
        record.is_needless &= local < record.confirmed + known;
        check(!record.is_needless, "ids", || {
            says("names under a new id what it has,")
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
            .any(|(_, other)| is_busy(other, (&keys, id), local));
        check(is_alone, "one call", || says("names, beside another call,"))
    }

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
            record.lasts = record.lasts.max(call.deadline + command.lasts());
            (record.recheck, record.named, record.answered) = (None, local, call.deadline);
        }
        match command {
            Command::Acquire { .. } => {
                (record.was_sent, record.told) = (true, None);
                (record.is_gone, record.is_revoked) = (false, false);
                record.may_run.insert(call.id, call.deadline);
            }
            Command::Release { .. } if record.may_run.values().all(|end| *end <= local) => {
                record.last_releases.insert(call.id);
            }
            _ => {}
        }
    }

    pub(super) fn replied(
        &mut self,
        at: usize,
        flight: &Flight,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
    ) {
        // A core may ignore what comes later.
        let is_timely = local < flight.call.deadline;
        let is_error = |answer: &Answer| matches!(answer, Answer::Error(Refused::Loading));
        match reply {
            Err(Failure::Abandoned) => {
                let seen = self.seen.entry((at, flight.call.server)).or_default();
                seen.abandoned = local;
            }
            Ok(answers) if is_timely && !answers.iter().any(is_error) => {
                self.worked(at, flight, local);
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
        let has_lost = has_lost(flight, reply);
        if is_timely && has_lost {
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
                    // It has run by now.
                    record.lasts = local + command.lasts();
                    record.confirmed = flight.sent.max(record.confirmed);
                }
                if !is_release(command) {
                    record.answered = record.answered.min(local);
                }
                let is_lost = matches!(
                    (command, answer),
                    // It says nothing of a lease that had more units then.
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
                if !matches!(answer, Ok(Some(answer)) if !matches!(answer, Answer::Error(_))) {
                    record.pauses = local + PAUSE;
                }
                // An older acquire may have run after it.
                let is_left = record.may_run.values().any(|end| *end > flight.sent);
                let may_hold = is_left || record.was_granted;
                let acquired = acquired(command, answer, (key, id)).filter(|_| is_timely);
                match acquired {
                    Some(Acquired::Granted { .. }) => {
                        record.confirmed = flight.sent.max(record.confirmed);
                        record.acquired = flight.sent.max(record.acquired);
                    }
                    Some(Acquired::Queued { .. }) => {
                        record.waited = flight.sent.max(record.waited);
                    }
                    _ => {}
                }
                if acquired.is_some() {
                    record.is_lost &= !matches!(acquired, Some(Acquired::Granted { .. }));
                    let waits = matches!(acquired, Some(Acquired::Queued { .. }));
                    record.told = record.told.filter(|_| waits).map(|_| local);
                }
                if acquired.is_some() && record.serial == id.serial && !record.is_over {
                    let is_full = leaves_no_room(command, answer, id);
                    record.full_until = if is_full {
                        local + FULL
                    } else {
                        record.full_until
                    };
                }
                let acquired = acquired.filter(|_| !may_hold);
                record.is_gone |= is_refused(acquired);
                // A core may release what was revoked all the same.
                let is_revoked = matches!(acquired, Some(Acquired::Revoked { .. }));
                let was_last = record.last_releases.remove(&flight.call.id);
                record.is_gone |= is_timely && was_last && answer == Ok(Some(&Answer::Released));
                record.is_revoked |= is_revoked;
                record.due = record.due.filter(|_| !record.is_gone && !is_revoked);
            }
        }
    }
}

impl Record {
    /// Since when its grant was told, and no call of it is in flight.
    fn told_since(&self, local: Time) -> Option<Time> {
        let last = self.may_run.values().max().copied().unwrap_or_default();
        let told = self.told.filter(|_| !self.is_over && last <= local);
        told.map(|told| told.max(last).max(self.pauses))
    }

    /// Takes away all but the first units of a semaphore. They are to be released.
    fn part(&mut self, key: Key, keep: u32, local: Time) -> Self {
        let old = self.units.insert(key, (1, keep)).unwrap_or_default();
        self.is_split = true;
        Self {
            keys: vec![key],
            serial: self.serial,
            units: [(key, (keep + 1, old.1))].into(),
            is_over: true,
            was_sent: self.was_sent,
            due: self.was_granted.then_some(local),
            lasts: self.lasts,
            may_run: self.may_run.clone(),
            is_given_back: true,
            ..Self::default()
        }
    }

    /// Takes a semaphore away, as a lease of its own.
    fn without(&mut self, key: Key) -> Self {
        self.keys.retain(|other| *other != key);
        self.is_parted = true;
        let units = self.units.remove(&key).unwrap_or_default();
        Self {
            keys: vec![key],
            serial: self.serial,
            units: [(key, units)].into(),
            is_widest: self.is_widest,
            is_whole: self.is_whole,
            waited: self.waited,
            was_sent: self.was_sent,
            is_lost: self.is_lost,
            was_granted: self.was_granted,
            lasts: self.lasts,
            may_run: self.may_run.clone(),
            // What its core knows of the others it takes for true of this one.
            is_parted: true,
            ..Self::default()
        }
    }

    /// As many units as it has, from the first on.
    fn renewed_units(&self) -> BTreeMap<Key, (u32, u32)> {
        let units = self.units.iter();
        units
            .map(|(key, (first, last))| (*key, (1, last + 1 - first)))
            .collect()
    }

    /// The lease under a later id.
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
            // A wait under an earlier id makes this acquire another try.
            waited: self.waited,
            is_widest: self.is_widest,
            is_whole: self.is_whole,
            is_parted: self.is_parted,
            ..Self::default()
        })
    }
}

/// Whether a server has not found a lease.
fn has_lost(flight: &Flight, reply: &Result<Vec<Answer>, Failure>) -> bool {
    let answers = reply.iter().flatten();
    let mut answers = flight.call.commands.iter().zip(answers);
    answers.any(|(command, answer)| match (command, answer) {
        (Command::Refresh { .. }, Answer::Held(each)) => each.contains(&false),
        _ => false,
    })
}

/// Whether another call acquires or refreshes the permit, and may have an answer yet.
fn is_busy(other: &Flight, (keys, id): (&[Key], Id), local: Time) -> bool {
    let is_same = |(key, other): (Key, Id)| keys.contains(&key) && other.serial == id.serial;
    let mut commands = other.call.commands.iter();
    other.call.deadline > local
        && commands.any(|command| !is_release(command) && command.ids().into_iter().any(is_same))
}

fn is_release(command: &Command) -> bool {
    matches!(command, Command::Release { .. })
}

/// Whether an answer says that the server knows nothing of a permit any more.
fn is_refused(acquired: Option<Acquired>) -> bool {
    matches!(
        acquired,
        Some(Acquired::Full { .. } | Acquired::QueueFull { .. } | Acquired::Paused { .. })
    )
}

/// What is answered to an acquire of a permit.
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

/// Whether there is no room for another claim like one that is answered, or it waits.
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
        let size = 8 + 5 * ids.len() + units;
        return check(size <= MOST_ARGS, "size", || {
            format!("some {size} arguments")
        });
    }
    Ok(())
}
