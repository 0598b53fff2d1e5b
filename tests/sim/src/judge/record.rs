//! What a caller knows of its claim, and what it must be told by now.

use super::{
    LATE, Verdict, Who,
    calls::Calls,
    check,
    effect::{has_room, live, waiting},
    is_dazed,
    limits::Limits,
    storage::knows,
};
use crate::{
    process::Process,
    server::{Server, View},
    subject::{Acquired, Claim, Event, Key, LEVELS, Level, PermitId, Time},
};
use std::{collections::BTreeMap, time::Duration};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    Holds,
    /// It is told that its permit is lost, and goes on.
    Lost,
    Over,
}

/// A lease of a claim, as its process knows it.
#[derive(Debug)]
pub(super) struct Lease {
    /// The permit, or one that was added to it.
    pub(super) permit: PermitId,
    pub(super) levels: Vec<Level>,
    /// Until when its permit may be held: from the sending of what was answered last.
    pub(super) until: Option<Time>,
    /// The same, by answers in time alone.
    pub(super) counts_until: Option<Time>,
    /// Until when it counts as alive in the queue, likewise.
    pub(super) alive: Option<Time>,
    /// The last answer in its time, and one after that which came too late, so that it may count or not.
    pub(super) answers: [Option<Acquired>; 2],
    /// Whether its process was told that units are gone that it has.
    pub(super) is_not_found: bool,
    /// True if a key of another type kept its last acquire from running.
    pub(super) meets_foreign_key: bool,
    /// Whether its server has refused it last, whether or not its process knows.
    pub(super) is_given_up: bool,
    /// Until when at least it is paused where it waits, by the last answer in time, and when that came.
    pub(super) paused: Option<(Time, Time)>,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) claim: Claim,
    pub(super) leases: Vec<Lease>,
    pub(super) asked: Time,
    pub(super) state: State,
    /// The last tokens that its caller was told.
    pub(super) tokens: [u64; LEVELS],
    /// Whether the caller has given it up.
    pub(super) is_released: bool,
    /// Whether its caller is told that it goes on without its server.
    pub(super) is_degraded: bool,
    /// Since when a permit that is lost could come back: there is room, and a connection.
    pub(super) room_since: Option<Time>,
    /// The server of the level that an operator has revoked.
    pub(super) revoked: Option<usize>,
    /// Since when its process could have heard of that from the server. `None`: it cannot now, or need not.
    pub(super) hears_since: Option<Time>,
    /// Since when it has something of a wider level and not all of a narrower one, and could know.
    pub(super) disordered_since: Option<Time>,
    /// Since when it is the next one at the end of a pause, and could know.
    pub(super) opened_since: Option<Time>,
    /// Whether that server knows of it.
    pub(super) is_remembered: bool,
    /// True if it was ever granted.
    pub(super) was_granted: bool,
    /// Whether its process stood still a moment ago or does now, and whether it ever has.
    pub(super) is_dazed: bool,
    pub(super) was_dazed: bool,
}

/// What is at hand when time passes.
pub(super) struct Moment<'a> {
    pub(super) who: Who,
    pub(super) process: &'a Process,
    /// The process's clock, and the world's.
    pub(super) local: Time,
    pub(super) now: Duration,
    pub(super) servers: &'a [Server],
    /// When the process was told to claim no more.
    pub(super) closed: Option<Time>,
    /// When a process last saw a call to a server fail.
    pub(super) failures: &'a BTreeMap<(usize, usize), Time>,
    pub(super) calls: &'a Calls,
    pub(super) limits: &'a Limits,
}

