//! Checks of the scripts by the servers' own logs: the data before and after each run.

use super::{
    GivenUp, Verdict, Violation, Who, check,
    effect::{Effect, LevelOutcome, Name, acquired, live, unit_number, waiting},
    fair::Fair,
    pauses::KnownPauses,
};
use crate::{
    schedule::{Data, Schedule},
    server::{Run, Server, View},
    subject::{Command, GENERATION, GROWTH, Key, PermitId, Settings},
    wire,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How many ms the clocks of a process and a server, or of two servers, may diverge during a lease.
const CLOCK_SKEW: i64 = 20;

/// The faults of a server so far.
#[derive(Debug, Default, Clone, Copy)]
struct Past {
    /// True once its clock was set back.
    stepped_back: bool,
    /// The total number of ms by which its clock was set forward.
    forward: i64,
    /// True once it has started with no data, or with old data.
    has_lost_data: bool,
    /// True once it has had old data, in which units are held that have been released since.
    has_had_old_data: bool,
}

/// The arrival of a waiter in a queue, in microseconds of the server's clock.
#[derive(Debug, Clone, Copy)]
struct Arrival {
    actual: i64,
    /// The same minus the waiter's head start. This decides the order.
    effective: i64,
}

/// The judge's knowledge of a semaphore.
#[derive(Debug, Default)]
struct Known {
    /// The arrivals of the waiters in the queue.
    arrivals: BTreeMap<Name, Arrival>,
    /// The actual arrivals of waiters that have left the queue.
    departed: BTreeMap<Who, i64>,
    /// Claims that came with the last call and do not wait after it.
    passing: BTreeSet<Name>,
    /// The ids (process and serial) whose release has run. An acquire that was sent earlier, over a connection that is
    /// lost, may still run after that. The units of such an id do not count for its permit: its process will release
    /// them again.
    released: BTreeSet<(usize, u64)>,
    last_token: u64,
    fair: Fair,
    pauses: KnownPauses,
}

/// The part of the judge that reads the logs of all servers.
#[derive(Debug)]
pub(super) struct Storage {
    settings: Settings,
    /// True if no lease ends by itself before `check_cleared` is called.
    has_long_leases: bool,
    /// In ms.
    lease: i64,
    keys: BTreeMap<Key, Known>,
    past: Vec<Past>,
    /// The tokens given to each permit.
    tokens: BTreeMap<Who, BTreeSet<u64>>,
    killed: BTreeSet<usize>,
    /// The permits that operators have revoked, by semaphore, while servers remember them.
    revoked: BTreeSet<(Key, Who)>,
}

impl Storage {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            settings: schedule.settings(0),
            has_long_leases: schedule.has_long_leases(),
            lease: schedule.lease.as_millis() as i64,
            keys: BTreeMap::new(),
            past: (0..schedule.servers).map(|_| Past::default()).collect(),
            tokens: BTreeMap::new(),
            killed: BTreeSet::new(),
            revoked: BTreeSet::new(),
        }
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.killed.insert(at);
    }

    pub(super) fn stepped(&mut self, server: usize, ms: i64) {
        self.past[server].stepped_back |= ms < 0;
        self.past[server].forward += ms.max(0);
        // Keys may expire early now. To keep it simple, the fair queues of all servers count as unknown.
        self.keys.values_mut().for_each(|known| known.fair.forget());
        let own = self
            .keys
            .iter_mut()
            .filter(|(key, _)| self.settings.server_of(**key) == server);
        own.for_each(|(_, known)| known.pauses.mark_uncertain());
    }

    pub(super) fn restarted(&mut self, server: usize, data: Data) {
        let past = &mut self.past[server];
        past.has_lost_data |= data != Data::Same;
        past.has_had_old_data |= data == Data::Old;
        if data != Data::Same {
            self.forget(server);
        }
    }

    /// A replica replaces a server. It has every grant that was confirmed, but its data may lack later changes.
    pub(super) fn failed_over(&mut self, server: usize) {
        self.past[server].has_had_old_data = true;
        self.forget(server);
    }

    /// A server continues with other data. Arrivals are kept, because the data may bring their waiters back.
    fn forget(&mut self, server: usize) {
        let own = self.keys.iter_mut();
        for (key, known) in own.filter(|(key, _)| self.settings.server_of(**key) == server) {
            known.last_token = 0;
            known.fair.forget();
            known.pauses.mark_uncertain();
            self.revoked.retain(|(other, _)| other != key);
        }
    }

    /// Another program has overwritten a key of a semaphore, so the data in it is lost.
    pub(super) fn poisoned(&mut self, key: Key) {
        self.revoked.retain(|(other, _)| *other != key);
        let known = self.keys.entry(key).or_default();
        known.last_token = 0;
        known.fair.forget();
    }

    /// True if the server may hold units that were given up: old data brings them back, and a clock that was set back
    /// keeps them longer.
    pub(super) fn brings_back(&self, server: usize) -> bool {
        self.past[server].stepped_back || self.past[server].has_had_old_data
    }

    /// True if some server may give a token again.
    pub(super) fn repeats(&self) -> bool {
        let mut pasts = self.past.iter();
        pasts.any(|past| past.has_had_old_data || past.has_lost_data || past.stepped_back)
            || (0..self.past.len()).any(|server| self.may_restart_counter(server))
    }

    /// True if a counter of tokens may have restarted below its last token. A counter expires early if the clock is
    /// set forward by some leases. It restarts at a time that the calling process sends: the highest that it has seen
    /// of any server. That may be less than another process has seen if the clock was set back before, or if another
    /// server's clock was set forward a moment ago.
    fn may_restart_counter(&self, server: usize) -> bool {
        let own = &self.past[server];
        let others = self.past.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != server);
        let is_ahead = own.forward >= self.lease * 4 && others.any(|(_, past)| past.forward > 0);
        own.stepped_back && own.forward > 0 || is_ahead
    }

    fn past(&self, key: Key) -> &Past {
        &self.past[self.settings.server_of(key)]
    }

    /// The keys of a semaphore move to a server whose clock is `ahead` ms ahead. The server inherits the faults of the
    /// old one.
    pub(super) fn migrated(&mut self, key: Key, (from, to): (usize, usize), ahead: i64) {
        let own = self.past[from];
        let past = &mut self.past[to];
        past.stepped_back |= own.stepped_back;
        past.forward = past.forward.max(own.forward);
        past.has_lost_data |= own.has_lost_data;
        past.has_had_old_data |= own.has_had_old_data;
        debug_assert_eq!(self.settings.server_of(key), from);
        let known = self.keys.entry(key).or_default();
        known.fair.forget();
        known.pauses.mark_uncertain();
        if ahead.abs() > CLOCK_SKEW {
            self.stepped(to, ahead);
        }
    }

    /// True if more units may be held than the limit allows, because a server has forgotten its grants.
    pub(super) fn is_disturbed(&self, key: Key) -> bool {
        let place = self.settings.slots.place(key);
        // While the slot is moving, each of its servers may grant a claim, and each may have forgotten grants.
        let servers = place.map(|place| [Some(place.owner), Some(place.home), place.moves_to]);
        let servers = servers.unwrap_or([Some(self.settings.server_of(key)), None, None]);
        let mut pasts = servers.into_iter().flatten().map(|at| self.past[at]);
        let is_poisoned = self.settings.slots.poisoned(key).is_some();
        is_poisoned || pasts.any(|past| past.has_lost_data || past.forward > 0)
    }

    pub(super) fn tokens(&self, who: Who) -> impl Iterator<Item = u64> {
        self.tokens.get(&who).into_iter().flatten().copied()
    }

    /// Checks that a server holds at least the units of a permit when its caller receives the grant.
    pub(super) fn check_held(
        &self,
        servers: &[Server],
        who: Who,
        (key, weight): (Key, u32),
        now: Duration,
    ) -> Verdict {
        let server = &servers[self.settings.server_of(key)];
        let view = server.view(key);
        let live = live(&view.held, server.clock(now) / 1_000);
        let own = live.filter(|name| self.belongs_to(key, name, who)).count();
        let is_held = own as u32 >= weight || self.is_disturbed(key);
        check(is_held, "the truth", || {
            format!("{who:?} has {weight} units of key {key}, and {own} are held")
        })
    }

    /// Checks that a server holds exactly the units of a key that the holder of a permit, or of a growth, has.
    pub(super) fn check_weight(
        &self,
        servers: &[Server],
        (who, key, weight): (Who, Key, u32),
        now: Duration,
    ) -> Verdict {
        let server = &servers[self.settings.server_of(key)];
        let view = server.view(key);
        let live = live(&view.held, server.clock(now) / 1_000);
        let own = live.filter(|name| self.belongs_to(key, name, who)).count();
        let past = self.past(key);
        let is_excused = self.is_disturbed(key) || past.stepped_back || past.has_had_old_data;
        check(own as u32 == weight || is_excused, "weights", || {
            format!("{who:?} has {weight} units of key {key}, and {own} are held")
        })
    }

    /// True if a unit counts for a permit: its id is one of the permit's, and was not released.
    fn belongs_to(&self, key: Key, name: &Name, who: Who) -> bool {
        let is_released = |known: &Known| known.is_released(name);
        name.who() == who && !self.keys.get(&key).is_some_and(is_released)
    }

    /// A server has run a script. Checks its effect on each semaphore.
    pub(super) fn ran(&mut self, server: usize, run: &Run) -> Verdict {
        let (clock, brings_back) = (run.clock / 1_000, self.brings_back(server));
        for (key, before, after) in &run.semaphores {
            let known = self.keys.entry(*key).or_default();
            known.pauses.advance_to(before, clock);
            let script = Effect {
                run,
                key: *key,
                before,
                after,
                clock,
                lease: self.lease,
                brings_back,
                pause: known.pauses.pause(),
                is_uncertain: known.pauses.is_uncertain(),
            };
            script.check_units()?;
            script.check_limit(|name| known.is_released(name))?;
            script.check_queue()?;
            script.check_answers()?;
            known.note_arrivals(&script);
            // Another program may have overwritten the queue, or the set of waiters that are alive.
            let is_poisoned = self.settings.slots.poisoned(*key).is_some();
            if is_poisoned {
                known.fair.forget();
                known.pauses.mark_uncertain();
            } else {
                script.check_pause()?;
            }
            known.fair.ran(&script)?;
            if !is_poisoned && !known.fair.is_fair() {
                check_order(known, &script, self.past[server].stepped_back)?;
            }
            known.note_departures(after);
        }
        self.note_tokens(run, self.may_restart_counter(server))
    }

    /// A server has run a pause for `length` ms, or the end of a pause.
    pub(super) fn paused(&mut self, run: &Run, length: i64, is_paused: bool) -> Verdict {
        let (key, before, after) = &run.semaphores[0];
        let known = self.keys.entry(*key).or_default();
        let times = (run.clock / 1_000, length, is_paused);
        let verdict = known.pauses.ran((before, after), times);
        match self.settings.slots.poisoned(*key) {
            Some(_) => Ok(()),
            None => verdict,
        }
    }

    /// A process has released ids. Notes those that it released with all of their units.
    pub(super) fn released(&mut self, run: &Run) {
        let Command::Release { of, .. } = &run.command else {
            return;
        };
        for (key, ids) in of {
            let whole = ids.iter().filter(|id| id.units == (1, id.weight));
            let whole = whole.map(|id| (run.process, id.serial));
            self.keys.entry(*key).or_default().released.extend(whole);
        }
    }

    /// An operator has revoked an id. Checks that nothing of it is left, and that the answer is right: `was_there`.
    pub(super) fn revoked(&mut self, run: &Run, was_there: bool) -> Verdict {
        let (_, id) = run.command.ids()[0];
        let who = (run.process, id.permit());
        let (_, before, after) = &run.semaphores[0];
        let clock = run.clock / 1_000;
        // The operator has named an id that it listed earlier. The permit may have got another one since.
        let mut own = names(before, clock).filter(|name| name.who() == who);
        let is_renewed = own.any(|name| name.serial != id.serial);
        check(
            is_present(before, who, clock) == was_there || is_renewed && !was_there,
            "a revocation",
            || format!("the answer is {was_there} for {who:?}, in {before:?}"),
        )?;
        let ids = run.command.ids().into_iter();
        for (key, id) in ids.filter(|_| was_there) {
            let who = (run.process, id.permit());
            // It may still have units under an earlier id, which its process is releasing.
            let mut own = names(after, clock).filter(|name| name.who() == who);
            let is_left = own.any(|name| name.serial == id.serial);
            check(!is_left, "a revocation", || {
                format!("{who:?} is left: {after:?}")
            })?;
            self.revoked.insert((key, who));
        }
        Ok(())
    }

    /// Checks that a revoked permit comes back only by its first acquire, which may run after the revocation if it was
    /// delayed. Returns the permits that came back in this run.
    pub(super) fn returned(&mut self, run: &Run) -> Result<Vec<Who>, Violation> {
        let mut returned = Vec::new();
        for (key, before, after) in &run.semaphores {
            let clock = run.clock / 1_000;
            // Other ids of the permit, those of growths, keep their units until the process releases them. So this
            // looks for an id that is there now and was not before.
            let own = self.revoked.iter().filter(|(other, _)| other == key);
            let mut own = own.filter(|(_, who)| {
                let mut names = names(after, clock).filter(|name| root(name.who()) == root(*who));
                names.any(|name| !is_present(before, name.who(), clock))
            });
            let Some((_, who)) = own.next().copied() else {
                continue;
            };
            let mut wanted = run.command.wanted().into_iter();
            let is_first = wanted
                .any(|(_, wanted)| (run.process, wanted.id.permit()) == who && !wanted.was_sent);
            check(is_first, "a revocation", || {
                format!("{who:?} comes back by {:?}: {after:?}", run.command)
            })?;
            self.revoked.remove(&(*key, who));
            returned.push(who);
        }
        Ok(returned)
    }

    /// Checks that tokens strictly increase, unless `may_restart`. Each token is given once.
    fn note_tokens(&mut self, run: &Run, may_restart: bool) -> Verdict {
        let mut given = Vec::new();
        for (channel, text) in &run.published {
            let Some((process, message)) = wire::message(channel, text) else {
                continue;
            };
            let process = process
                .trim_start_matches('p')
                .parse()
                .unwrap_or(usize::MAX);
            let who = (process, PermitId(message.serial % GENERATION));
            given.extend(giver(run, who, message.token).map(|key| (key, who, message.token)));
        }
        for (key, wanted, acquired) in acquired(run) {
            if let LevelOutcome::Granted(token) = acquired {
                given.push((key, (run.process, wanted.id.permit()), token));
            }
        }
        given.retain(|(_, _, token)| *token > 0);
        given.sort_by_key(|(key, _, token)| (*key, *token));
        for (key, who, token) in given {
            let last = &mut self.keys.entry(key).or_default().last_token;
            check(token > *last || may_restart, "S3", || {
                format!("{who:?} gets token {token} after {last}")
            })?;
            *last = token;
            self.tokens.entry(who).or_default().insert(token);
        }
        Ok(())
    }

    /// Checks that nothing is left of claims that are over, although no lease has ended by itself yet.
    pub(super) fn check_cleared(&self, servers: &[Server], now: Duration) -> Verdict {
        if !self.has_long_leases {
            return Ok(());
        }
        for (key, server) in self.reliable(servers) {
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            // If another program has overwritten the key of living waiters, a release does not find its waiter. The
            // next claim removes that waiter.
            let is_poisoned = self.settings.slots.poisoned(key).is_some();
            let waits = view.queue.iter().filter_map(|(id, _)| Name::read(id));
            let waits = waits.filter(|_| !is_poisoned);
            let living = waiting(&view, clock).map(|(name, _)| name);
            let mut present = live(&view.held, clock).chain(waits).chain(living);
            let left = present.find(|name| !self.killed.contains(&name.process));
            check(left.is_none(), "L3", || {
                format!("{left:?} of key {key} is left behind")
            })?;
        }
        Ok(())
    }

    /// Checks that no server holds anything of a process that has forgotten its last claim. The process's clock may be
    /// a moment ahead.
    pub(super) fn forgets(&self, servers: &[Server], at: usize, now: Duration) -> Verdict {
        for (key, server) in self.reliable(servers) {
            if self.settings.slots.poisoned(key).is_some() {
                continue;
            }
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            let mut held = live(&view.held, clock + CLOCK_SKEW);
            let left = held.find(|name| name.process == at);
            check(left.is_none(), "L3", || {
                format!("{left:?} of key {key} is forgotten before its release or its end")
            })?;
        }
        Ok(())
    }

    /// Checks that nothing is left at the end, even of processes that were killed.
    pub(super) fn end(&self, servers: &[Server], now: Duration) -> Verdict {
        for (key, server) in self.reliable(servers) {
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            let waits = waiting(&view, clock).map(|(name, _)| name);
            let left = live(&view.held, clock).chain(waits).next();
            check(left.is_none(), "L1", || {
                format!("{left:?} of key {key} is left behind")
            })?;
        }
        Ok(())
    }

    /// The semaphores where only a mistake can leave something behind: no old data brought back released units, and no
    /// clock let an acquire run after its end.
    fn reliable<'a>(&'a self, servers: &'a [Server]) -> impl Iterator<Item = (Key, &'a Server)> {
        let keys = self.keys.keys().copied();
        let keys = keys.filter(|key| {
            let past = self.past(*key);
            !past.has_had_old_data && !past.stepped_back
        });
        keys.map(|key| (key, &servers[self.settings.server_of(key)]))
    }
}

