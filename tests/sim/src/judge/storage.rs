//! Checks of the scripts by the servers' own logs: the data before and after each run.

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

/// How much the clocks of a process and a server, or of two servers, may diverge during a lease, in ms.
const MOMENT: i64 = 20;

/// The faults of a server so far.
#[derive(Debug, Default, Clone, Copy)]
struct Past {
    stepped_back: bool,
    /// The total number of ms by which its clock was set forward.
    forward: i64,
    has_lost: bool,
    has_old: bool,
}

/// The judge's knowledge of a semaphore.
#[derive(Debug, Default)]
struct Known {
    /// The arrival of each waiter in the queue: first less its head start, then as it was.
    arrivals: BTreeMap<Name, (i64, i64)>,
    /// The arrivals of waiters that have left the queue.
    left: BTreeMap<Who, i64>,
    /// Claims that came with the last call and do not wait after it.
    passing: BTreeSet<Name>,
    /// Processes and serials whose release has run. An acquire that was sent earlier, over a connection that is lost,
    /// may still run after the release. Its units are released again once no more acquires can come.
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
    /// The permits that operators have revoked, by semaphore, as far as servers remember them.
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
        // A clock that is set forward lets keys expire early.
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

    /// A replica replaces a server. It has every grant that counts, and nothing else of the old server's data.
    pub(super) fn failed_over(&mut self, server: usize) {
        self.past[server].has_old = true;
        self.forget(server);
    }

    /// A server goes on with other data. A waiter of that data that waited before keeps its arrival.
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

    /// True if the server may hold units that were given up, again or still.
    pub(super) fn brings_back(&self, server: usize) -> bool {
        self.past[server].stepped_back || self.past[server].has_old
    }

    /// True if a token may be given again.
    pub(super) fn repeats(&self) -> bool {
        let mut pasts = self.past.iter();
        pasts.any(|past| past.has_old || past.has_lost || past.stepped_back)
            || (0..self.past.len()).any(|server| self.counts_again(server))
    }

    /// True if a counter of a server may have restarted below its last token. If the clock is set forward by some
    /// leases, the counter expires early. It restarts at the highest time that a process has seen of any server.
    /// Processes may differ in that time if the clock was set back before, or if another server's clock was set forward
    /// a moment ago.
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

    /// The keys of a semaphore move to a server, which inherits the faults of the old one.
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

    /// True if holders may overlap because a server has forgotten its grants.
    pub(super) fn is_disturbed(&self, key: Key) -> bool {
        let place = self.settings.slots.place(key);
        // While the slot is moving, each of its servers may grant a claim, and each may have forgotten grants.
        let servers = place.map(|place| [Some(place.owner), Some(place.home), place.moves_to]);
        let servers = servers.unwrap_or([Some(self.settings.server_of(key)), None, None]);
        let mut pasts = servers.into_iter().flatten().map(|at| self.past[at]);
        let is_poisoned = self.settings.slots.poisoned(key).is_some();
        is_poisoned || pasts.any(|past| past.has_lost || past.forward > 0)
    }

    /// The tokens given to a claim.
    pub(super) fn tokens(&self, who: Who) -> impl Iterator<Item = u64> {
        self.tokens.get(&who).into_iter().flatten().copied()
    }

    /// Checks that a server holds a permit when its caller receives the grant.
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

    /// Checks that a server holds the number of units that a holder knows of a part of its permit.
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
            // Another program has overwritten the queue, or the set of waiters that are alive.
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

    /// A process has released ids. Notes those that are released as a whole.
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

