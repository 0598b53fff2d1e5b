//! Limits that operators set: each process applies the limits that it received last, and receives new ones in time.

use super::{
    Flights, LATE, Verdict, Who,
    calls::Calls,
    check,
    effect::{Name, live, waiting},
    is_dazed,
};
use crate::{
    process::Process,
    server::Server,
    subject::{
        Acquired, Answer, Call, CallId, Claim, Command, Failure, Key, Level, Limits as KnownLimits,
        PermitId, Settings, Time,
    },
    wire::{is_lock, limit_names},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// How long a process may wait after a call that failed, before it sends the next one.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// How often a process asks for limits, at least.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);

/// The part of the judge that follows the limits that operators set.
#[derive(Debug)]
pub(super) struct Limits {
    settings: Settings,
    claims: BTreeMap<Who, Claim>,
    /// The limits that each process received last.
    known: BTreeMap<usize, KnownLimits>,
    /// When each process last asked for limits, or was last unable to.
    asked: BTreeMap<usize, Time>,
    /// The level at which a lease waits, as far as its process knows. The key is that of the lease's first level.
    waits: BTreeMap<(Who, Key), usize>,
    /// Since when a claim has waited under an outdated limit, and its process could know.
    outdated: BTreeMap<(Who, Key), Time>,
    /// The highest limit that was ever set for all semaphores.
    highest: u32,
    /// The processes that make no more claims.
    closed: BTreeSet<usize>,
}

impl Limits {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            claims: BTreeMap::new(),
            known: BTreeMap::new(),
            asked: BTreeMap::new(),
            waits: BTreeMap::new(),
            outdated: BTreeMap::new(),
            highest: 0,
            closed: BTreeSet::new(),
        }
    }

    pub(super) fn closed(&mut self, at: usize) {
        self.closed.insert(at);
    }

    pub(super) fn asked(&mut self, who: Who, claim: Claim) {
        self.claims.insert(who, claim);
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.claims.retain(|(process, _), _| *process != at);
        self.known.remove(&at);
    }

    /// An operator has set a limit.
    pub(super) fn set(&mut self, limit: Option<u32>) {
        self.highest = self.highest.max(limit.unwrap_or_default());
    }

    /// The highest limit that a semaphore may have had.
    pub(super) fn highest(&self, key: Key) -> u32 {
        if is_lock(key) { 0 } else { self.highest }
    }

    /// The limit that is in force for a level, as far as a process knows.
    pub(super) fn in_force(&self, at: usize, level: Level) -> u32 {
        let known = self.known.get(&at).filter(|known| !known.all.is_empty());
        let known = known.filter(|_| !is_lock(level.key));
        let limit = known.and_then(|known| {
            let [own, policy] = limit_names(level.key);
            known.all.get(&own).or(known.all.get(&policy))
        });
        limit.copied().unwrap_or(level.limit)
    }

    /// True if a claim is too heavy for a limit that its process knows.
    pub(super) fn is_too_heavy(&self, at: usize, claim: &Claim) -> bool {
        let mut levels = claim.levels();
        levels.any(|level| level.weight > self.in_force(at, level))
    }

    pub(super) fn replied(
        &mut self,
        at: usize,
        call: &Call,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
    ) {
        if local >= call.deadline {
            return;
        }
        for (command, answer) in call.commands.iter().zip(reply.iter().flatten()) {
            match (command, answer) {
                (Command::Clock { .. }, Answer::Clock(_, _, Some(known))) => {
                    self.known.insert(at, known.clone());
                }
                (Command::Acquire { claims, .. }, Answer::Acquired(_, each)) => {
                    for (claim, acquired) in claims.iter().zip(each) {
                        let (key, wanted) = claim[0];
                        if let Acquired::Queued { level, .. } = acquired {
                            let lease = ((at, wanted.id.permit()), key);
                            self.waits.insert(lease, *level);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// A process sends a call. Checks that claims are acquired under the limits that it received last, except at levels
    /// that they hold already, and that it names the version that it knows if it asks for limits.
    pub(super) fn sent(&mut self, at: usize, call: &Call, local: Time) -> Verdict {
        for command in &call.commands {
            match command {
                Command::Clock {
                    limits: Some(limits),
                    ..
                } => {
                    self.asked.insert(at, local);
                    let known = self.known.get(&at).map(|known| known.version);
                    // A process that gave up waiting for its first limits names version 0: none.
                    let is_true = *limits == known || known.is_none() && *limits == Some(0);
                    check(is_true, "limits", || {
                        format!("p{at} names version {limits:?}, and has received {known:?}")
                    })?;
                }
                Command::Acquire { claims, .. } => {
                    for claim in claims {
                        self.check_claim(at, claim)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn check_claim(&self, at: usize, claim: &[(Key, crate::subject::Wanted)]) -> Verdict {
        let who = (at, claim[0].1.id.permit());
        let first = self.waits.get(&(who, claim[0].0)).copied().unwrap_or(0);
        for (key, wanted) in claim.iter().skip(first) {
            let level = self.claims.get(&who).and_then(|claim| claim.level(*key));
            let Some(level) = level else { continue };
            let limit = self.in_force(at, level);
            check(wanted.id.limit == limit, "limits", || {
                format!(
                    "{who:?} acquires {:?} of key {key} under {limit}",
                    wanted.id
                )
            })?;
        }
        Ok(())
    }

    /// Checks that every process asks in time, and that claims that wait under an outdated limit are acquired again at
    /// once.
    pub(super) fn pass(
        &mut self,
        processes: &[Process],
        servers: &[Server],
        (now, calls): (Duration, &Calls),
        (flights, undecided): (&Flights, &[Who]),
    ) -> Verdict {
        for (at, process) in processes.iter().enumerate() {
            self.check_asks(at, process, (now, calls))?;
        }
        let outdated = self.outdated_now(processes, servers, (now, calls), (flights, undecided));
        self.outdated
            .retain(|which, _| outdated.contains_key(which));
        for (which, local) in outdated {
            let since = *self.outdated.entry(which).or_insert(local);
            check(local <= since + LATE + RETRY_DELAY, "limits", || {
                format!(
                    "{which:?} has waited under an old limit since {since:?}: {:?}",
                    self.known
                )
            })?;
        }
        Ok(())
    }

    fn check_asks(
        &mut self,
        at: usize,
        process: &Process,
        (now, calls): (Duration, &Calls),
    ) -> Verdict {
        let server = self.settings.counting_server();
        let link = &process.links[self.settings.link(0, server)];
        let local = process.local(now);
        let [_, slot] = self.settings.slots_of_store();
        let place = self.settings.slots.place(slot);
        let could = process.core.is_some()
            && link.is_up
            && calls.works(at, server)
            && !is_dazed(process, now)
            && !self.closed.contains(&at)
            && (slot == 0 || place.is_none_or(|_| now >= self.settings.slots.known(slot)));
        let interval = (self.settings.lease / 3).min(LONGEST_INTERVAL);
        let patience = interval + self.settings.timeout * 2 + LATE;
        let asked = self.asked.entry(at).or_insert(local);
        if !could {
            *asked = local;
        }
        check(local <= *asked + patience, "limits", || {
            format!("p{at} has not asked for limits since {asked:?}")
        })
    }

    /// The claims that wait under another limit than their process knows, although the process could acquire them
    /// again.
    fn outdated_now(
        &self,
        processes: &[Process],
        servers: &[Server],
        (now, calls): (Duration, &Calls),
        (flights, undecided): (&Flights, &[Who]),
    ) -> BTreeMap<(Who, Key), Time> {
        let mut outdated = BTreeMap::new();
        for who in undecided {
            let (process, claim) = (&processes[who.0], &self.claims[who]);
            for level in claim.levels() {
                let number = self.settings.server_of(level.key);
                let link = &process.links[self.settings.link(0, number)];
                let mut own = flights.range((who.0, CallId(0))..(who.0 + 1, CallId(0)));
                let is_named = own.any(|(_, flight)| names(&flight.call, who.1));
                let could = process.core.is_some()
                    && link.is_up
                    && now > link.since + LATE
                    && link.in_flight.is_empty()
                    && servers[number].is_ready(now)
                    && calls.works(who.0, number)
                    && calls.is_timed(who.0, number)
                    && !self.settings.slots.is_unknown(now)
                    && !is_dazed(process, now)
                    && !is_named;
                let (view, clock) = (servers[number].view(level.key), servers[number].clock(now));
                let limit = i64::from(self.in_force(who.0, level));
                let is_own = |name: &Name| name.who() == *who;
                let waits = waiting(&view, clock / 1_000).map(|(name, _)| name);
                let mut waits = waits.filter(is_own).peekable();
                let mut has = live(&view.held, clock / 1_000).filter(is_own);
                // Units that came late under an old id are released later.
                let is_old = waits.peek().is_some()
                    && waits.all(|name| name.limit != limit)
                    && has.all(|name| name.limit != limit);
                if could && is_old {
                    outdated.insert((*who, level.key), process.local(now));
                }
            }
        }
        outdated
    }
}

fn names(call: &Call, permit: PermitId) -> bool {
    let mut ids = call.commands.iter().flat_map(Command::ids);
    ids.any(|(_, id)| id.permit() == permit)
}
