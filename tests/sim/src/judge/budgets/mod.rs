//! Claims with budgets. This judge follows each budget from the calls that its server has run, with its own arithmetic,
//! and compares the result with the server after each of them.
//!
//! - The sum: nothing is granted unless what is spent, what is reserved and the claim's units fit under the limit.
//! - The state: the reservations, their ends, what they have settled, and what is spent and reserved are those that
//!   follow from the calls, exactly.
//! - The bound: over any time `t`, at most `limit * (1 + t / window)` units count as used, if no holder exceeds its
//!   estimate.
//! - Once: what the holder of a permit has used counts once, and a claim that was not granted uses nothing.
//! - The head: the first waiter of a budget is notified when it fits, and is granted soon after.
//! - A revocation: the caller learns of it, even if the message is lost.
//! - The end: after all claims nothing is reserved, and everything comes back.
//!
//! A *rate* is a budget whose units count as used once they are granted. The units of another budget are reserved by a
//! grant, and its holder settles what it has used. Permits beside the budgets are judged by S1, F3 and L1 only.

mod holders;
mod ledger;
mod script;

use super::{LATE, Verdict, Violation, Who, check, effect::Name, is_dazed};
use crate::{
    process::Process,
    schedule::Schedule,
    server::{BudgetView, Run, Server, View},
    subject::{Charge, Claim, Event, Key, Level, Policy, Refused, Settings, Time},
    wire,
};
use holders::{Holder, Phase};
use ledger::{Ledger, Use, lease_of, terms};
use script::{Act, Decision, Wanted};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The answer to a claim that waits.
const WAITS: i64 = -2;

/// A budget on a server.
type Place = (usize, Key);

/// The units of an id that count as used.
#[derive(Debug, Default, Clone, Copy)]
struct Account {
    used: i64,
    /// True if it has expired, or an operator has revoked it.
    is_lost: bool,
    /// True if it has expired before its process could make it last for a whole lease. Then none of it counts as used,
    /// even if the permit was granted a moment before.
    is_freed: bool,
    /// Units that stay spent although a later grant of the id counts again: its claim was refused after a grant that too few
    /// replicas had confirmed, or the grant expired before its process knew it.
    wasted: i64,
}

/// The units of a budget that were used, as a bucket that leaks `limit` units in each window.
#[derive(Debug, Default)]
struct Bound {
    /// As in a [`Ledger`]: units times the window in ms.
    parts: i128,
    at: i64,
    limit: i64,
    /// True if the bound does not hold: limits differ, or holders exceed their estimates.
    is_off: bool,
}

/// The last state of a semaphore or a budget that a judge has seen.
#[derive(Debug, Default)]
struct Seen {
    view: View,
    /// Since when the first waiter has fitted.
    fits_since: Option<Duration>,
}

#[derive(Debug)]
pub(super) struct Budgets {
    settings: Settings,
    policies: Vec<Policy>,
    /// True if nothing fails in this schedule.
    is_clean: bool,
    /// True if nothing fails, and operators only revoke.
    is_calm: bool,
    /// How long a call may take, there and back.
    trip: Duration,
    ledgers: BTreeMap<Place, Ledger>,
    seen: BTreeMap<Place, Seen>,
    holders: BTreeMap<Who, Holder>,
    accounts: BTreeMap<(Key, Name), Account>,
    bounds: BTreeMap<Key, Bound>,
    /// The local buckets of processes: a bound for each budget.
    buckets: BTreeMap<(usize, Key), Bound>,
    /// The budgets with a command that a server has lost or repeated.
    vague: BTreeSet<Key>,
    /// The servers whose clocks were set.
    stepped: BTreeSet<usize>,
    /// The servers that have lost data, or started with old data.
    aged: BTreeSet<usize>,
    /// The semaphores and budgets that have moved to a server with another clock.
    moved: BTreeSet<Key>,
    killed: BTreeSet<usize>,
    closed: BTreeSet<usize>,
}

