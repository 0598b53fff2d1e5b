//! What the scripts do, by the servers' own logs: what they hold before and after each.

use super::{
    GivenUp, Verdict, Violation, Who, check,
    effect::{Effect, Means, Name, acquired, live, unit_number, waiting},
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

/// How much the clocks of a process and a server, or of two servers, may differ in the length of a lease, in ms.
const MOMENT: i64 = 20;

/// What has happened to a server.
#[derive(Debug, Default, Clone, Copy)]
struct Past {
    stepped_back: bool,
    /// By how many ms it was set forward, in all.
    forward: i64,
    has_lost: bool,
    has_old: bool,
}

/// What is known of a semaphore.
#[derive(Debug, Default)]
struct Known {
    /// The arrivals of those in the queue, less their head starts, and without them.
    arrivals: BTreeMap<Name, (i64, i64)>,
    /// The arrivals of those that have left it.
    left: BTreeMap<Who, i64>,
    /// Those that came with the last call and do not wait after it.
    passing: BTreeSet<Name>,
    /// Processes and serials whose release has run. An acquire that was sent before may run after it, as over a connection
    /// that is lost: what it takes is released again when no more can come.
    over: BTreeSet<(usize, u64)>,
    last_token: u64,
    fair: Fair,
    pauses: KnownPauses,
}

/// All servers.
#[derive(Debug)]
pub(super) struct Storage {
    settings: Settings,
    is_long: bool,
    lease: i64,
    keys: BTreeMap<Key, Known>,
    past: Vec<Past>,
    tokens: BTreeMap<Who, BTreeSet<u64>>,
    killed: BTreeSet<usize>,
    /// What operators have revoked, and servers remember.
    revoked: BTreeSet<(Key, Who)>,
}

impl Storage {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            settings: schedule.settings(0),
            is_long: schedule.is_long(),
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
        // It lets keys expire early.
        self.keys.values_mut().for_each(|known| known.fair.forget());
        let own = self
            .keys
            .iter_mut()
            .filter(|(key, _)| self.settings.server_of(**key) == server);
        own.for_each(|(_, known)| known.pauses.mark_uncertain());
    }

    pub(super) fn restarted(&mut self, server: usize, data: Data) {
        let past = &mut self.past[server];
        past.has_lost |= data != Data::Same;
        past.has_old |= data == Data::Old;
        if data != Data::Same {
            self.forget(server);
        }
    }

    /// A server has what counts, and nothing else of what it had.
    pub(super) fn failed_over(&mut self, server: usize) {
        self.past[server].has_old = true;
        self.forget(server);
    }

    /// Another lineage begins. Who waits in it, and waited before, has come when it came.
    fn forget(&mut self, server: usize) {
        let own = self.keys.iter_mut();
        for (key, known) in own.filter(|(key, _)| self.settings.server_of(**key) == server) {
            known.last_token = 0;
            known.fair.forget();
            known.pauses.mark_uncertain();
            self.revoked.retain(|(other, _)| other != key);
        }
    }

    /// Another program has written over a key of a semaphore: what was there is lost.
    pub(super) fn poisoned(&mut self, key: Key) {
        self.revoked.retain(|(other, _)| *other != key);
        let known = self.keys.entry(key).or_default();
        known.last_token = 0;
        known.fair.forget();
    }

    /// Whether what was given up may be held again, or still.
    pub(super) fn brings_back(&self, server: usize) -> bool {
        self.past[server].stepped_back || self.past[server].has_old
    }

    /// Whether a token may be given again.
    pub(super) fn repeats(&self) -> bool {
        let mut pasts = self.past.iter();
        pasts.any(|past| past.has_old || past.has_lost || past.stepped_back)
            || (0..self.past.len()).any(|server| self.counts_again(server))
    }

    /// Whether a counter of a server may have begun again below its last token. A step forward by some leases expires it
    /// early. It begins again at the highest time that a process has seen of any server, of which each knows another one
    /// if that clock was set back before, or if another server's was set forward a moment ago.
    fn counts_again(&self, server: usize) -> bool {
        let own = &self.past[server];
        let others = self.past.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != server);
        let is_ahead = own.forward >= self.lease * 4 && others.any(|(_, past)| past.forward > 0);
        own.stepped_back && own.forward > 0 || is_ahead
    }

    fn past(&self, key: Key) -> &Past {
        &self.past[self.settings.server_of(key)]
    }

    /// What has happened to a server has happened to what moves from it.
    pub(super) fn migrated(&mut self, key: Key, (from, to): (usize, usize), ahead: i64) {
        let own = self.past[from];
        let past = &mut self.past[to];
        past.stepped_back |= own.stepped_back;
        past.forward = past.forward.max(own.forward);
        past.has_lost |= own.has_lost;
        past.has_old |= own.has_old;
        debug_assert_eq!(self.settings.server_of(key), from);
        let known = self.keys.entry(key).or_default();
        known.fair.forget();
        known.pauses.mark_uncertain();
        if ahead.abs() > MOMENT {
            self.stepped(to, ahead);
        }
    }

    /// Whether holders may overlap, because the server has forgotten what it had granted.
    pub(super) fn is_disturbed(&self, key: Key) -> bool {
        let place = self.settings.slots.place(key);
        // Where its slot is moving a claim may be granted that the other server has forgotten.
        let servers = place.map(|place| [Some(place.owner), Some(place.home), place.moves_to]);
        let servers = servers.unwrap_or([Some(self.settings.server_of(key)), None, None]);
        let mut pasts = servers.into_iter().flatten().map(|at| self.past[at]);
        let is_poisoned = self.settings.slots.poisoned(key).is_some();
        is_poisoned || pasts.any(|past| past.has_lost || past.forward > 0)
    }

    /// The tokens that a claim was given.
    pub(super) fn tokens(&self, who: Who) -> impl Iterator<Item = u64> {
        self.tokens.get(&who).into_iter().flatten().copied()
    }

    /// A caller that is told of a grant has one.
    pub(super) fn is_held(
        &self,
        servers: &[Server],
        who: Who,
        (key, weight): (Key, u32),
        now: Duration,
    ) -> Verdict {
        let server = &servers[self.settings.server_of(key)];
        let view = server.view(key);
        let live = live(&view.held, server.clock(now) / 1_000);
        let own = live.filter(|name| self.is_of(key, name, who)).count();
        let is_held = own as u32 >= weight || self.is_disturbed(key);
        check(is_held, "the truth", || {
            format!("{who:?} has {weight} units of key {key}, and {own} are held")
        })
    }

    /// A part of a permit has as many units as its holder knows.
    pub(super) fn weighs(
        &self,
        servers: &[Server],
        (who, key, weight): (Who, Key, u32),
        now: Duration,
    ) -> Verdict {
        let server = &servers[self.settings.server_of(key)];
        let view = server.view(key);
        let live = live(&view.held, server.clock(now) / 1_000);
        let own = live.filter(|name| self.is_of(key, name, who)).count();
        let past = self.past(key);
        let is_vague = self.is_disturbed(key) || past.stepped_back || past.has_old;
        check(own as u32 == weight || is_vague, "weights", || {
            format!("{who:?} has {weight} units of key {key}, and {own} are held")
        })
    }

    fn is_of(&self, key: Key, name: &Name, who: Who) -> bool {
        let is_over = |known: &Known| known.is_over(name);
        name.who() == who && !self.keys.get(&key).is_some_and(is_over)
    }

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
            script.check_limit(|name| known.is_over(name))?;
            script.check_queue()?;
            script.check_answers()?;
            let past = &self.past[server];
            let is_vague = past.stepped_back;
            known.arrive(&script);
            // Another program's key has taken away who lives, or who waits.
            let is_lost = self.settings.slots.poisoned(*key).is_some();
            if is_lost {
                known.fair.forget();
                known.pauses.mark_uncertain();
            } else {
                script.check_pause()?;
            }
            known.fair.ran(&script)?;
            if !is_lost && !known.fair.is_fair() {
                check_order(known, &script, is_vague)?;
            }
            known.keep(after);
        }
        self.note_tokens(run, self.counts_again(server))
    }

    /// A server has run a pause for this time, ms, or the end of one.
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

    /// A process has released ids, some of them whole.
    pub(super) fn released(&mut self, run: &Run) {
        let Command::Release { of, .. } = &run.command else {
            return;
        };
        for (key, ids) in of {
            let whole = ids.iter().filter(|id| id.units == (1, id.weight));
            let whole = whole.map(|id| (run.process, id.serial));
            self.keys.entry(*key).or_default().over.extend(whole);
        }
    }

    /// An operator has revoked an id. Nothing of it is left.
    pub(super) fn revoked(&mut self, run: &Run, was_there: bool) -> Verdict {
        let (_, id) = run.command.ids()[0];
        let who = (run.process, id.permit());
        let (_, before, after) = &run.semaphores[0];
        let clock = run.clock / 1_000;
        // It was listed under the id that it had then.
        let mut own = names(before, clock).filter(|name| name.who() == who);
        let is_renewed = own.any(|name| name.serial != id.serial);
        check(
            knows(before, who, clock) == was_there || is_renewed && !was_there,
            "a revocation",
            || format!("whether {who:?} was there is told wrongly: {before:?}"),
        )?;
        let ids = run.command.ids().into_iter();
        for (key, id) in ids.filter(|_| was_there) {
            let who = (run.process, id.permit());
            // What it has under another id is being released.
            let mut own = names(after, clock).filter(|name| name.who() == who);
            let is_left = own.any(|name| name.serial == id.serial);
            check(!is_left, "a revocation", || {
                format!("{who:?} is left: {after:?}")
            })?;
            self.revoked.insert((key, who));
        }
        Ok(())
    }

    /// What was revoked comes back by its first acquire alone, if that was delayed. Those that do.
    pub(super) fn returned(&mut self, run: &Run) -> Result<Vec<Who>, Violation> {
        let mut returned = Vec::new();
        for (key, before, after) in &run.semaphores {
            let clock = run.clock / 1_000;
            // Of other leases of the permit only what was there stays, until its owner gives them up.
            let own = self.revoked.iter().filter(|(other, _)| other == key);
            let mut own = own.filter(|(_, who)| {
                let mut names = names(after, clock).filter(|name| root(name.who()) == root(*who));
                names.any(|name| !knows(before, name.who(), clock))
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

    /// Tokens strictly increase, and each is given once.
    fn note_tokens(&mut self, run: &Run, is_vague: bool) -> Verdict {
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
            if let Means::Granted(token) = acquired {
                given.push((key, (run.process, wanted.id.permit()), token));
            }
        }
        given.retain(|(_, _, token)| *token > 0);
        given.sort_by_key(|(key, _, token)| (*key, *token));
        for (key, who, token) in given {
            let last = &mut self.keys.entry(key).or_default().last_token;
            check(token > *last || is_vague, "S3", || {
                format!("{who:?} gets token {token} after {last}")
            })?;
            *last = token;
            self.tokens.entry(who).or_default().insert(token);
        }
        Ok(())
    }

    /// Well before a lease could end by itself nothing is left of claims that are over.
    pub(super) fn settled(&self, servers: &[Server], now: Duration) -> Verdict {
        for (key, server) in self.left(servers).filter(|_| self.is_long) {
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            // If another program has overwritten the key of living waiters, a release does not find the waiter. The next
            // claim removes it.
            let is_poisoned = self.settings.slots.poisoned(key).is_some();
            let waits = view.queue.iter().filter_map(|(id, _)| Name::read(id));
            let waits = waits.filter(|_| !is_poisoned);
            let living = waiting(&view, clock).map(|(name, _)| name);
            let mut left = live(&view.held, clock).chain(waits).chain(living);
            let left = left.find(|name| !self.killed.contains(&name.process));
            check(left.is_none(), "L3", || {
                format!("{left:?} of key {key} is left behind")
            })?;
        }
        Ok(())
    }

    /// A process has forgotten the last of its claims: no server has anything of them, except for a moment that its clock
    /// may be ahead.
    pub(super) fn forgets(&self, servers: &[Server], at: usize, now: Duration) -> Verdict {
        for (key, server) in self.left(servers) {
            if self.settings.slots.poisoned(key).is_some() {
                continue;
            }
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            let mut left = live(&view.held, clock + MOMENT);
            let left = left.find(|name| name.process == at);
            check(left.is_none(), "L3", || {
                format!("{left:?} of key {key} is forgotten before its release or its end")
            })?;
        }
        Ok(())
    }

    /// At last nothing is left, even of processes that were killed.
    pub(super) fn end(&self, servers: &[Server], now: Duration) -> Verdict {
        for (key, server) in self.left(servers) {
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            let waits = waiting(&view, clock).map(|(name, _)| name);
            let left = live(&view.held, clock).chain(waits).next();
            check(left.is_none(), "L1", || {
                format!("{left:?} of key {key} is left behind")
            })?;
        }
        Ok(())
    }

    /// The semaphores of which something could only be left by mistake: no old data brought back what was
    /// released, and no clock let an acquire run after its end.
    fn left<'a>(&'a self, servers: &'a [Server]) -> impl Iterator<Item = (Key, &'a Server)> {
        let keys = self.keys.keys().copied();
        let keys = keys.filter(|key| !self.past(*key).has_old && !self.past(*key).stepped_back);
        keys.map(|key| (key, &servers[self.settings.server_of(key)]))
    }
}

impl Known {
    fn is_over(&self, name: &Name) -> bool {
        self.over.contains(&(name.process, name.serial))
    }

    /// Who does not wait is forgotten: whom older data brings back has come when it came.
    fn keep(&mut self, view: &View) {
        let waits: BTreeSet<_> = waiting(view, i64::MIN).map(|(name, _)| name).collect();
        let leaves = self
            .arrivals
            .iter()
            .filter(|(name, _)| !waits.contains(name) && !self.passing.contains(name));
        let left = leaves.map(|(name, (_, arrival))| (name.who(), *arrival));
        self.left.extend(left);
        self.arrivals.retain(|name, _| waits.contains(name));
    }

    /// Notes who comes with this call, in the order of the call, and forgets those that do not wait.
    fn arrive(&mut self, script: &Effect<'_>) {
        self.keep(script.before);
        let waited = waiting(script.before, i64::MIN).map(|(name, _)| name);
        let held = live(&script.before.held, script.clock);
        let old: BTreeSet<_> = held.chain(waited).collect();
        let waits: BTreeSet<_> = waiting(script.after, i64::MIN)
            .map(|(name, _)| name)
            .collect();
        // Those that have died leave before others join.
        let stay = self
            .arrivals
            .iter()
            .filter(|(name, _)| waits.contains(name));
        let mut last = stay.map(|(_, (_, arrival))| *arrival).max().unwrap_or(0);
        self.passing.clear();
        for (name, wanted, _) in script.wanted() {
            if self.arrivals.contains_key(&name) || old.contains(&name) {
                continue;
            }
            let position = wanted.position;
            let arrival = match position.map_or(0, |position| position.arrival as i64) {
                0 => script.run.clock.max(last + 1),
                // Whoever comes back keeps its place, under its own id or another one. The server's number of it is none
                // of those that are counted here.
                arrival => self.left.get(&name.who()).copied().unwrap_or(arrival),
            };
            // What is granted in passing takes no place in the queue.
            if waits.contains(&name) {
                last = last.max(arrival);
            } else {
                self.passing.insert(name);
            }
            let start = position.map_or(0, |position| position.wait.head_start.as_micros() as i64);
            self.arrivals.insert(name, (arrival - start, arrival));
        }
    }
}

/// The permit that a growth belongs to.
fn root((process, PermitId(serial)): Who) -> Who {
    (process, PermitId(serial % GROWTH))
}

/// Whether a permit holds anything, or waits.
pub(super) fn knows(view: &View, who: Who, clock: i64) -> bool {
    names(view, clock).any(|name| name.who() == who)
}

/// What is held or waits.
fn names(view: &View, clock: i64) -> impl Iterator<Item = Name> {
    let waits = view.queue.iter().filter_map(|(id, _)| Name::read(id));
    live(&view.held, clock).chain(waits)
}

/// The semaphore that has given a waiter a token in this run: one that it waited for, or holds since, if there are several.
fn giver(run: &Run, who: Who, token: u64) -> Option<Key> {
    let semaphores = run.semaphores.iter();
    let mut givers =
        semaphores.filter(|(_, before, after)| before.token < token && token <= after.token);
    let waited = |view: &View| waiting(view, i64::MIN).any(|(name, _)| name.who() == who);
    let holds = |view: &View| live(&view.held, i64::MIN).any(|name| name.who() == who);
    let joined = |before: &View, after: &View| holds(after) && !holds(before);
    let first = givers.clone().find(|(_, before, _)| waited(before));
    // A claim of several levels holds the narrower ones since, and was granted in passing where it waits.
    let own = acquired(run).find(|(_, wanted, means)| {
        (run.process, wanted.id.permit()) == who && *means == Means::Queued
    });
    let waits_at = own.map(|(key, ..)| key);
    let first = first.or(givers.clone().find(|(key, ..)| Some(*key) == waits_at));
    let second = givers
        .clone()
        .find(|(_, before, after)| joined(before, after));
    let found = first.or(second).or_else(|| givers.next());
    found.map(|(key, ..)| *key)
}

/// A claim is not refused because of units that its own process had given up before.
pub(super) fn check_own(run: &Run, given_up: &[GivenUp]) -> Verdict {
    for (key, wanted, acquired) in acquired(run) {
        let view = run.semaphores.iter().find(|(other, ..)| *other == key);
        let is_judged = acquired == Means::Full;
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

/// Nobody is granted before a waiter that comes first. After a step back of its clock a server knows only roughly the head
/// starts, and the places of waiters that left its queue and came back: others may have come to an empty queue since.
fn check_order(known: &Known, script: &Effect<'_>, is_vague: bool) -> Verdict {
    let place = |name: &Name| known.arrivals.get(name).copied();
    for name in script.granted() {
        for (waiter, _) in waiting(script.after, script.clock) {
            let (Some(own), Some(other)) = (place(&name), place(&waiter)) else {
                continue;
            };
            if !script.comes_before(&waiter, &name) {
                continue;
            }
            let has_start = own.0 != own.1 || other.0 != other.1;
            let came_back = |name: &Name| known.left.contains_key(&name.who());
            let is_uncertain = has_start || came_back(&name) || came_back(&waiter);
            let is_right = own.0 <= other.0 || is_vague && is_uncertain;
            check(is_right, "F1", || {
                script.says(&format!("{name:?} passes {waiter:?}"))
            })?;
        }
    }
    Ok(())
}
