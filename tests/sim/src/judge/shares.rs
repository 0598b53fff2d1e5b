//! Checks of claims that are admitted while their server is unavailable, up to the process's share of each limit. A
//! server is *unwell* for a process that must assume that others may have found it unavailable.

use super::{Flights, LATE, Verdict, Who, calls::Calls, check, is_dazed};
use crate::{
    process::Process,
    schedule::Schedule,
    server::Server,
    subject::{
        Acquired, Answer, Call, CallId, Claim, Command, Event, Failure, Key, PermitId, Policy,
        Refusal, Settings, Time,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// A claim, or its permit.
#[derive(Debug)]
struct ClaimRecord {
    claim: Claim,
    /// If it is a growth: its permit.
    parent: Option<Who>,
    is_strict: bool,
    asked: Time,
    is_held: bool,
    is_degraded: bool,
    /// When its process last received the answer that the claim is queued.
    queued: Option<Time>,
    /// Since when a degraded permit could have been acquired at its server, which works and has room.
    room_since: Option<Time>,
}

/// The part of the judge that follows claims without a server.
#[derive(Debug)]
pub(super) struct Shares {
    settings: Settings,
    /// The policy of each process.
    policies: Vec<Policy>,
    records: BTreeMap<Who, ClaimRecord>,
    /// The counts of live processes that each process received, and when.
    live: BTreeMap<usize, Vec<(Time, u32)>>,
}

impl Shares {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self {
            settings: schedule.settings(0),
            policies: schedule.policies.to_vec(),
            records: BTreeMap::new(),
            live: BTreeMap::new(),
        }
    }

    pub(super) fn asked(&mut self, who: Who, claim: Claim, local: Time) {
        let record = ClaimRecord {
            claim,
            parent: None,
            is_strict: claim.levels().any(|level| level.is_strict),
            asked: local,
            is_held: false,
            is_degraded: false,
            queued: None,
            room_since: None,
        };
        self.records.insert(who, record);
    }

    /// A claim is a growth of a permit.
    pub(super) fn grows(&mut self, growth: Who, parent: Who) {
        let is_strict = self
            .records
            .get(&parent)
            .is_some_and(|record| record.is_strict);
        if let Some(record) = self.records.get_mut(&growth) {
            (record.parent, record.is_strict) = (Some(parent), is_strict);
        }
    }

    /// A caller gives up units of a key, and keeps `kept`.
    pub(super) fn shrunk(&mut self, who: Who, (key, kept): (Key, u32)) {
        if let Some(record) = self.records.get_mut(&who) {
            let mut levels = record.claim.0.iter_mut().flatten();
            if let Some(level) = levels.find(|level| level.key == key) {
                level.weight = kept;
            }
        }
    }

    /// The number of units that a permit has of a semaphore, including growths that are or may be added to it.
    fn units(&self, who: Who, key: Key) -> u32 {
        let all = self.records.iter();
        let own = all.filter(|(other, record)| **other == who || record.parent == Some(who));
        let levels = own.flat_map(|(_, record)| record.claim.levels());
        let levels = levels.filter(|level| level.key == key);
        levels.map(|level| level.weight).sum()
    }

    pub(super) fn over(&mut self, who: Who) {
        self.records.remove(&who);
    }

    pub(super) fn killed(&mut self, at: usize) {
        self.records.retain(|(process, _), _| *process != at);
        self.live.remove(&at);
    }

    /// Notes the counts of live processes that a process receives, and which of its claims wait.
    pub(super) fn counted(
        &mut self,
        at: usize,
        call: &Call,
        reply: &Result<Vec<Answer>, Failure>,
        local: Time,
    ) {
        for answer in reply.iter().flatten() {
            if let Answer::Clock(_, Some(live), _) = answer {
                self.live.entry(at).or_default().push((local, *live));
            }
        }
        for (command, answer) in call.commands.iter().zip(reply.iter().flatten()) {
            let (Command::Acquire { claims, .. }, Answer::Acquired(_, each)) = (command, answer)
            else {
                continue;
            };
            for (claim, acquired) in claims.iter().zip(each) {
                let record = self.records.get_mut(&(at, claim[0].1.id.permit()));
                if let (Some(record), Acquired::Queued { .. }) = (record, acquired) {
                    record.queued = Some(local);
                }
            }
        }
    }

    /// The most units of a limit that a process may have admitted. Counts of live processes that it receives at this
    /// very instant may not apply yet, so the share is the larger one with and without them.
    fn share(&self, at: usize, limit: u32, local: Time) -> u32 {
        let counts = self.live.get(&at).map_or(&[][..], Vec::as_slice);
        let before = counts.partition_point(|(then, _)| *then < local);
        let shares = [counts, &counts[..before]].map(|counts| self.share_by(at, limit, counts));
        shares[0].max(shares[1])
    }

    /// The share by these counts of live processes. A server that has lost its data starts to count from one again. So
    /// the highest count applies that was received with the last one or up to a lease before it.
    fn share_by(&self, at: usize, limit: u32, counts: &[(Time, u32)]) -> u32 {
        match self.policies[at] {
            Policy::Refuse => return 0,
            Policy::Admit => return u32::MAX,
            Policy::Half => return limit.div_ceil(2),
            Policy::Share => {}
        }
        let last = counts.last().map_or(Time::ZERO, |(then, _)| *then);
        let lately = counts
            .iter()
            .filter(|(then, _)| *then + self.settings.lease >= last);
        let live = lately.map(|(_, live)| *live).max();
        live.map_or(1, |live| limit.div_ceil(live))
    }

    /// The units that a process may always admit, whichever of its counts of live processes applies: the share by the
    /// highest count that it ever received.
    fn least_share(&self, at: usize, limit: u32) -> u32 {
        let counts = self.live.get(&at).into_iter().flatten();
        let most = counts.map(|(_, live)| *live).max();
        match self.policies[at] {
            Policy::Share => limit.div_ceil(most.unwrap_or(limit)),
            _ => self.share_by(at, limit, &[]),
        }
    }

    /// A caller receives an event. A claim that is admitted without a server, or granted while one is unwell, must fit
    /// into the share together with everything that the process has. A claim may be refused as unavailable only if it
    /// may have no room in the share.
    pub(super) fn received(
        &mut self,
        who: Who,
        event: Event,
        (local, is_unwell): (Time, bool),
    ) -> Verdict {
        let Some(record) = self.records.get_mut(&who) else {
            return Ok(());
        };
        match event {
            Event::Degraded(_) => {
                record.is_degraded = true;
                check(!record.is_strict, "strict", || {
                    format!("{who:?} goes on without its server")
                })?;
            }
            Event::Regained(..) => (record.is_degraded, record.room_since) = (false, None),
            Event::Granted(_, [token, ..]) => {
                record.is_held = true;
                // Only a server makes tokens.
                let is_without_server = token == 0;
                if is_without_server {
                    check(
                        record.is_degraded && record.parent.is_none(),
                        "events",
                        || {
                            format!(
                                "{who:?} is admitted before the event that it goes on without its server"
                            )
                        },
                    )?;
                }
                if is_without_server || is_unwell && self.must_fit_share(who) {
                    let none = BTreeSet::new();
                    return self.is_within(who, (&none, &none), local);
                }
            }
            Event::Refused(_, Refusal::Unavailable) => {
                let budget = record.claim.longest_wait() + self.settings.timeout * 2;
                let is_spent = local >= record.asked + budget;
                let is_never_admitted = record.is_strict || record.parent.is_some();
                let is_right = is_spent || is_never_admitted || self.may_be_beyond(who);
                self.over(who);
                return check(is_right, "the share", || {
                    format!("{who:?} is refused, and has room in its share")
                });
            }
            Event::Refused(..) | Event::Revoked(_) => self.over(who),
            Event::Lost(_) | Event::Released(_) | Event::GivenUp(..) => {}
        }
        Ok(())
    }

    /// Checks that a process acquires no more than its share while other processes may have admitted claims up to
    /// their shares. Its claims in flight count too, unless they have been queued since their call was sent.
    pub(super) fn sent(
        &self,
        at: usize,
        call: &Call,
        (local, flights): (Time, &Flights),
        is_unwell: impl Fn(Key) -> bool,
    ) -> Verdict {
        let calls_in_flight = flights
            .range((at, CallId(0))..(at + 1, CallId(0)))
            .filter(|(_, flight)| flight.call.deadline > local);
        let claims_in_flight = calls_in_flight.flat_map(|(_, flight)| {
            let is_queued = |permit: &PermitId| {
                let record = self.records.get(&(at, *permit));
                record.is_some_and(|record| record.queued >= Some(flight.sent))
            };
            first_named(&flight.call).filter(move |permit| !is_queued(permit))
        });
        let in_flight: BTreeSet<_> = claims_in_flight.collect();
        let limited = first_named(call).filter(|permit| {
            let record = self.records.get(&(at, *permit));
            record.is_some_and(|record| {
                let mut levels = record.claim.levels();
                let is_unwell = levels.any(|level| is_unwell(level.key));
                is_unwell && !record.is_held && self.must_fit_share((at, *permit))
            })
        });
        let limited: BTreeSet<_> = limited.collect();
        let mut each = limited.iter().map(|permit| (at, *permit));
        each.try_for_each(|who| self.is_within(who, (&in_flight, &limited), local))
    }

    /// True if a claim must fit into the share while a server is unwell.
    fn must_fit_share(&self, who: Who) -> bool {
        self.policies[who.0].shares() && !self.records[&who].is_strict
    }

    /// True if a claim may have had no room in its share, given everything that its process has claimed.
    fn may_be_beyond(&self, who: Who) -> bool {
        let mut levels = self.records[&who].claim.levels();
        levels.any(|level| {
            let own = self.records.iter().filter(|((at, _), _)| *at == who.0);
            let levels = own.flat_map(|(_, record)| record.claim.levels());
            let levels = levels.filter(|other| other.key == level.key);
            let units: u32 = levels.map(|level| level.weight).sum();
            units > self.least_share(who.0, level.limit)
        })
    }

    /// Checks that a claim fits into the share, together with the units that its process holds and those of claims in
    /// flight. Claims in the same call count only if their limit is not higher than this claim's: one with a higher
    /// limit has a larger share, so it may fit even after this claim.
    fn is_within(
        &self,
        who: Who,
        (in_flight, same_call): (&BTreeSet<PermitId>, &BTreeSet<PermitId>),
        local: Time,
    ) -> Verdict {
        for level in self.records[&who].claim.levels() {
            let own = self.records.iter().filter(|((at, _), _)| *at == who.0);
            let levels = own.flat_map(|((_, permit), record)| {
                let counts = record.is_held || *permit == who.1 || in_flight.contains(permit);
                let is_beside = same_call.contains(permit);
                let levels = record.claim.levels();
                levels.filter(move |other| counts || is_beside && other.limit <= level.limit)
            });
            let levels = levels.filter(|other| other.key == level.key);
            let units: u32 = levels.map(|level| level.weight).sum();
            let share = self.share(who.0, level.limit, local);
            check(units <= share, "the share", || {
                format!("{who:?} is admitted or sent, with {units} units of {level:?}")
            })?;
        }
        Ok(())
    }

    /// Checks that a degraded permit is acquired at its server once that is possible.
    pub(super) fn check_returns(
        &mut self,
        processes: &[Process],
        servers: &[Server],
        (now, calls): (Duration, &Calls),
    ) -> Verdict {
        let settings = &self.settings;
        let levels = self.records.iter().flat_map(|(who, record)| {
            let levels = record.claim.levels();
            levels.map(|level| ((*who, level.key), self.units(*who, level.key)))
        });
        let needs: BTreeMap<_, _> = levels.collect();
        for ((at, permit), record) in &mut self.records {
            let process = &processes[*at];
            let local = process.local(now);
            let mut levels = record.claim.levels();
            let can_return = record.is_degraded
                && !is_dazed(process, now)
                && !settings.slots.is_unknown(now)
                && levels.all(|level| {
                    let number = settings.server_of(level.key);
                    let (server, view) = (&servers[number], servers[number].view(level.key));
                    let clock = server.clock(now) / 1_000;
                    let used = view.held.iter().filter(|(_, end)| *end > clock).count() as u32;
                    let link = &process.links[settings.link(0, number)];
                    let is_quiet = link.stalled_until <= now && link.deaf_until <= now;
                    let server_works =
                        is_quiet && link.is_up && server.is_ready(now) && calls.works(*at, number);
                    let has_room = view.queue.is_empty() && view.pause.is_none() && {
                        let needs = needs[&((*at, *permit), level.key)];
                        used + needs <= level.limit
                    };
                    server_works && has_room
                });
            let levels = record.claim.levels();
            // Each failed call of the keeper's thread begins the patience again.
            let failures = levels.map(|level| calls.missed(*at, settings.server_of(level.key)));
            let since = record.room_since.unwrap_or(local);
            record.room_since = can_return.then(|| failures.fold(since, Time::max));
            let patience = settings.absence() + settings.timeout + LATE;
            let is_late = record
                .room_since
                .is_some_and(|since| local > since + patience);
            check(!is_late, "a return", || {
                format!("p{at} {permit:?} is not acquired at its server: {record:?}")
            })?;
        }
        Ok(())
    }
}

/// The claims that no call before this one has named.
fn first_named(call: &Call) -> impl Iterator<Item = PermitId> {
    let wanted = call.commands.iter().flat_map(Command::wanted);
    let wanted = wanted.filter(|(_, wanted)| !wanted.was_sent);
    wanted.map(|(_, wanted)| wanted.id.permit())
}
