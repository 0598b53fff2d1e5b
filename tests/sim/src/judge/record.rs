//! A caller's knowledge of its claim, and the events that it must have received by now.

use super::{
    LATE, Verdict, Who,
    calls::Calls,
    check,
    effect::{Name, has_room, live, waiting},
    is_dazed,
    limits::Limits,
    storage::is_present,
};
use crate::{
    process::Process,
    server::{Server, View},
    subject::{Acquired, Claim, Event, Key, LEVELS, Level, PermitId, Time},
};
use std::{collections::BTreeMap, time::Duration};

/// The state of a claim and its permit, as the caller knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Waits,
    Holds,
    /// The permit is lost, and its caller goes on. It may come back.
    Lost,
    /// The claim was refused, revoked or given up.
    Over,
}

/// A lease of a claim, as its process knows it.
#[derive(Debug)]
pub(super) struct Lease {
    /// The permit, or a growth of it.
    pub(super) permit: PermitId,
    pub(super) levels: Vec<Level>,
    /// When it ends, counted from the sending of the last call whose answer granted or kept it.
    pub(super) until: Option<Time>,
    /// The same, counting only answers that came in time.
    pub(super) counts_until: Option<Time>,
    /// When it no longer counts as alive in the queue, counted in the same way.
    pub(super) alive: Option<Time>,
    /// The last answer that came in time, and a later answer that came too late. A core may use the late one or ignore
    /// it.
    pub(super) answers: [Option<Acquired>; 2],
    /// True if a server has reported that units of it are gone.
    pub(super) is_not_found: bool,
    /// True if its last acquire met a key of another type, which another program wrote, and did not run.
    pub(super) meets_foreign_key: bool,
    /// True if its server refused it last, even if its process does not know that.
    pub(super) is_refused: bool,
    /// By the last answer in time: the end of the pause of the level at which it waits, and when that answer came.
    pub(super) paused: Option<(Time, Time)>,
}

/// A claim and its permit, as its caller and its process know them.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) claim: Claim,
    pub(super) leases: Vec<Lease>,
    /// When its caller made it.
    pub(super) asked: Time,
    pub(super) state: State,
    /// The tokens that its caller received last.
    pub(super) tokens: [u64; LEVELS],
    /// True once the caller has given it up.
    pub(super) is_released: bool,
    /// True while its caller knows that it goes on without its server.
    pub(super) is_degraded: bool,
    /// Since when a lost permit could have come back: the limit has room, and a connection is up.
    pub(super) room_since: Option<Time>,
    /// The server of the level that an operator has revoked.
    pub(super) revoked: Option<usize>,
    /// Since when its process could have learned of the revocation from the server. `None`: it cannot.
    pub(super) hears_since: Option<Time>,
    /// Since when servers have had part of a wider level but not all of a narrower one, and its process could know.
    pub(super) disordered_since: Option<Time>,
    /// Since when it could have been granted because a pause is over, and its process could know.
    pub(super) opened_since: Option<Time>,
    /// Since when its process could send heartbeats to the server in whose queue it is.
    pub(super) beats_since: Option<Time>,
    /// True while the server in `revoked` remembers the revocation.
    pub(super) is_remembered: bool,
    /// True once it was granted.
    pub(super) was_granted: bool,
    /// True if its process is suspended, or was until a moment ago.
    pub(super) is_dazed: bool,
    /// True once that has been the case.
    pub(super) was_dazed: bool,
}

/// The state of the world at one instant, as seen by one record.
pub(super) struct Moment<'a> {
    pub(super) who: Who,
    pub(super) process: &'a Process,
    /// The process's clock, and the world's.
    pub(super) local: Time,
    pub(super) now: Duration,
    pub(super) servers: &'a [Server],
    /// When the process was closed, so that it makes no more claims.
    pub(super) closed: Option<Time>,
    /// When each process last saw a call to each server fail.
    pub(super) failures: &'a BTreeMap<(usize, usize), Time>,
    pub(super) calls: &'a Calls,
    pub(super) limits: &'a Limits,
}