    /// An operator has revoked an id. Checks that nothing of it is left.
    pub(super) fn revoked(&mut self, run: &Run, was_there: bool) -> Verdict {
        let (_, id) = run.command.ids()[0];
        let who = (run.process, id.permit());
        let (_, before, after) = &run.semaphores[0];
        let clock = run.clock / 1_000;
        // The operator listed the permit under the id that it had then.
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
            // Its units under another id are being released.
            let mut own = names(after, clock).filter(|name| name.who() == who);
            let is_left = own.any(|name| name.serial == id.serial);
            check(!is_left, "a revocation", || {
                format!("{who:?} is left: {after:?}")
            })?;
            self.revoked.insert((key, who));
        }
        Ok(())
    }

    /// Checks that a revoked permit comes back only by its first acquire, if that was delayed. Returns the permits that
    /// do.
    pub(super) fn returned(&mut self, run: &Run) -> Result<Vec<Who>, Violation> {
        let mut returned = Vec::new();
        for (key, before, after) in &run.semaphores {
            let clock = run.clock / 1_000;
            // Other leases of the permit keep what they had until their owner gives them up.
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

    /// Checks that tokens strictly increase, and that each is given once.
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

    /// Checks that nothing is left of claims that are over, well before a lease could end by itself.
    pub(super) fn settled(&self, servers: &[Server], now: Duration) -> Verdict {
        for (key, server) in self.left(servers).filter(|_| self.is_long) {
            let (view, clock) = (server.view(key), server.clock(now) / 1_000);
            // If another program has overwritten the key of living waiters, a release does not find its waiter. The
            // next claim removes that waiter.
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

    /// Checks that no server holds anything of a process that has forgotten its last claim. The process's clock may be
    /// a moment ahead.
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

    /// Checks that nothing is left at the end, even of processes that were killed.
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

    /// The semaphores where only a mistake can leave something behind: no old data brought back released units, and no
    /// clock let an acquire run after its end.
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

    /// Moves waiters that have left the queue to `left`. If older data brings one back, it keeps its arrival.
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

    /// Notes the claims that come with this call, in the order of the call. Waiters that have left are moved to `left`.
    fn arrive(&mut self, script: &Effect<'_>) {
        self.keep(script.before);
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
        let mut last = stay.map(|(_, (_, arrival))| *arrival).max().unwrap_or(0);
        self.passing.clear();
        for (name, wanted, _) in script.wanted() {
            if self.arrivals.contains_key(&name) || old.contains(&name) {
                continue;
            }
            let position = wanted.position;
            let arrival = match position.map_or(0, |position| position.arrival as i64) {
                0 => script.run.clock.max(last + 1),
                // A waiter that comes back keeps its place, under its own id or another one, which may wait still. The
                // server's number for it is none of the arrivals counted here.
                arrival => {
                    let mut stays = self.arrivals.iter();
                    let stays = stays.find(|(other, _)| other.who() == name.who());
                    let known = stays.map(|(_, (_, arrival))| arrival);
                    *known.or(self.left.get(&name.who())).unwrap_or(&arrival)
                }
            };
            // A claim that does not wait after the call takes no place in the queue.
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

/// True if a permit holds anything, or waits.
pub(super) fn knows(view: &View, who: Who, clock: i64) -> bool {
    names(view, clock).any(|name| name.who() == who)
}

/// The permits that hold units, once per unit, and those that wait.
fn names(view: &View, clock: i64) -> impl Iterator<Item = Name> {
    let waits = view.queue.iter().filter_map(|(id, _)| Name::read(id));
    live(&view.held, clock).chain(waits)
}

/// Returns the semaphore that gave a waiter a token in this run. If several may have, it prefers one where the permit
/// waited, and then one where the permit became a holder.
fn giver(run: &Run, who: Who, token: u64) -> Option<Key> {
    let semaphores = run.semaphores.iter();
    let mut givers =
        semaphores.filter(|(_, before, after)| before.token < token && token <= after.token);
    let waited = |view: &View| waiting(view, i64::MIN).any(|(name, _)| name.who() == who);
    let holds = |view: &View| live(&view.held, i64::MIN).any(|name| name.who() == who);
    let joined = |before: &View, after: &View| holds(after) && !holds(before);
    let first = givers.clone().find(|(_, before, _)| waited(before));
    // A claim of several levels becomes a holder of the narrower ones, but the token comes from the level where it
    // waits.
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

/// Checks that no claim is refused because of units that its own process had given up before.
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

/// Checks that no claim is granted before a waiter that comes first. A server whose clock was set back knows head
/// starts only roughly. The same is true of the places of waiters that left its queue and came back: others may have
/// joined the empty queue in between.
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
