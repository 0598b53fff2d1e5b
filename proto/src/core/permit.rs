//! A permit: the levels of a claim, and its leases from narrow to wide.

use super::{
    id::{DebtId, LeaseRef, PermitId, RuntimeId, THREAD},
    lease::Lease,
    table::{Table, TableEntry},
    time::{CoreSettings, FOREVER, Time},
};
use crate::verbs::{Charge, Flow, LeaseUnits};
use std::{
    mem,
    ops::{Index, IndexMut},
    sync::Arc,
    time::Duration,
};

/// One limit of a claim.
#[derive(Debug, Clone)]
pub struct LevelClaim {
    /// The name of the semaphore.
    pub name: Arc<str>,
    /// The semaphore's hash slot. A script may name keys of one slot only. Without a cluster all keys are in one.
    pub slot: u16,
    pub limit: u32,
    pub weight: u32,
    /// `None`: it is a semaphore, not a budget.
    pub charge: Option<Charge>,
    /// `None`: the claim does not wait here.
    pub wait: Option<LevelWait>,
    /// True if the permit must not exist without its server: an outage refuses the claim, and a loss is reported at
    /// once (rule 6). One strict level makes the permit strict.
    pub is_strict: bool,
    /// A description of the claim for operators.
    pub label: Option<Arc<str>>,
    /// The flow whose turn it takes in the queue.
    pub flow: Option<Flow>,
}

/// How a claim waits at a level.
#[derive(Debug, Clone, Copy)]
pub struct LevelWait {
    /// The longest wait, from the claim on.
    pub time: Duration,
    /// The most claims that may wait for the semaphore.
    pub max_waiting: u32,
    /// The claim counts as arrived earlier by this time.
    pub head_start: Duration,
}

impl LevelWait {
    /// Caps the wait, so that no sum overflows.
    fn bounded(self) -> Self {
        let time = self.time.min(FOREVER);
        Self { time, ..self }
    }
}

/// The earlier growths that a growth includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merge {
    /// The two smallest, if the level has 16 or more.
    Smallest,
    /// Nothing, unless the level has 32.
    Nothing,
}

/// Why a claim is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The claim does not fit at this level: the level, the units that are held, and the limit in force. A claim that
    /// is heavier than an operator's limit reports the limit as held. Limit 0: an operator has closed the semaphore.
    /// For a budget also the time after which the units come back, if nothing else happens.
    Full(usize, u32, u32, Option<Duration>),
    /// Too many claims wait at this level, under this limit.
    QueueFull(usize, u32),
    /// The level was full for as long as the claim may wait: the level, the units that are held, and the limit in
    /// force.
    TimedOut(usize, u32, u32),
    /// This level is paused under this limit, for this time.
    Paused(usize, u32, Duration),
    /// An operator has revoked the claim, or the permit that it grows was given up.
    Revoked,
    /// This server has not decided the claim in time, or cannot work, or the claim has no room in its share.
    Unavailable(usize),
    /// This server refuses to serve it.
    Failed(usize),
    /// The claim was not sent in time, because more claims came than can be sent to this server.
    Congested(usize),
    /// The core was shut down.
    Closed,
}

/// The events of a permit for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The claim waits in the queue of this level. It holds the narrower levels.
    Queued(usize),
    /// The claim is granted: the token of each level, the number of units held there, and the limit in force. If it is
    /// admitted without its server, the tokens are 0.
    Granted(Vec<(u64, u32, u32)>),
    /// The time at which the holder itself must treat the permit as lost, slightly after the core would report the
    /// loss.
    Held(Time),
    Refused(Refusal),
    /// Some of it is lost.
    Lost,
    /// Some of it goes on while its server is unavailable.
    Degraded,
    /// It was lost or degraded, and is held again, with these tokens.
    Regained(Vec<u64>),
    /// An operator has ended it.
    Revoked,
    /// Its releases are over. True if all of it is known to have been held until then.
    Released(bool),
}