impl Moment<'_> {
    /// True if the keeper's thread of the process can reach a server.
    fn can_reach(&self, number: usize) -> bool {
        let (server, now) = (&self.servers[number], self.now);
        let link = &self.process.links[self.process.settings.link(0, number)];
        let is_quiet = link.stalled_until <= now && link.deaf_until <= now && server.is_ready(now);
        let works = self.calls.works(self.who.0, number) && self.calls.is_timed(self.who.0, number);
        let is_known = !self.process.settings.slots.is_unknown(now);
        is_quiet && is_known && link.is_up && works && !is_dazed(self.process, now)
    }

    /// The data of a semaphore, and its server's clock in ms.
    fn view(&self, key: Key) -> (View, i64) {
        let server = &self.servers[self.process.settings.server_of(key)];
        (server.view(key), server.clock(self.now) / 1_000)
    }

    /// True while a key of a semaphore has another program's value.
    fn is_poisoned(&self, key: Key) -> bool {
        let until = self.process.settings.slots.poisoned(key);
        until.is_some_and(|until| self.now <= until)
    }

    /// When a call to a server last failed.
    fn failed(&self, server: usize) -> Option<Time> {
        self.failures.get(&(self.who.0, server)).copied()
    }

    /// Returns since when something has been possible without a break: since `old`, or since the last failed call if
    /// that is later. Returns `None` if it is not possible now.
    fn since(&self, old: Option<Time>, could: bool, servers: &[usize]) -> Option<Time> {
        let could = could && servers.iter().all(|server| self.can_reach(*server));
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
            is_refused: false,
            is_not_found: false,
            meets_foreign_key: false,
            paused: None,
        }
    }

    pub(super) fn has(&self, key: Key) -> bool {
        self.levels.iter().any(|level| level.key == key)
    }

    /// True if its server holds all of it.
    fn is_held(&self, moment: &Moment<'_>) -> bool {
        self.levels.iter().all(|level| {
            let (view, clock) = moment.view(level.key);
            let live = live(&view.held, clock);
            live.filter(|name| name.who() == moment.who).count() as u32 >= level.weight
        })
    }

    /// True if its server holds any of it, or has it in a queue.
    fn is_known(&self, moment: &Moment<'_>) -> bool {
        self.levels.iter().any(|level| {
            let (view, clock) = moment.view(level.key);
            is_present(&view, moment.who, clock)
        })
    }
}