impl Moment<'_> {
    /// Whether the thread of the process can reach a server.
    fn is_here(&self, number: usize) -> bool {
        let (server, now) = (&self.servers[number], self.now);
        let link = &self.process.links[self.process.settings.link(0, number)];
        let is_quiet = link.stalled_until <= now && link.deaf_until <= now && server.is_ready(now);
        let works = self.calls.works(self.who.0, number) && self.calls.is_timed(self.who.0, number);
        let is_known = !self.process.settings.slots.is_unknown(now);
        is_quiet && is_known && link.is_up && works && !is_dazed(self.process, now)
    }

    /// What is known of a semaphore, and its server's clock.
    fn view(&self, key: Key) -> (View, i64) {
        let server = &self.servers[self.process.settings.server_of(key)];
        (server.view(key), server.clock(self.now) / 1_000)
    }

    /// Whether another program has written over a key of a semaphore.
    fn is_poisoned(&self, key: Key) -> bool {
        let until = self.process.settings.slots.poisoned(key);
        until.is_some_and(|until| self.now <= until)
    }

    /// When a call to a server has failed last.
    fn failed(&self, server: usize) -> Option<Time> {
        self.failures.get(&(self.who.0, server)).copied()
    }

    /// How long what could be done by now has been possible, without a break: from the later of this and of
    /// the last call that has failed.
    fn since(&self, old: Option<Time>, could: bool, servers: &[usize]) -> Option<Time> {
        let could = could && servers.iter().all(|server| self.is_here(*server));
        let failed = servers.iter().filter_map(|server| self.failed(*server));
        could.then(|| {
            old.unwrap_or(self.local)
                .max(failed.max().unwrap_or_default())
        })
    }
}

impl Lease {
    fn new(permit: PermitId, levels: Vec<Level>) -> Self {
        Self {
            permit,
            levels,
            until: None,
            counts_until: None,
            alive: None,
            answers: [None; 2],
            is_given_up: false,
            is_not_found: false,
            meets_foreign_key: false,
            paused: None,
        }
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.levels.iter().any(|level| level.key == key)
    }

    /// Whether its server holds all of it.
    fn is_held(&self, moment: &Moment<'_>) -> bool {
        self.levels.iter().all(|level| {
            let (view, clock) = moment.view(level.key);
            let live = live(&view.held, clock);
            live.filter(|name| name.who() == moment.who).count() as u32 >= level.weight
        })
    }

    /// Whether its server holds anything of it, or has it in a queue.
    fn is_known(&self, moment: &Moment<'_>) -> bool {
        self.levels.iter().any(|level| {
            let (view, clock) = moment.view(level.key);
            knows(&view, moment.who, clock)
        })
    }
}

impl Record {
    /// Whether a grant has a token that the last answer says is not its own.
    pub(super) fn is_stale(&self, event: Event) -> bool {
        let (Event::Granted(_, [token, 0, ..]), [lease]) = (event, &self.leases[..]) else {
            return false;
        };
        let answer = lease.answers[0].filter(|_| lease.levels.len() == 1);
        matches!(answer, Some(Acquired::Queued { last_token, .. }) if token <= last_token)
    }

    pub(super) fn new(
        permit: PermitId,
        claim: Claim,
        leases: Vec<Vec<Level>>,
        asked: Time,
    ) -> Self {
        let leases = leases.into_iter();
        Self {
            claim,
            leases: leases.map(|levels| Lease::new(permit, levels)).collect(),
            asked,
            state: State::Waits,
            tokens: [0; LEVELS],
            is_released: false,
            is_degraded: false,
            room_since: None,
            revoked: None,
            is_remembered: false,
            hears_since: None,
            disordered_since: None,
            opened_since: None,
            was_granted: false,
            is_dazed: false,
            was_dazed: false,
        }
    }

    /// What it has now of each level, and what was added to it.
    pub(super) fn levels(&self) -> impl Iterator<Item = Level> + Clone {
        self.leases
            .iter()
            .flat_map(|lease| lease.levels.iter().copied())
    }

    /// How many units it has of a semaphore.
    pub(super) fn units(&self, key: Key) -> u32 {
        let own = self.levels().filter(|level| level.key == key);
        own.map(|level| level.weight).sum()
    }

    pub(super) fn has_part(&self, permit: PermitId) -> bool {
        self.leases.iter().any(|lease| lease.permit == permit)
    }