/// A level of a permit.
#[derive(Debug)]
pub(super) struct ClaimedLevel {
    /// The number of its semaphore.
    pub(super) key: usize,
    /// The id under which a server knows its units.
    pub(super) units: LeaseUnits,
    /// The limit that it was claimed with. The units have the one in force.
    pub(super) limit: u32,
    pub(super) wait: Option<LevelWait>,
    /// The token, and the number of units that are held, as last reported.
    pub(super) grant: (u64, u32),
}

impl ClaimedLevel {
    pub(super) fn new(key: usize, units: LeaseUnits, wait: Option<LevelWait>) -> Self {
        Self {
            key,
            limit: units.id.limit,
            units,
            wait: wait.map(LevelWait::bounded),
            grant: (0, 0),
        }
    }

    /// Gives its units another id. Returns those under the old one, which count as used if a budget has reserved them
    /// for a permit.
    pub(super) fn put_under(&mut self, new: LeaseUnits, is_granted: bool) -> Self {
        let mut old = mem::replace(&mut self.units, new);
        if is_granted {
            old.settle_lost();
        }
        Self::new(self.key, old, None)
    }

    pub(super) fn is_of_budget(&self) -> bool {
        self.units.reservation.is_some()
    }
}

#[derive(Debug)]
pub(super) enum Phase {
    Claiming(Claiming),
    Granted(Reported),
    /// It is given up. Its leases become debts at the end of the step that has ended it
    /// ([`Core::give_up_ended`](super::Core)).
    Ended(Ended),
}

#[derive(Debug)]
pub(super) struct Claiming {
    claimed_at: Time,
    /// The time at which the claim is decided without an answer: refused, or admitted by the policy (rule 1).
    pub(super) deadline: Time,
    /// True if a wider lease of the claim has taken more than one call since the narrower ones were acquired (rule 21).
    pub(super) must_reacquire: bool,
}

/// The reports to the holder of a permit since all of the permit and its growths was last in place.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reported {
    pub(super) is_lost: bool,
    pub(super) is_degraded: bool,
}

#[derive(Debug)]
pub(super) struct Ended {
    /// True if a caller waits for the outcome of the releases.
    pub(super) reports: bool,
    /// True if it was granted, and releases have found all units so far, including those of its growths.
    pub(super) was_held: bool,
    /// The debts for its units, which are not paid yet.
    pub(super) debts: Vec<DebtId>,
}

impl Ended {
    fn new(reports: bool, was_held: bool) -> Self {
        Self {
            reports,
            was_held,
            debts: Vec::new(),
        }
    }
}

#[derive(Debug)]
pub(super) struct PermitState {
    pub(super) id: PermitId,
    /// The permit that it adds units to, and at which level (rule 13).
    pub(super) adds_to: Option<(PermitId, usize)>,
    /// The permits that add units to it.
    pub(super) growths: Vec<PermitId>,
    /// The number of its last growth. The ids of a growth have the number of the permit and that of the growth.
    pub(super) last_growth: u32,
    /// The runtime of its caller, or the runtime that last sent the claim.
    pub(super) from: RuntimeId,
    pub(super) levels: Vec<ClaimedLevel>,
    pub(super) leases: Vec<Lease>,
    pub(super) phase: Phase,
    /// The time of its timer (rule 10).
    pub(super) scheduled: Option<Time>,
    pub(super) is_strict: bool,
    /// True if its units count in the shares of its process (rule 12).
    pub(super) counts: bool,
}

impl PermitState {
    pub(super) fn new(
        id: PermitId,
        (claimed_at, from): (Time, RuntimeId),
        levels: Vec<ClaimedLevel>,
        leases: Vec<Lease>,
        settings: &CoreSettings,
    ) -> Self {
        let waits = levels.iter().filter_map(|level| level.wait);
        let longest = waits.map(|wait| wait.time).max().unwrap_or_default();
        let claiming = Claiming {
            claimed_at,
            deadline: claimed_at + longest + settings.call_time(),
            must_reacquire: false,
        };
        Self {
            from,
            levels,
            leases,
            ..Self::in_phase(id, Phase::Claiming(claiming))
        }
    }

    /// A permit without leases, whose caller waits for the release of units that it has given up.
    pub(super) fn given_up(id: PermitId, was_held: bool) -> Self {
        Self::in_phase(id, Phase::Ended(Ended::new(true, was_held)))
    }