impl Record {
    /// True if the last answer proves that the token of a grant is another claim's: this one still waited when that
    /// token was given.
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
            beats_since: None,
            was_granted: false,
            is_dazed: false,
            was_dazed: false,
        }
    }

    /// All levels that it has now, including those of its growths.
    pub(super) fn levels(&self) -> impl Iterator<Item = Level> + Clone {
        self.leases
            .iter()
            .flat_map(|lease| lease.levels.iter().copied())
    }

    /// The number of units that it has of a semaphore.
    pub(super) fn units(&self, key: Key) -> u32 {
        let own = self.levels().filter(|level| level.key == key);
        own.map(|level| level.weight).sum()
    }

    /// True if a lease of it has this id: its own, or that of a growth.
    pub(super) fn has_part(&self, permit: PermitId) -> bool {
        self.leases.iter().any(|lease| lease.permit == permit)
    }

    /// The earliest time that `time_of` returns for its leases, or `None` if one of them has none.
    pub(super) fn earliest(&self, time_of: impl Fn(&Lease) -> Option<Time>) -> Option<Time> {
        self.leases.iter().map(time_of).min().flatten()
    }

    /// Checks the record at this instant.
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
                self.check_heartbeats(moment)?;
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

    fn describe(&self, moment: &Moment<'_>, what: &str) -> String {
        let ((at, permit), local) = (moment.who, moment.local);
        format!("p{at} {permit:?} {what} at {local:?}: {self:?}")
    }

    /// Checks that no claims are left in a process that was closed.
    fn check_shutdown(&self, moment: &Moment<'_>) -> Verdict {
        let closed = moment.closed.map(|closed| closed.max(self.asked) + LATE);
        let is_late = self.state != State::Lost && closed.is_some_and(|by| moment.local > by);
        check(!is_late, "a shutdown", || self.describe(moment, "is left"))
    }

    /// Checks that a claim is answered within its budget, and that a holder is notified in time.
    fn check_times(&self, moment: &Moment<'_>) -> Verdict {
        let budget = moment.process.settings.timeout * 2;
        let end = self.asked + self.claim.longest_wait() + budget + LATE;
        let is_late = self.state == State::Waits && moment.local > end;
        check(!is_late, "F3", || self.describe(moment, "has no answer"))?;
        let until = self.earliest(|lease| lease.until);
        let is_kept = self.state == State::Holds && !self.is_degraded;
        let is_over = is_kept && Some(moment.local) > until;
        check(!is_over, "S2", || {
            self.describe(moment, "is not notified that it is lost")
        })
    }

    /// Checks that a lost permit comes back if the limit has room.
    fn check_return(&mut self, moment: &Moment<'_>) -> Verdict {
        let settings = &moment.process.settings;
        let could = self.levels().all(|level| {
            let can_reach = moment.can_reach(settings.server_of(level.key));
            can_reach && !moment.is_poisoned(level.key) && self.has_room(level, moment)
        });
        self.room_since = could.then(|| self.room_since.unwrap_or(moment.local));
        let patience = settings.absence() + settings.timeout + LATE;
        let is_late = self
            .room_since
            .filter(|since| moment.local > *since + patience);
        check(is_late.is_none(), "a return", || {
            self.describe(moment, "does not come back")
        })
    }

    /// True while a key of it has another program's value.
    fn is_poisoned(&self, moment: &Moment<'_>) -> bool {
        self.levels().any(|level| moment.is_poisoned(level.key))
    }

    /// True if a server could grant all of its units of a level.
    fn has_room(&self, level: Level, moment: &Moment<'_>) -> bool {
        let (view, clock) = moment.view(level.key);
        let is_own = |name: &Name| name.process == moment.who.0 && self.has_part(name.who().1);
        let (own, others): (Vec<_>, Vec<_>) = live(&view.held, clock).partition(is_own);
        let limit = moment.limits.in_force(moment.who.0, level);
        // A pause takes no units from a permit, but gives lost ones back only when it ends.
        let is_paused = view.pause.is_some_and(|(_, end)| end > clock);
        let is_kept_away = is_paused && own.len() as u32 != self.units(level.key);
        let fits = others.len() as u32 + self.units(level.key) <= limit;
        view.queue.is_empty() && fits && !is_kept_away
    }

    /// Checks that the holder of a revoked permit is notified once its process can learn of that from the server.
    fn check_revocation(&mut self, moment: &Moment<'_>, server: usize) -> Verdict {
        let settings = &moment.process.settings;
        let could = self.is_remembered && !self.is_poisoned(moment);
        self.hears_since = moment.since(self.hears_since, could, &[server]);
        // The next refresh comes within a third of the lease, or a try later.
        let patience = settings.lease / 3 + settings.timeout * 4;
        let is_late = self
            .hears_since
            .filter(|since| moment.local > *since + patience);
        check(is_late.is_none(), "a revocation", || {
            self.describe(moment, "is not notified that it was revoked")
        })
    }

    /// For each lease, the level at which its process knows that it waits.
    fn waits(&self) -> impl Iterator<Item = (&Lease, Level)> {
        self.leases
            .iter()
            .filter_map(|lease| match lease.answers[0] {
                Some(Acquired::Queued { level, .. }) => Some((lease, lease.levels[level])),
                _ => None,
            })
    }

    /// Checks that a claim is refused at once if its wait would end before a pause does.
    fn check_waits(&self, moment: &Moment<'_>) -> Verdict {
        let waits = self.state == State::Waits && self.revoked.is_none();
        let late = self.waits().find(|(lease, level)| {
            let wait_ends = level.wait.map(|wait| self.asked + wait.time);
            let paused = lease.paused.zip(wait_ends);
            paused.is_some_and(|((until, answered), wait_ends)| {
                // A pause that ended before the answer came is no reason.
                wait_ends.max(answered) < until && moment.local > answered + LATE
            })
        });
        check(!waits || late.is_none(), "a pause", || {
            self.describe(moment, "waits for a pause that outlasts its wait")
        })
    }

    /// Checks that the head of the queue polls at the end of a pause.
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
        // A process that knows of the pause polls at its end, and another one with the next heartbeat.
        let patience = match next {
            Some((Some(_), _)) => settings.timeout + LATE,
            _ => settings.heartbeat() + settings.timeout * 2 + LATE,
        };
        let named = key.map(|key| moment.calls.last_named(moment.who, key));
        // If the server's clock was set forward, the pause is over before the end that the process knows.
        let known_end = next.and_then(|(paused, _)| paused).map(|(until, _)| until);
        let since = self.opened_since.max(named).max(known_end);
        let is_late = self.opened_since.is_some()
            && since.is_some_and(|since| moment.local > since + patience);
        check(!is_late, "a pause", || {
            self.describe(moment, "could be granted after a pause, and does not poll")
        })
    }

    /// Checks that a claim in a queue polls, so that it counts as alive.
    fn check_heartbeats(&mut self, moment: &Moment<'_>) -> Verdict {
        let settings = &moment.process.settings;
        let queued = self.waits().find(|(lease, _)| lease.is_known(moment));
        let key = queued.map(|(_, level)| level.key);
        let key = key.filter(|key| !moment.is_poisoned(*key));
        let servers: Vec<_> = key.iter().map(|key| settings.server_of(*key)).collect();
        self.beats_since = moment.since(self.beats_since, key.is_some(), &servers);
        let named = key.map(|key| moment.calls.last_named(moment.who, key));
        let patience = settings.heartbeat() + settings.timeout * 2 + LATE;
        let since = self.beats_since.zip(named);
        let is_late =
            since.is_some_and(|(since, named)| moment.local > since.max(named) + patience);
        check(!is_late, "a heartbeat", || {
            self.describe(moment, "waits and does not poll")
        })
    }

    /// Checks that a waiting claim holds nothing wider than the level that it waits for. If units of a narrower level
    /// are lost, its next heartbeat finds that out.
    fn check_levels(&mut self, moment: &Moment<'_>) -> Verdict {
        if self.leases.len() < 2 {
            return Ok(());
        }
        let settings = &moment.process.settings;
        let are_known: Vec<_> = self
            .leases
            .iter()
            .map(|lease| lease.is_known(moment))
            .collect();
        let first_gap = self.leases.iter().position(|lease| !lease.is_held(moment));
        let is_poisoned = self.is_poisoned(moment);
        let is_wrong = first_gap.is_some_and(|gap| are_known[gap + 1..].contains(&true));
        let is_wrong = is_wrong && !is_poisoned;
        let servers: Vec<_> = (0..moment.servers.len()).collect();
        self.disordered_since = moment.since(self.disordered_since, is_wrong, &servers);
        let patience = settings.heartbeat() + settings.timeout * 2 + LATE;
        let is_late = self
            .disordered_since
            .filter(|since| moment.local > *since + patience);
        check(is_late.is_none(), "the levels", || {
            self.describe(moment, "holds a wider level and not a narrower one")
        })
    }
}