    /// The least of what its leases have.
    pub(super) fn least(&self, of: impl Fn(&Lease) -> Option<Time>) -> Option<Time> {
        self.leases.iter().map(of).min().flatten()
    }

    /// Time passes.
    pub(super) fn pass(&mut self, moment: &Moment<'_>) -> Verdict {
        self.is_dazed = is_dazed(moment.process, moment.now);
        self.was_dazed |= self.is_dazed;
        if self.state == State::Over {
            return Ok(());
        }
        match (self.revoked, self.state) {
            (Some(server), _) => self.check_revocation(moment, server)?,
            (None, State::Lost) if moment.closed.is_none() => self.check_return(moment)?,
            (None, State::Waits) => {
                self.check_levels(moment)?;
                self.check_opening(moment)?;
            }
            _ => {}
        }
        if self.is_dazed {
            return Ok(());
        }
        self.check_shutdown(moment)?;
        self.check_waits(moment)?;
        self.check_times(moment)
    }

    fn says(&self, moment: &Moment<'_>, what: &str) -> String {
        let ((at, permit), local) = (moment.who, moment.local);
        format!("p{at} {permit:?} {what} at {local:?}: {self:?}")
    }

    /// Nothing is left of the claims of a process that claims no more.
    fn check_shutdown(&self, moment: &Moment<'_>) -> Verdict {
        let closed = moment.closed.map(|closed| closed.max(self.asked) + LATE);
        let is_late = self.state != State::Lost && closed.is_some_and(|by| moment.local > by);
        check(!is_late, "a shutdown", || self.says(moment, "is left"))
    }

    /// A claim is answered within its budget, and a holder is told in time.
    fn check_times(&self, moment: &Moment<'_>) -> Verdict {
        let budget = moment.process.settings.timeout * 2;
        let end = self.asked + self.claim.longest_wait() + budget + LATE;
        let is_late = self.state == State::Waits && moment.local > end;
        check(!is_late, "F3", || self.says(moment, "has no answer"))?;
        let until = self.least(|lease| lease.until);
        let is_kept = self.state == State::Holds && !self.is_degraded;
        let is_over = is_kept && Some(moment.local) > until;
        check(!is_over, "S2", || {
            self.says(moment, "is not told that it is lost")
        })
    }

    /// A permit that is lost comes back while there is room.
    fn check_return(&mut self, moment: &Moment<'_>) -> Verdict {
        let settings = &moment.process.settings;
        let could = self.levels().all(|level| {
            let is_here = moment.is_here(settings.server_of(level.key));
            is_here && !moment.is_poisoned(level.key) && self.has_room(level, moment)
        });
        self.room_since = could.then(|| self.room_since.unwrap_or(moment.local));
        let patience = settings.absence() + settings.timeout + LATE;
        let is_late = self
            .room_since
            .filter(|since| moment.local > *since + patience);
        check(is_late.is_none(), "a return", || {
            self.says(moment, "does not come back")
        })
    }

    /// Whether another program has written over a key of it.
    fn is_poisoned(&self, moment: &Moment<'_>) -> bool {
        self.levels().any(|level| moment.is_poisoned(level.key))
    }

    /// Whether a server could grant all that it has of a level.
    fn has_room(&self, level: Level, moment: &Moment<'_>) -> bool {
        let (view, clock) = moment.view(level.key);
        let others = live(&view.held, clock)
            .filter(|name| name.process != moment.who.0 || !self.has_part(name.who().1));
        let limit = moment.limits.in_force(moment.who.0, level);
        view.queue.is_empty()
            && view.pause.is_none()
            && others.count() as u32 + self.units(level.key) <= limit
    }

    /// The holder of what was revoked is told when its server could be asked.
    fn check_revocation(&mut self, moment: &Moment<'_>, server: usize) -> Verdict {
        let settings = &moment.process.settings;
        let could = self.is_remembered && !self.is_poisoned(moment);
        self.hears_since = moment.since(self.hears_since, could, &[server]);
        let patience = settings.lease / 3 + settings.timeout * 4;
        let is_late = self
            .hears_since
            .filter(|since| moment.local > *since + patience);
        check(is_late.is_none(), "a revocation", || {
            self.says(moment, "is not told that it was revoked")
        })
    }