    fn in_phase(id: PermitId, phase: Phase) -> Self {
        Self {
            id,
            adds_to: None,
            growths: Vec::new(),
            last_growth: 0,
            from: THREAD,
            levels: Vec::new(),
            leases: Vec::new(),
            phase,
            scheduled: None,
            is_strict: false,
            counts: false,
        }
    }

    /// The levels of a lease.
    pub(super) fn levels_of(&self, lease: usize) -> &[ClaimedLevel] {
        &self.levels[self.leases[lease].levels.clone()]
    }

    /// The first level of a lease that it does not hold yet, as far as is known.
    pub(super) fn waits_at(&self, lease: usize) -> usize {
        let lease = &self.leases[lease];
        lease.queued_at().unwrap_or(lease.levels.start)
    }

    /// How the claim may wait at a level. `None` if it may not wait there, or no longer.
    pub(super) fn wait(&self, level: &ClaimedLevel, now: Time) -> Option<LevelWait> {
        let claiming = self.claiming()?;
        let wait = level.wait;
        wait.filter(|wait| now < claiming.claimed_at + wait.time)
    }

    /// The time at which the claim's wait at a level is over.
    pub(super) fn waits_until(&self, level: usize) -> Time {
        let wait = self.levels[level].wait.map(|wait| wait.time);
        let claimed_at = self.claiming().map(|claiming| claiming.claimed_at);
        claimed_at.unwrap_or_default() + wait.unwrap_or_default()
    }

    /// The earliest time at which it has something to do.
    pub(super) fn timer(&self) -> Option<Time> {
        if self.has_ended() {
            return None;
        }
        let leases = self.leases.iter().filter_map(Lease::timer);
        leases.chain(self.deadline()).min()
    }

    fn claiming(&self) -> Option<&Claiming> {
        match &self.phase {
            Phase::Claiming(claiming) => Some(claiming),
            _ => None,
        }
    }

    pub(super) fn claiming_mut(&mut self) -> Option<&mut Claiming> {
        match &mut self.phase {
            Phase::Claiming(claiming) => Some(claiming),
            _ => None,
        }
    }