impl Known {
    fn is_released(&self, name: &Name) -> bool {
        self.released.contains(&(name.process, name.serial))
    }

    /// Moves waiters that have left the queue to `departed`. If older data brings one back, it keeps its arrival.
    fn note_departures(&mut self, view: &View) {
        let waits: BTreeSet<_> = waiting(view, i64::MIN).map(|(name, _)| name).collect();
        let leaves = self
            .arrivals
            .iter()
            .filter(|(name, _)| !waits.contains(name) && !self.passing.contains(name));
        let departed = leaves.map(|(name, arrival)| (name.who(), arrival.actual));
        self.departed.extend(departed);
        self.arrivals.retain(|name, _| waits.contains(name));
    }

    /// Notes the claims that come with this call, in the order of the call.
    fn note_arrivals(&mut self, script: &Effect<'_>) {
        self.note_departures(script.before);
        let waited = waiting(script.before, i64::MIN).map(|(name, _)| name);
        let held = live(&script.before.held, script.clock);
        let old: BTreeSet<_> = held.chain(waited).collect();
        let waits: BTreeSet<_> = waiting(script.after, i64::MIN)
            .map(|(name, _)| name)
            .collect();
        // Dead waiters leave before others join.
        let stay = self
            .arrivals
            .iter()
            .filter(|(name, _)| waits.contains(name));
        let mut last = stay.map(|(_, arrival)| arrival.actual).max().unwrap_or(0);
        self.passing.clear();
        for (name, wanted, _) in script.wanted() {
            if self.arrivals.contains_key(&name) || old.contains(&name) {
                continue;
            }
            let position = wanted.position;
            let actual = match position.map_or(0, |position| position.arrival as i64) {
                0 => script.run.clock.max(last + 1),
                // A waiter that comes back keeps its place: that of its permit under another id, or that which it had
                // when it left the queue. If neither is known, the arrival that the server reported counts.
                answered => {
                    let departed = self.departed.get(&name.who());
                    let mut others = self.arrivals.iter();
                    let same = others.find(|(other, _)| other.who() == name.who());
                    let known = same.map(|(_, arrival)| &arrival.actual);
                    *known.or(departed).unwrap_or(&answered)
                }
            };
            // A claim that does not wait after the call takes no place in the queue.
            if waits.contains(&name) {
                last = last.max(actual);
            } else {
                self.passing.insert(name);
            }
            let start = position.map_or(0, |position| position.wait.head_start.as_micros() as i64);
            let effective = actual - start;
            self.arrivals.insert(name, Arrival { actual, effective });
        }
    }
}