/// The permit that an id names.
fn permit_of(id: &str) -> Option<Who> {
    Name::read(id).map(|name| name.who())
}

/// A budget, the first of its waiters before a run, and whether that waiter fitted then.
type Head = (Key, Option<String>, bool);

fn window(key: Key) -> Option<i128> {
    wire::window(key).map(i128::from)
}

/// A violation with the run that shows it.
fn fails<T>(rule: &'static str, text: &str, run: &Run) -> Result<T, Violation> {
    Err(Violation {
        rule,
        text: format!(
            "{text} at {}, by p{} {:?}, answered {:?}: {:?} {:?}",
            run.clock / 1_000,
            run.process,
            run.script,
            run.reply,
            run.semaphores,
            run.budgets
        ),
    })
}

fn live(view: &View, now: i64) -> usize {
    view.held.iter().filter(|(_, ends)| *ends > now).count()
}

/// The first waiter that counts as alive, unless the semaphore is paused.
fn head(view: &View, now: i64) -> Option<&str> {
    let is_paused = view.pause.is_some_and(|(_, ends)| ends > now);
    let (id, _) = view.queue.first().filter(|_| !is_paused)?;
    let mut alive = view.alive.iter();
    let is_alive = alive.any(|(other, until)| other == id && *until > now);
    is_alive.then_some(id)
}