    /// The time at which the claim is decided without an answer.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.claiming().map(|claiming| claiming.deadline)
    }

    /// True until the claim is granted or has ended.
    pub(super) fn is_claim(&self) -> bool {
        matches!(self.phase, Phase::Claiming(_))
    }

    /// `None` if it is not granted.
    pub(super) fn reported_mut(&mut self) -> Option<&mut Reported> {
        match &mut self.phase {
            Phase::Granted(reported) => Some(reported),
            _ => None,
        }
    }

    pub(super) fn is_granted(&self) -> bool {
        matches!(self.phase, Phase::Granted(_))
    }

    /// True if it is given up.
    pub(super) fn has_ended(&self) -> bool {
        self.ended().is_some()
    }

    /// Ends it, unless it has ended before. `reports`: a caller waits for the outcome of the releases.
    pub(super) fn end(&mut self, reports: bool) {
        match &mut self.phase {
            Phase::Ended(ended) => ended.reports |= reports,
            phase => {
                let was_held = matches!(phase, Phase::Granted(_));
                *phase = Phase::Ended(Ended::new(reports, was_held));
                for level in self.levels.iter_mut().filter(|_| was_held) {
                    level.units.settle_rest();
                }
            }
        }
    }

    pub(super) fn ended(&self) -> Option<&Ended> {
        match &self.phase {
            Phase::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    pub(super) fn ended_mut(&mut self) -> Option<&mut Ended> {
        match &mut self.phase {
            Phase::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    /// True if a caller waits for its release.
    pub(super) fn is_awaited(&self) -> bool {
        self.ended().is_some_and(|ended| ended.reports)
    }

    /// True if a caller waits for its release, and the permit's last answer or message came over the thread, or the
    /// permit is a part that a shrink has released.
    pub(super) fn is_awaited_by_thread(&self) -> bool {
        self.is_awaited() && self.from == THREAD
    }

    /// The number of the lease that a claim acquires now: the first that its holder could not rely on. `None` after the
    /// last.
    pub(super) fn current_lease(&self) -> Option<usize> {
        self.leases.iter().position(|lease| !lease.is_relied_on())
    }

    /// The number of the lease with this level.
    pub(super) fn lease_with(&self, level: usize) -> usize {
        let mut leases = self.leases.iter();
        let found = leases.position(|lease| lease.levels.contains(&level));
        found.unwrap_or_default()
    }

    /// The permit that callers know: this one, or that which it adds units to.
    pub(super) fn root(&self) -> PermitId {
        self.adds_to.map_or(self.id, |(root, _)| root)
    }

    /// True if the next acquire or refresh of this lease lasts for a whole lease: the permit is granted, or would be by
    /// this acquire. Otherwise it lasts as long as a waiter counts as alive (rule 5).
    pub(super) fn gets_full_length(&self, number: usize) -> bool {
        let is_widest = number + 1 == self.leases.len();
        let must_reacquire = self
            .claiming()
            .is_some_and(|claiming| claiming.must_reacquire);
        let is_last_call = !must_reacquire && !self.is_repeated(number);
        let narrower = || self.leases[..number].iter();
        !self.is_claim() || is_widest && is_last_call && narrower().all(Lease::is_relied_on)
    }

    /// Called before each acquire of a lease, and before it gets a new id. If an acquire of it was sent before, the
    /// narrower leases must be acquired again (rule 21).
    pub(super) fn note_repeat(&mut self, number: usize) {
        let is_repeated = self.is_repeated(number);
        if let Phase::Claiming(claiming) = &mut self.phase {
            claiming.must_reacquire |= is_repeated;
        }
    }

    /// True if an acquire of this lease was sent before, it is not the narrowest, and no wider lease is held.
    pub(super) fn is_repeated(&self, number: usize) -> bool {
        let is_sent_again = number > 0 && self.leases[number].remote.was_sent();
        is_sent_again && !self.leases[number + 1..].iter().any(Lease::is_relied_on)
    }

    /// The token of each level, how many units are held there, and the limit that it was granted under.
    pub(super) fn grants(&self) -> impl Iterator<Item = (u64, u32, u32)> {
        let levels = self.levels.iter();
        levels.map(|level| (level.grant.0, level.grant.1, level.units.id.limit))
    }

    /// Stores the token and the held units of each level of a granted lease.
    pub(super) fn take_grants(&mut self, lease: usize, granted: &[(u64, u32)]) {
        let levels = self.leases[lease].levels.clone();
        for (level, grant) in self.levels[levels].iter_mut().zip(granted) {
            level.grant = *grant;
        }
    }

    /// The refusal of a claim at a full level, where `held` units are held.
    pub(super) fn refusal(
        &self,
        level: usize,
        held: u32,
        retry_after: Option<Duration>,
    ) -> Refusal {
        let ClaimedLevel { units, wait, .. } = &self.levels[level];
        match wait {
            Some(_) => Refusal::TimedOut(level, held, units.id.limit),
            None => Refusal::Full(level, held, units.id.limit, retry_after),
        }
    }
}

impl TableEntry for PermitState {
    type Id = PermitId;

    fn id(&self) -> PermitId {
        self.id
    }
}

impl Index<LeaseRef> for Table<PermitState> {
    type Output = Lease;

    fn index(&self, LeaseRef(id, lease): LeaseRef) -> &Lease {
        &self[id].leases[lease]
    }
}

impl IndexMut<LeaseRef> for Table<PermitState> {
    fn index_mut(&mut self, LeaseRef(id, lease): LeaseRef) -> &mut Lease {
        &mut self[id].leases[lease]
    }
}

/// One lease for each run of levels that one script may name.
pub(super) fn leases(levels: &[LevelClaim]) -> Vec<Lease> {
    let mut first = 0;
    let runs = levels.chunk_by(|one, next| one.slot == next.slot);
    let lease = |run: &[LevelClaim]| {
        let levels = first..first + run.len();
        first = levels.end;
        Lease::new(run[0].slot, levels)
    };
    // Usually one, and a process may have very many permits.
    let mut leases = Vec::with_capacity(1);
    leases.extend(runs.map(lease));
    leases
}