/// The permit to which a growth was added. (A growth is a claim for more units of a permit, with another serial.)
fn root((process, PermitId(serial)): Who) -> Who {
    (process, PermitId(serial % GROWTH))
}

/// True if the data has a permit: it holds units, or waits.
pub(super) fn is_present(view: &View, who: Who, clock: i64) -> bool {
    names(view, clock).any(|name| name.who() == who)
}

/// The ids that hold units, once per unit, and those that wait.
fn names(view: &View, clock: i64) -> impl Iterator<Item = Name> {
    let waits = view.queue.iter().filter_map(|(id, _)| Name::read(id));
    live(&view.held, clock).chain(waits)
}

/// Returns the semaphore that gave a waiter a token in this run. If several may have, the first of these counts: where
/// the permit waited before, where this call made it wait, where it became a holder, any.
fn giver(run: &Run, who: Who, token: u64) -> Option<Key> {
    let semaphores = run.semaphores.iter();
    let mut givers =
        semaphores.filter(|(_, before, after)| before.token < token && token <= after.token);
    let waited = |view: &View| waiting(view, i64::MIN).any(|(name, _)| name.who() == who);
    let holds = |view: &View| live(&view.held, i64::MIN).any(|name| name.who() == who);
    let joined = |before: &View, after: &View| holds(after) && !holds(before);
    let waited_at = givers.clone().find(|(_, before, _)| waited(before));
    // A claim of several levels becomes a holder of the narrower ones, but the token comes from the level where it
    // waits.
    let queued = acquired(run).find(|(_, wanted, outcome)| {
        (run.process, wanted.id.permit()) == who && *outcome == LevelOutcome::Queued
    });
    let queued = queued.map(|(key, ..)| key);
    let queued_at = givers.clone().find(|(key, ..)| Some(*key) == queued);
    let joined_at = givers
        .clone()
        .find(|(_, before, after)| joined(before, after));
    let found = waited_at.or(queued_at).or(joined_at);
    let found = found.or_else(|| givers.next());
    found.map(|(key, ..)| *key)
}