impl Budgets {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            settings: schedule.settings(0),
            policies: schedule.policies.to_vec(),
            is_clean: schedule.is_clean(),
            is_calm: schedule.is_calm(),
            // A slow delay is ten times as long, in each direction.
            trip: Duration::from_millis(20 * schedule.delay + 10),
            ledgers: BTreeMap::new(),
            seen: BTreeMap::new(),
            holders: BTreeMap::new(),
            accounts: BTreeMap::new(),
            bounds: BTreeMap::new(),
            buckets: BTreeMap::new(),
            vague: BTreeSet::new(),
            stepped: BTreeSet::new(),
            aged: BTreeSet::new(),
            moved: BTreeSet::new(),
            killed: BTreeSet::new(),
            closed: BTreeSet::new(),
        }
    }

    // Servers.

    /// A server has run a script.
    pub(super) fn ran(&mut self, server: usize, run: &Run) -> Verdict {
        let now = run.clock / 1_000;
        let reply = match &run.reply {
            Ok(reply) => reply,
            Err(Refused::WrongType | Refused::Midway) => {
                self.forget(server, run);
                return Ok(());
            }
            Err(_) => return Ok(()),
        };
        let Some(acts) = script::read(&run.script, reply) else {
            return fails("script", "it cannot be read", run);
        };
        let Some((acts, lasts)) = acts else {
            return Ok(());
        };
        if self.has_expired_by_a_jump(server, run) {
            self.forget(server, run);
            return Ok(());
        }
        let mut heads = Vec::new();
        for (key, before, _) in &run.budgets {
            let place = (server, *key);
            let view = self.view_of(run, *key, false);
            let window = wire::window(*key).expect("it is a budget");
            let ledger = self
                .ledgers
                .entry(place)
                .or_insert_with(|| Ledger::read(window, view, before, now));
            if ledger.time() > now && !ledger.rewind(before) {
                return fails("the state", &format!("units are free: {ledger:?}"), run);
            }
            if before.state.is_none() && ledger.is_used() && ledger.unused_from(ledger.time()) > now
            {
                return fails("a TTL", &format!("the state is gone: {ledger:?}"), run);
            }
            let uses = ledger.advance(now);
            let first = head(view, now).map(str::to_owned);
            let fits = first.as_ref().is_some_and(|id| ledger.fits(id, now));
            heads.push((*key, first, fits));
            self.count(*key, uses)?;
        }
        for act in &acts {
            self.act(server, run, act, (lasts, &acts))?;
        }
        for (key, _, after) in &run.budgets {
            let view = self.view_of(run, *key, true);
            let window = wire::window(*key).expect("it is a budget");
            let ledger = self.ledgers.get_mut(&(server, *key)).expect("it is known");
            if ledger.leaks() {
                *ledger = Ledger::read(window, view, after, now);
                continue;
            }
            if let Some(text) = ledger.compare(view, after, now) {
                return fails("the state", &format!("key {key}: {text}"), run);
            }
            let unused_from = ledger.unused_from(now);
            let [held, state] = after.expires;
            let last = view
                .held
                .iter()
                .map(|(id, ends)| (*ends).min(now + lease_of(id)));
            let last = last.max();
            if after.state.is_some() && state.is_none_or(|ends| ends < unused_from)
                || held.is_some_and(|ends| Some(ends) < last)
            {
                let text = format!("key {key} is unused from {unused_from} and expires {after:?}");
                return fails("a TTL", &text, run);
            }
        }
        self.check_permits(run)?;
        self.check_messages(server, run, (&acts, heads))?;
        for (key, _, after) in &run.semaphores {
            let seen = self.seen.entry((server, *key)).or_default();
            if head(&seen.view, now) != head(after, now) {
                seen.fits_since = None;
            }
            seen.view = after.clone();
        }
        Ok(())
    }

    fn view_of<'a>(&self, run: &'a Run, key: Key, is_after: bool) -> &'a View {
        let mut semaphores = run.semaphores.iter();
        let found = semaphores.find(|(other, ..)| *other == key);
        let (_, before, after) = found.expect("the run has all semaphores of its script");
        if is_after { after } else { before }
    }

    /// True if a key is gone, or is back, because the clock of its server was set. A key expires as soon as the clock is ahead
    /// of its end, and the stand-in brings it back if the clock is set back before a command names it.
    fn has_expired_by_a_jump(&self, server: usize, run: &Run) -> bool {
        run.budgets.iter().any(|(key, before, _)| {
            let may_jump = self.stepped.contains(&server) || self.moved.contains(key);
            let ledger = self.ledgers.get(&(server, *key)).filter(|_| may_jump);
            ledger.is_some_and(|ledger| {
                let held = self.view_of(run, *key, false).held.iter();
                let held: BTreeSet<_> = held.map(|(id, _)| id).collect();
                let is_gone = before.state.is_none() && ledger.is_used();
                is_gone || !ledger.has_exactly(&held)
            })
        })
    }

    /// The budgets of a run are in an unknown state: the script was aborted, or a clock has jumped.
    fn forget(&mut self, server: usize, run: &Run) {
        for (key, ..) in &run.budgets {
            self.ledgers.remove(&(server, *key));
            self.vague.insert(*key);
        }
    }

    fn act(
        &mut self,
        server: usize,
        run: &Run,
        act: &Act<'_>,
        (lasts, acts): (i64, &[Act<'_>]),
    ) -> Verdict {
        let now = run.clock / 1_000;
        match act {
            Act::Claim(claim, decision) => {
                self.decided(server, run, (claim, decision), (lasts, acts))
            }
            Act::Refresh(key, id, total) => {
                let is_whole = lasts >= self.settings.lease.as_millis() as i64;
                let Some(ledger) = self.ledgers.get_mut(&(server, *key)) else {
                    return Ok(());
                };
                ledger.extend(id, now + lasts, is_whole);
                if is_whole {
                    let growth = ledger.settle(id, *total);
                    self.settles(*key, id, (growth, now))?;
                }
                Ok(())
            }
            Act::Release(key, id, total, stays) => {
                let Some(ledger) = self.ledgers.get_mut(&(server, *key)) else {
                    return Ok(());
                };
                let growth = ledger.settle(id, *total);
                ledger.free(id, *stays);
                self.settles(*key, id, (growth, now))
            }
            Act::Revoke(key, id) => {
                let after = self.view_of(run, *key, true);
                let is_held = after.held.iter().any(|(other, _)| other == id);
                let ledger = self.ledgers.get_mut(&(server, *key));
                let Some(ledger) = ledger.filter(|ledger| ledger.has(id) && !is_held) else {
                    return Ok(());
                };
                let growth = ledger.settle(id, terms(id).1);
                ledger.free(id, false);
                if let Some(name) = Name::read(id) {
                    self.accounts.entry((*key, name)).or_default().is_lost = true;
                    let holder = self.holders.get_mut(&name.who());
                    holder
                        .into_iter()
                        .for_each(|holder| holder.revoked = Some((server, now)));
                }
                self.settles(*key, id, (growth, now))
            }
        }
    }

    fn settles(&mut self, key: Key, id: &str, (units, at): (i64, i64)) -> Verdict {
        let own = Use {
            id: id.to_owned(),
            units,
            at,
            is_lost: false,
            is_freed: false,
        };
        self.count(key, vec![own])
    }

    /// Decides a claim as the server has.
    fn decided(
        &mut self,
        server: usize,
        run: &Run,
        (claim, decision): (&[Wanted<'_>], &Decision),
        (lasts, acts): (i64, &[Act<'_>]),
    ) -> Verdict {
        let now = run.clock / 1_000;
        let is_whole = lasts >= self.settings.lease.as_millis() as i64;
        match decision {
            Decision::Granted => {
                for level in claim.iter().filter(|level| !level.is_back()) {
                    let Some(ledger) = self.ledgers.get_mut(&(server, level.key)) else {
                        continue;
                    };
                    let (limit, weight) = terms(level.id);
                    let bound = self.bounds.entry(level.key).or_default();
                    bound.is_off |= bound.limit != 0 && bound.limit != limit;
                    bound.limit = limit;
                    if !ledger.has(level.id) && !ledger.fits(level.id, now) {
                        let text = format!("{} does not fit: {ledger:?}", level.id);
                        return fails("the sum", &text, run);
                    }
                    ledger.grant(level.id, limit, now + lasts);
                    let total = if level.is_rate() { weight } else { 0 };
                    if is_whole {
                        let growth = ledger.settle(level.id, total);
                        self.settles(level.key, level.id, (growth, now))?;
                    }
                }
            }
            Decision::Other(why, at, rest) => {
                self.check_refusal(server, (run, acts), (claim, *at), (*why, rest))?;
                for level in claim {
                    let after = self.view_of(run, level.key, true);
                    let is_held = after.held.iter().any(|(id, _)| id == level.id);
                    let place = (server, level.key);
                    let ledger = self.ledgers.get_mut(&place);
                    let Some(ledger) = ledger.filter(|own| own.has(level.id)) else {
                        continue;
                    };
                    if is_held {
                        // It keeps that for as long as it counts as a waiter.
                        if *why == WAITS {
                            ledger.extend(level.id, now + claim[*at].alive(), false);
                        }
                        continue;
                    }
                    // It has given up what it had. The holder of a permit that comes back may have used all of it.
                    let used = if level.is_back() {
                        terms(level.id).1
                    } else {
                        0
                    };
                    let wasted = ledger.settled(level.id);
                    let growth = ledger.settle(level.id, used);
                    ledger.free(level.id, false);
                    let name = Name::read(level.id).expect("it is an id");
                    let account = self.accounts.entry((level.key, name)).or_default();
                    if level.is_back() {
                        account.is_lost = true;
                    } else {
                        account.wasted += wasted;
                    }
                    self.settles(level.key, level.id, (growth, now))?;
                }
            }
        }
        Ok(())
    }

    /// Checks the answer to a claim that is not granted: that it does not fit, and when it will.
    fn check_refusal(
        &self,
        server: usize,
        (run, acts): (&Run, &[Act<'_>]),
        (claim, at): (&[Wanted<'_>], usize),
        (why, rest): (i64, &[i64]),
    ) -> Verdict {
        let (now, level) = (run.clock / 1_000, &claim[at]);
        let Some(ledger) = self.ledgers.get(&(server, level.key)) else {
            return Ok(());
        };
        let after = self.view_of(run, level.key, true);
        let terms = terms(level.id);
        let due = ledger.due(terms, ledger.all_reserved(), now);
        let is_paused = after.pause.is_some_and(|(_, ends)| ends > now);
        if is_paused || ledger.leaks() {
            return Ok(());
        }
        match (why, rest) {
            (0, retry) => {
                let before = self.view_of(run, level.key, false);
                let is_first = after.queue.is_empty() && before.queue.is_empty();
                if due == Some(0) && is_first {
                    return fails("a refusal", &format!("{} fits", level.id), run);
                }
                let has_time = retry.first().is_none_or(|retry| Some(*retry) == due);
                let is_told = !is_first || due.is_none() || !retry.is_empty();
                if !has_time || !is_told {
                    return fails("a refusal", &format!("{} fits in {due:?}", level.id), run);
                }
            }
            // The arrival and the last token do not matter here.
            (WAITS, [_arrival, recheck, _last_token, pause, earliest]) => {
                // Claims that were decided before or after it may have changed the queue.
                let is_only = matches!(acts, [_]);
                let is_head = after.queue.first().is_some_and(|(id, _)| id == level.id) && is_only;
                // A waiter that comes back before others polls at once.
                if is_head && due == Some(0) && *recheck != 0 {
                    return fails("F4", &format!("{} waits and fits", level.id), run);
                }
                let first = ledger.due(terms, 0, now).unwrap_or(-1);
                // A reservation that ends may make room too.
                let live = after.held.iter().filter(|(_, ends)| *ends > now);
                let ends = live.map(|(_, ends)| ends - now).min();
                let soonest = [due, ends].into_iter().flatten().min();
                let is_right = !is_head || *recheck == soonest.unwrap_or(-1);
                if !is_right || *earliest != first || *pause != -1 {
                    let text = format!("{} fits in {due:?}, or {first} at best", level.id);
                    return fails("a wait", &text, run);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Counts units that a server takes for used.
    fn count(&mut self, key: Key, uses: Vec<Use>) -> Verdict {
        for used in uses {
            let Some(name) = Name::read(&used.id) else {
                continue;
            };
            let (_, weight) = terms(&used.id);
            let account = self.accounts.entry((key, name)).or_default();
            account.used += used.units;
            if used.is_lost {
                account.is_lost = true;
                account.wasted = account.used;
            }
            account.is_freed |= used.is_freed;
            let exceeds = account.used > weight;
            let bound = self.bounds.entry(key).or_default();
            bound.is_off |= exceeds || self.vague.contains(&key);
            let terms = (bound.limit, window(key).expect("it is a budget"));
            let is_within = used.units == 0 || bound.add((used.units.into(), used.at), terms, 0);
            check(is_within || bound.is_off, "the bound", || {
                format!("key {key} at {}: {bound:?} by {used:?}", used.at)
            })?;
        }
        Ok(())
    }

    /// S1 of the permits beside the budgets.
    fn check_permits(&self, run: &Run) -> Verdict {
        let now = run.clock / 1_000;
        for (key, before, after) in &run.semaphores {
            if window(*key).is_some() {
                continue;
            }
            let is_new = |(id, ends): &&(String, i64)| {
                let mut old = before.held.iter();
                *ends > now && !old.any(|(other, ends)| other == id && *ends > now)
            };
            let granted = after.held.iter().filter(is_new);
            let limit = granted.map(|(unit, _)| terms(unit).0).max();
            if limit.is_some_and(|limit| live(after, now) as i64 > limit) {
                return fails("S1", &format!("key {key}"), run);
            }
        }
        Ok(())
    }

    /// A waiter that has become the first, or fits since this run, is notified.
    fn check_messages(
        &self,
        server: usize,
        run: &Run,
        (acts, heads): (&[Act<'_>], Vec<Head>),
    ) -> Verdict {
        let now = run.clock / 1_000;
        for (key, first, did_fit) in heads {
            let after = self.view_of(run, key, true);
            let Some(id) = head(after, now) else {
                continue;
            };
            let fits = self.ledgers[&(server, key)].fits(id, now);
            let is_new = first.as_deref() != Some(id) || !did_fit;
            let is_answered = acts.iter().any(|act| match act {
                // It may wait for another level now.
                Act::Claim(claim, Decision::Other(WAITS, at, rest)) => {
                    let is_own = claim.iter().any(|level| level.id == id && level.key == key);
                    // `rest[1]` is the time until its next poll, or -1.
                    is_own && (claim[*at].key != key || rest[1] >= 0)
                }
                _ => false,
            });
            // PROCESS, which the channel names, and PERMIT, LEASE and GENERATION, which begin the message.
            let parts: Vec<_> = id.split('.').take(4).collect();
            let is_told = run.published.iter().any(|(channel, text)| {
                let is_own = channel.ends_with(&format!("wake:{}", parts[0]));
                is_own && text.starts_with(&(parts[1..].join(".") + " "))
            });
            if fits && is_new && !is_answered && !is_told {
                let text = format!("{id} of key {key} is not told that it fits");
                return fails("a message", &text, run);
            }
        }
        Ok(())
    }

    /// A server loses data, or gets old data back.
    pub(super) fn forgets(&mut self, server: usize) {
        self.aged.insert(server);
        let own = self.ledgers.keys().filter(|(other, _)| *other == server);
        let keys: Vec<_> = own.map(|(_, key)| *key).collect();
        self.vague.extend(keys);
        self.ledgers.retain(|(other, _), _| *other != server);
        self.seen.retain(|(other, _), _| *other != server);
    }

    /// The clock of a server was set.
    pub(super) fn stepped(&mut self, server: usize) {
        self.stepped.insert(server);
        for (_, key) in self.ledgers.keys().filter(|(other, _)| *other == server) {
            self.bounds.entry(*key).or_default().is_off = true;
        }
    }

    /// The keys of a slot have moved to another server.
    pub(super) fn migrated(&mut self, slot: Key, (from, to): (usize, usize)) {
        let keys = (0..=Key::MAX).filter(|key| wire::slot_key(*key) == slot);
        for key in keys {
            self.ledgers.remove(&(to, key));
            self.seen.remove(&(to, key));
            self.moved.insert(key);
            if let Some(ledger) = self.ledgers.remove(&(from, key)) {
                self.ledgers.insert((to, key), ledger);
                self.bounds.entry(key).or_default().is_off = true;
            }
            if let Some(seen) = self.seen.remove(&(from, key)) {
                self.seen.insert((to, key), seen);
            }
        }
    }

    // Time.

    pub(super) fn pass(
        &mut self,
        processes: &[Process],
        servers: &[Server],
        now: Duration,
    ) -> Verdict {
        self.check_answers(processes, now)?;
        self.check_revocations(servers, now)?;
        if !self.is_clean {
            return Ok(());
        }
        let places: Vec<_> = self.seen.keys().copied().collect();
        let bound = self.settings.heartbeat() + self.trip * 2;
        for (server, key) in places {
            let clock = |server: usize| servers[server].clock(now) / 1_000;
            let seen = &self.seen[&(server, key)];
            let first = head(&seen.view, clock(server)).filter(|_| window(key).is_some());
            let fits = first.is_some_and(|id| self.fits_everywhere(id, clock));
            let first = first.map(str::to_owned);
            let seen = self.seen.get_mut(&(server, key)).expect("it is there");
            let since = fits.then(|| *seen.fits_since.get_or_insert(now));
            seen.fits_since = since;
            if let Some(since) = since.filter(|since| now > *since + bound) {
                return Err(Violation {
                    rule: "F4",
                    text: format!("{first:?} of key {key} has fitted since {since:?}"),
                });
            }
        }
        Ok(())
    }

    /// True if a waiter fits at all of its levels, and nothing waits before it.
    fn fits_everywhere(&self, id: &str, clock: impl Fn(usize) -> i64) -> bool {
        let Some(holder) = Name::read(id).and_then(|name| self.holders.get(&name.who())) else {
            return false;
        };
        if !holder.is_claim() {
            return false;
        }
        holder.claim.levels().all(|level| {
            let server = self.settings.server_of(level.key);
            let (place, now) = ((server, level.key), clock(server));
            let own = |(other, _): &(String, i64)| {
                Name::read(other).map(|name| name.who()) == Name::read(id).map(|name| name.who())
            };
            let Some(seen) = self.seen.get(&place) else {
                return true;
            };
            let held = seen.view.held.iter();
            let has = held.clone().any(|unit| own(unit) && unit.1 > now);
            let is_first = seen.view.queue.first().is_none_or(own) && seen.view.pause.is_none();
            let fits = match self.ledgers.get(&place) {
                Some(ledger) => {
                    let terms = (level.limit.into(), level.weight.into());
                    ledger.due(terms, ledger.all_reserved(), now) == Some(0)
                }
                None => live(&seen.view, now) as u32 + level.weight <= level.limit,
            };
            has || is_first && fits
        })
    }

    /// F3: each claim is answered in its time.
    fn check_answers(&self, processes: &[Process], now: Duration) -> Verdict {
        let open = self.holders.iter().filter(|(_, holder)| holder.is_claim());
        for (who, holder) in open {
            let process = &processes[who.0];
            if process.core.is_none() || is_dazed(process, now) {
                continue;
            }
            let longest = holder.claim.longest_wait() + self.settings.timeout * 2;
            let is_due = process.local(now) > holder.asked + longest + LATE;
            check(!is_due, "F3", || format!("{who:?} has no answer"))?;
        }
        Ok(())
    }

    /// The caller of a permit or claim that was revoked learns of it from the next refresh, a third of a lease later, if the
    /// message is lost.
    fn check_revocations(&self, servers: &[Server], now: Duration) -> Verdict {
        let patience = self.settings.lease / 3 + self.settings.timeout * 4;
        let open = self.holders.iter().filter(|(_, holder)| holder.is_open);
        for (who, holder) in open.filter(|_| self.is_calm) {
            let Some((server, at)) = holder.revoked.filter(|_| !self.closed.contains(&who.0))
            else {
                continue;
            };
            let is_late = servers[server].clock(now) / 1_000 > at + patience.as_millis() as i64;
            check(!is_late, "a revocation", || {
                format!("{who:?} is not notified that it was revoked at {at}: {holder:?}")
            })?;
        }
        Ok(())
    }

    // The end.

    /// Every claim has been over for a while: nothing of any process is left that has not been killed.
    pub(super) fn check_cleared(&self, servers: &[Server], now: Duration) -> Verdict {
        for (number, key) in self.seen.keys() {
            // Old data brings units back that were released. On a server with another clock they last longer.
            let is_excused = self.aged.contains(number)
                || self.stepped.contains(number)
                || self.moved.contains(key);
            if self.settings.server_of(*key) != *number || is_excused {
                continue;
            }
            let view = servers[*number].view(*key);
            let clock = servers[*number].clock(now) / 1_000;
            let ends = view.held.iter().chain(&view.alive);
            let left = ends.filter(|(_, ends)| *ends > clock);
            let mut left = left.filter_map(|(id, _)| Name::read(id));
            let left = left.find(|name| !self.killed.contains(&name.process));
            check(left.is_none(), "L1", || {
                format!("{left:?} of key {key} is left")
            })?;
        }
        Ok(())
    }

    /// A budget long after the end.
    pub(super) fn touched(
        &mut self,
        place: Place,
        (view, budget): &(View, BudgetView),
        clock: i64,
    ) -> Verdict {
        let [spent, at, reserved, limit, credit] = budget.state.unwrap_or([0, clock, 0, 0, 0]);
        let window = window(place.1).expect("it is a budget");
        let passed = i128::from((clock - at).max(0)) * i128::from(limit);
        let is_unused = i128::from(spent) * window - i128::from(credit) <= passed;
        let text = || format!("key {}: {view:?} {budget:?} at {clock}", place.1);
        let is_empty = view.held.is_empty() && reserved == 0;
        // A reservation from before a clock was set back may last longer.
        let is_excused = self.stepped.contains(&place.0) || self.moved.contains(&place.1);
        check(is_empty || is_excused, "the end", text)?;
        let Some(ledger) = self.ledgers.get_mut(&place) else {
            return Ok(());
        };
        let uses = ledger.advance(clock);
        let is_late = ledger.unused_from(clock) <= clock;
        let is_excused = is_excused || self.vague.contains(&place.1);
        check(is_late == is_unused || is_excused, "the end", text)?;
        self.count(place.1, uses)
    }

    /// The simulation is over.
    pub(super) fn end(&self, processes: &[Process]) -> Verdict {
        for (at, process) in processes.iter().enumerate() {
            let core = process.core.as_ref();
            let is_idle = core.is_none_or(crate::shipped::Shipped::is_idle);
            check(is_idle, "memory", || {
                format!("p{at} remembers what is over")
            })?;
        }
        let levels = |holder: &Holder| holder.claim.levels().enumerate().collect::<Vec<_>>();
        for (who, holder) in &self.holders {
            for (number, level) in levels(holder) {
                if window(level.key).is_some() && !self.vague.contains(&level.key) {
                    self.check_once(*who, holder, (number, level))?;
                }
            }
        }
        Ok(())
    }

    /// Once: the units that count for a permit are those that its holder has used.
    fn check_once(&self, who: Who, holder: &Holder, (number, level): (usize, Level)) -> Verdict {
        let accounts = self.accounts.iter();
        let own = accounts.filter(|((key, name), _)| *key == level.key && name.who() == who);
        let own: Vec<_> = own
            .map(|((_, name), account)| (name.serial, *account))
            .collect();
        let used: i64 = own.iter().map(|(_, account)| account.used).sum();
        let is_lost =
            own.iter().any(|(_, account)| account.is_lost) || self.killed.contains(&who.0);
        let is_freed = own.iter().any(|(_, account)| account.is_freed);
        let weight = i64::from(level.weight);
        let most = weight.max(holder.used[number].unwrap_or(0).into());
        let ids = own.len() as i64;
        let is_rate = level.charge == Some(Charge::Grant);
        let is_right = match holder.phase {
            Phase::Granted if is_rate => used >= weight || is_lost || is_freed,
            Phase::Granted => {
                let expected = holder.used[number].map_or(weight, i64::from);
                // A lost permit counts as it was settled at its loss. Under each id before the last, all of it counts.
                let is_vague = holder.was_lost && holder.used[number].is_some() || ids > 1;
                used == expected || is_lost || is_freed || is_vague
            }
            Phase::Admitted => true,
            // A rate of unknown outcome stays spent.
            Phase::Claim | Phase::Over => {
                let is_unknown = !self.is_clean || !holder.is_refused;
                used == 0 || is_rate && is_unknown || is_lost
            }
        };
        let most = if is_rate || is_lost {
            most * ids.max(1)
        } else {
            most
        };
        let wasted: i64 = own.iter().map(|(_, account)| account.wasted).sum();
        // If a clock jumps ahead of the end of a reservation, its acquire may run once more.
        let has_jumped = self.moved.contains(&level.key) || !self.stepped.is_empty();
        check(
            is_right && (used - wasted <= most || has_jumped),
            "once",
            || format!("{who:?} level {number} {level:?}: {used} of {most}, {own:?}, {holder:?}"),
        )
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.killed.insert(at);
        self.holders
            .iter_mut()
            .filter(|((process, _), _)| *process == at)
            .for_each(|(_, holder)| holder.is_open = false);
    }
}

impl Bound {
    /// Adds units that are used at a time in ms. Returns true if they are within the bound plus what returns in `late`
    /// ms.
    fn add(&mut self, (units, at): (i128, i64), (limit, window): (i64, i128), late: i64) -> bool {
        let passed = i128::from((at - self.at).max(0)) * i128::from(limit);
        self.parts = (self.parts - passed).max(0) + units * window;
        self.at = self.at.max(at);
        self.parts <= i128::from(limit) * (window + i128::from(late))
    }
}