    /// The level of each lease at which its process knows that it waits.
    fn waits(&self) -> impl Iterator<Item = (&Lease, Level)> {
        self.leases
            .iter()
            .filter_map(|lease| match lease.answers[0] {
                Some(Acquired::Queued { level, .. }) => Some((lease, lease.levels[level])),
                _ => None,
            })
    }

    /// A claim whose wait would end before a pause does is refused at once.
    fn check_waits(&self, moment: &Moment<'_>) -> Verdict {
        let waits = self.state == State::Waits && self.revoked.is_none();
        let late = self.waits().find(|(lease, level)| {
            let over = level.wait.map(|wait| self.asked + wait.time);
            let paused = lease.paused.zip(over);
            paused.is_some_and(|((until, told), over)| {
                // An answer that comes after both is no reason.
                over.max(told) < until && moment.local > told + LATE
            })
        });
        check(!waits || late.is_none(), "a pause", || {
            self.says(moment, "waits for a pause that outlasts its wait")
        })
    }

    /// At the end of a pause the head of the queue polls.
    fn check_opening(&mut self, moment: &Moment<'_>) -> Verdict {
        let settings = &moment.process.settings;
        let next = self.waits().find(|(_, level)| {
            let (view, clock) = moment.view(level.key);
            let is_over = view.pause.is_some_and(|(_, end)| end <= clock);
            let head = waiting(&view, clock).map(|(name, _)| name).next();
            let is_next =
                head.is_some_and(|name| name.who() == moment.who && has_room(&view, clock, &name));
            is_over && is_next && !moment.is_poisoned(level.key)
        });
        let next = next.map(|(lease, level)| (lease.paused, level.key));
        let key = next.map(|(_, key)| key);
        let servers: Vec<_> = key.iter().map(|key| settings.server_of(*key)).collect();
        self.opened_since = moment.since(self.opened_since, next.is_some(), &servers);
        let patience = match next {
            Some((Some(_), _)) => settings.timeout + LATE,
            _ => settings.heartbeat() + settings.timeout * 2 + LATE,
        };
        let named = key.map(|key| moment.calls.named(moment.who, key));
        // If the server's clock was set forward, the pause is over before the end that the process was told.
        let told = next.and_then(|(paused, _)| paused).map(|(until, _)| until);
        let since = self.opened_since.max(named).max(told);
        let is_late = self.opened_since.is_some()
            && since.is_some_and(|since| moment.local > since + patience);
        check(!is_late, "a pause", || {
            self.says(moment, "is the next after a pause, and does not poll")
        })
    }

    /// A claim that waits holds nothing wider than what it waits for. What is lost is found by a heartbeat.
    fn check_levels(&mut self, moment: &Moment<'_>) -> Verdict {
        if self.leases.len() < 2 {
            return Ok(());
        }
        let settings = &moment.process.settings;
        let known: Vec<_> = self
            .leases
            .iter()
            .map(|lease| lease.is_known(moment))
            .collect();
        let held = self.leases.iter().position(|lease| !lease.is_held(moment));
        let is_poisoned = self.is_poisoned(moment);
        let is_wrong = held.is_some_and(|first| known[first + 1..].contains(&true));
        let is_wrong = is_wrong && !is_poisoned;
        let servers: Vec<_> = (0..moment.servers.len()).collect();
        self.disordered_since = moment.since(self.disordered_since, is_wrong, &servers);
        let patience = settings.heartbeat() + settings.timeout * 2 + LATE;
        let is_late = self
            .disordered_since
            .filter(|since| moment.local > *since + patience);
        check(is_late.is_none(), "the levels", || {
            self.says(moment, "holds a wider level and not a narrower one")
        })
    }
}