/// Checks that no claim is refused because of units that its own process had given up before it sent the claim.
pub(super) fn check_own(run: &Run, given_up: &[GivenUp]) -> Verdict {
    for (key, wanted, acquired) in acquired(run) {
        let view = run.semaphores.iter().find(|(other, ..)| *other == key);
        let is_judged = acquired == LevelOutcome::Full;
        let Some((_, _, view)) = view.filter(|_| is_judged) else {
            continue;
        };
        let live = view.held.iter().filter(|(_, end)| *end > run.clock / 1_000);
        let mut units = live.filter_map(|(unit, _)| Some((Name::read(unit)?, unit_number(unit)?)));
        let own = units.find(|(name, unit)| {
            let is_own = |(other, serial, (first, last)): &GivenUp| {
                *other == key && *serial == name.serial && first <= unit && unit <= last
            };
            name.process == run.process && given_up.iter().any(is_own)
        });
        check(own.is_none(), "its own", || {
            format!("p{} {:?} is refused beside {own:?}", run.process, wanted.id)
        })?;
    }
    Ok(())
}

/// Checks that no claim is granted before a waiter that comes first. After a server's clock was set back, two kinds of
/// claims are excused: those with a head start, and those that left the queue and came back. If the queue was empty in
/// between, later claims may have got lower arrivals.
fn check_order(known: &Known, script: &Effect<'_>, clock_was_set_back: bool) -> Verdict {
    let arrival = |name: &Name| known.arrivals.get(name).copied();
    for name in script.granted() {
        for (waiter, _) in waiting(script.after, script.clock) {
            let (Some(own), Some(other)) = (arrival(&name), arrival(&waiter)) else {
                continue;
            };
            if !script.comes_before(&waiter, &name) {
                continue;
            }
            let has_start = own.effective != own.actual || other.effective != other.actual;
            let came_back = |name: &Name| known.departed.contains_key(&name.who());
            let is_uncertain = has_start || came_back(&name) || came_back(&waiter);
            let is_right = own.effective <= other.effective || clock_was_set_back && is_uncertain;
            check(is_right, "F1", || {
                script.describe(&format!("{name:?} passes {waiter:?}"))
            })?;
        }
    }
    Ok(())
}
