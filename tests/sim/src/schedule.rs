//! The outside events of a simulation: the claims of callers, and everything that breaks. All of it follows from a
//! seed.

use crate::{
    slots::Slots,
    subject::{self, CLOCK, Charge, Claim, Key, LEVELS, Level, Policy, Settings, SlotNo, Wait},
    wire::{BUDGET, BUDGETS, LOCK, window},
};
use std::time::Duration;

/// How long the answer to a call may take.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(250);

/// The duration of a fault that does not end, in ms.
const STUCK: u64 = 1_000_000;

/// Each of these constants changes the seed for one kind of draws, so that these draws do not change the others. This
/// one is for faults that were added late.
const LATE_FAULT_DRAWS: u64 = 0x6c61_7465;

/// Changes the seed for the draws of pauses.
const PAUSE_DRAWS: u64 = 0x7061_7573;

/// Changes the seed for the draws of operators' questions.
const QUESTION_DRAWS: u64 = 0x6173_6b73;

/// Changes the seed for the draws of the mixed workload.
const MIXTURE_DRAWS: u64 = 0x6d69_7865;

/// Changes the seed for the draws of budgets.
const BUDGET_DRAWS: u64 = 0x6275_6467;

/// The highest number of processes.
const PROCESSES: usize = 3;

/// The kind of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// The levels of a claim are on one server.
    Server,
    /// The levels of a claim are on several servers, whose clocks differ.
    Cluster,
    /// The levels of a claim are on one server. While it is unavailable, claims are admitted up to a share.
    Outage,
    /// The levels of a claim are on several servers. Some of these are unavailable for a while or refuse connections.
    /// Each process has a policy.
    ClusterOutage,
    /// Like `Server` with an even seed and like `Cluster` with an odd one. Claims have flows.
    Fair,
    /// Like `Server` with an even seed and like `Cluster` with an odd one. Operators set limits.
    Limits,
    /// Like one of these, depending on the seed. Processes pause semaphores.
    Pauses,
    /// Like `Cluster`. Operators ask questions.
    Questions,
    /// Like `Server` or, mostly, `Cluster`. Operators set limits, processes pause semaphores, and servers do not report
    /// their time.
    Mixed,
    /// Like one of the first four or `Limits`, depending on the seed. Claims have budgets.
    Budgets,
}

/// A question or an order of an operator about a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorAction {
    /// List the holders and waiters.
    Usage,
    /// Revoke one of the permits and waiters, which this number picks.
    Revoke(usize),
    /// Pause the semaphore for this long.
    Pause(Duration),
    /// End its pause.
    Resume,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Server,
        Self::Cluster,
        Self::Outage,
        Self::ClusterOutage,
        Self::Fair,
        Self::Limits,
        Self::Pauses,
        Self::Questions,
        Self::Mixed,
        Self::Budgets,
    ];

    /// Its name in the environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Cluster => "cluster",
            Self::Outage => "outage",
            Self::ClusterOutage => "cluster-outage",
            Self::Fair => "fair",
            Self::Limits => "limits",
            Self::Pauses => "pauses",
            Self::Questions => "questions",
            Self::Mixed => "mixed",
            Self::Budgets => "budgets",
        }
    }

    /// The workload whose schedules this one extends: by pauses, questions, a mixture or budgets.
    fn base(self, seed: u64) -> Self {
        // The last four are on one server with an even seed and on a cluster with an odd one.
        let all = [
            Self::Server,
            Self::Cluster,
            Self::Outage,
            Self::ClusterOutage,
            Self::Fair,
            Self::Fair,
            Self::Limits,
            Self::Limits,
        ];
        let with_budgets = [
            Self::Server,
            Self::Cluster,
            Self::Outage,
            Self::ClusterOutage,
            Self::Server,
            Self::Cluster,
            Self::Limits,
            Self::Limits,
        ];
        match self {
            Self::Budgets => with_budgets[seed as usize % with_budgets.len()],
            Self::Pauses => all[seed as usize % all.len()],
            Self::Questions => Self::Cluster,
            Self::Mixed if seed.is_multiple_of(4) => Self::Server,
            Self::Mixed => Self::Cluster,
            other => other,
        }
    }
}

/// A simulation, determined by its seed.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The kind of the simulation.
    pub workload: Workload,
    /// The workload that this one extends. See [`Workload::base`].
    base: Workload,
    /// The seed of the schedule, and of the delays in the world.
    pub seed: u64,
    /// The number of processes.
    pub processes: usize,
    /// The number of servers.
    pub servers: usize,
    /// How many of the servers have slots at the start.
    pub homes: usize,
    /// True if the servers are a cluster, so that a claim may have levels on several of them.
    pub is_cluster: bool,
    /// True if each semaphore has a separate slot.
    pub has_slots: bool,
    /// The locations of slots that have moved.
    pub slots: Slots,
    /// The clock of each server: how many ms it is ahead of the world's at the start, and how many parts per million it
    /// runs faster.
    pub clocks: Vec<(i64, i64)>,
    /// True if a slot may move away from a server that does not run.
    pub takes_over: bool,
    /// How each process treats claims while their server is unavailable.
    pub policies: [Policy; PROCESSES],
    /// True if a grant counts only once the server's replica has it.
    pub has_replicas: bool,
    /// The number of runtimes of each process. The first is that of the keeper's thread, and makes no claims unless it
    /// is the only one.
    pub runtimes: usize,
    /// The lease of each permit.
    pub lease: Duration,
    /// How many messages in a hundred are lost.
    pub messages_lost: u64,
    /// The longest time from the connection of the keeper's thread to its subscription to messages.
    pub subscribes_late: Duration,
    /// The longest delay on the way to a server or back, in ms.
    pub delay: u64,
    /// The steps, in order of time.
    pub steps: Vec<(Duration, Step)>,
}

/// An event from outside.
#[expect(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Debug, Clone, Copy)]
pub enum Step {
    /// A caller in a process makes a claim.
    Claim {
        /// The process.
        process: usize,
        /// The runtime of its task.
        runtime: usize,
        /// The claim.
        claim: Claim,
        /// How long its caller holds the permit.
        hold: Duration,
        /// After how long the caller gives up, with or without a permit.
        cancel: Option<Duration>,
        /// True if the caller goes on when its permit is lost.
        goes_on: bool,
    },
    /// A caller in a process changes the weight of a permit that it holds. The numbers are the process, the pick among
    /// its held levels, and the difference.
    Resize(usize, usize, i32),
    /// A process adds a unit of a semaphore to the permit that has the most units of it.
    Grow(usize, Key),
    /// A process is closed: it makes no more claims, and gives up everything.
    Shutdown(usize),
    /// A process is killed.
    Kill(usize),
    /// A process is suspended.
    Suspend(usize, Duration),
    /// A connection of a process breaks. The numbers are the process and its [link](Settings::link).
    Break(usize, usize, Break),
    /// The tasks that carry calls over a connection of a process are dropped. The numbers are as for `Break`.
    Abandon(usize, usize),
    /// An operator revokes one of the permits and waiters of a semaphore. The second number picks it.
    Revoke(Key, usize),
    /// A process pauses a semaphore for this long.
    PauseKey(usize, Key, Duration),
    /// A process ends the pause of a semaphore.
    ResumeKey(usize, Key),
    /// An operator sets or removes a limit of a semaphore or, if the flag is true, of its policy.
    SetLimit(Key, bool, Option<u32>),
    /// An operator asks a question about a semaphore in a process.
    Ask(usize, Key, OperatorAction),
    /// A server does not report its time to a process for this long. The numbers are the process and the server.
    HideTime(usize, usize, Duration),
    /// A server forgets its scripts, so that this number of its next commands do not run.
    Flush(usize, usize),
    /// A server is killed and starts again.
    Restart(usize, Duration, Data),
    /// A server stalls.
    Pause(usize, Duration),
    /// A server refuses connections for this long. If the flag is true, it also ends its open connections.
    Deny(usize, Duration, bool),
    /// A slot moves to a server, which takes this long.
    Move(SlotNo, usize, Duration),
    /// No server serves a slot for this long.
    LeaveUnserved(SlotNo, Duration),
    /// Another program overwrites one of a semaphore's keys, which the number picks, with a value of another type, and
    /// deletes it after this long.
    Poison(Key, usize, Duration),
    /// A server's replica receives nothing for this long.
    Mute(usize, Duration),
    /// A server's replica takes its place, which takes this long.
    FailOver(usize, Duration),
    /// Sentinels replace a server by one with this data, which takes this long. They disagree for a while.
    Elect(usize, Duration, Data),
    /// A server's clock is set forward or back by this number of ms.
    ClockStep(usize, i64),
}

/// How a connection breaks.
#[derive(Debug, Clone, Copy)]
pub enum Break {
    /// At once. Everything under way arrives, arrives late or is lost.
    Reset,
    /// Nothing arrives for this long. Then everything does.
    Stall(Duration),
    /// Nothing arrives for this long. Then the connection breaks.
    Silence(Duration),
    /// Calls arrive for this long, but answers do not. Then the connection breaks.
    Deaf(Duration),
}

/// The data of a server that starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// The data that it had.
    Same,
    /// The data that it had some time before.
    Old,
    /// Nothing.
    Empty,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn new(workload: Workload, seed: u64) -> Self {
        let base = workload.base(seed);
        let is_mixed = workload == Workload::Mixed;
        let (is_fair, has_limits) = (base == Workload::Fair, base == Workload::Limits || is_mixed);
        let is_cluster = match base {
            Workload::Cluster | Workload::ClusterOutage => true,
            Workload::Server | Workload::Outage => false,
            Workload::Fair
            | Workload::Limits
            | Workload::Pauses
            | Workload::Questions
            | Workload::Mixed
            | Workload::Budgets => seed % 2 == 1,
        };
        let has_outages = matches!(base, Workload::Outage | Workload::ClusterOutage);
        let mut random = Random::new(seed);
        let lease = random.pick(&[1, 1, 3, 20]);
        // A process asks for limits three times in a lease, so with a long lease it would learn of few changes.
        let lease = Duration::from_secs(if has_limits { lease.min(3) } else { lease });
        let mut schedule = Self {
            workload,
            base,
            seed,
            processes: random.from(1, PROCESSES as u64) as usize,
            servers: if random.one_in(4) { 2 } else { 1 },
            homes: 0,
            is_cluster,
            has_slots: false,
            takes_over: false,
            slots: Slots::default(),
            clocks: vec![(0, 0); 3],
            policies: policies(base, &mut random),
            has_replicas: false,
            runtimes: random.pick(&[1, 2, 2, 3]),
            lease,
            messages_lost: random.pick(&[0, 0, 10, 50, 100]),
            subscribes_late: Duration::ZERO,
            delay: random.pick(&[1, 3, 10, 60]),
            steps: Vec::new(),
        };
        if is_cluster {
            schedule.make_cluster(&mut random);
        }
        schedule.homes = schedule.servers;
        if base == Workload::ClusterOutage && schedule.has_slots {
            schedule.takes_over = random.one_in(2);
            schedule.homes -= usize::from(random.one_in(2));
        }
        let active = schedule.active();
        schedule.add_claims(&mut random, active);
        schedule.add_faults(&mut random, active);
        schedule.add_revocations(&mut random);
        if schedule.has_slots {
            schedule.add_moves(&mut random, active);
        }
        if !is_cluster && !has_outages && random.one_in(6) {
            schedule.add_failovers(&mut random, active);
        }
        match base {
            Workload::Outage => schedule.add_outages(&mut random, active),
            Workload::ClusterOutage => schedule.add_absences(&mut random, active),
            _ => {}
        }
        schedule.add_resizes(&mut random, active);
        if random.one_in(6) {
            let process = random.below(schedule.processes as u64) as usize;
            let at = random.up_to_ms(active.as_millis() as u64);
            schedule.steps.push((at, Step::Shutdown(process)));
        }
        if !has_outages && !schedule.has_slots && random.one_in(8) {
            schedule.add_poison(&mut random, active);
        }
        if !schedule.is_cluster && random.one_in(8) {
            schedule.add_elections(&mut random, active);
        }
        if is_fair {
            schedule.add_flows(&mut Random::new(!seed), active);
        }
        // From a separate sequence, so that a seed keeps the rest of its schedule.
        let mut growth = Random::new(seed.rotate_left(32));
        if !has_outages && growth.one_in(64) {
            schedule.add_growth(&mut growth, active);
        }
        if has_limits {
            schedule.add_limits(&mut Random::new(!seed), active);
        }
        schedule.add_late_faults(
            &mut Random::new(seed.rotate_left(32) ^ LATE_FAULT_DRAWS),
            active,
        );
        if is_mixed {
            schedule.add_mixture(
                &mut Random::new(seed.rotate_left(32) ^ MIXTURE_DRAWS),
                active,
            );
        }
        if workload == Workload::Pauses || is_mixed {
            schedule.add_pauses(&mut Random::new(seed.rotate_left(32) ^ PAUSE_DRAWS), active);
        }
        if workload == Workload::Questions {
            schedule.add_questions(
                &mut Random::new(seed.rotate_left(32) ^ QUESTION_DRAWS),
                active,
            );
        }
        if workload == Workload::Budgets {
            schedule.add_budgets(
                &mut Random::new(seed.rotate_left(32) ^ BUDGET_DRAWS),
                active,
            );
        }
        schedule.steps.sort_by_key(|(at, _)| *at);
        schedule
    }

    /// True if claims have budgets.
    pub fn has_budgets(&self) -> bool {
        self.workload == Workload::Budgets
    }

    /// True if nothing fails, except that messages may be late or lost.
    pub fn is_clean(&self) -> bool {
        let mut steps = self.steps.iter();
        self.delay <= 10 && steps.all(|(_, step)| matches!(step, Step::Claim { .. }))
    }

    /// True if nothing fails, except that messages may be late or lost, and operators only revoke.
    pub fn is_calm(&self) -> bool {
        let mut steps = self.steps.iter();
        let is_calm = |step: &Step| matches!(step, Step::Claim { .. } | Step::Revoke(..));
        self.delay <= 10 && steps.all(|(_, step)| is_calm(step))
    }

    /// Gives budgets to claims, and adds claims with budgets. A third of the schedules is calm.
    fn add_budgets(&mut self, random: &mut Random, active: Duration) {
        let ms = active.as_millis() as u64;
        let most = random.pick(&[1, 5, 40, 1_000]);
        let limits = [(); BUDGETS as usize].map(|()| random.from(most.min(2), most) as u32);
        // In a third of the schedules, all budgets have one limit.
        let limits = if random.one_in(3) {
            [limits[0]; BUDGETS as usize]
        } else {
            limits
        };
        let (exceeds, has_flows) = (random.one_in(3), random.one_in(3));
        let how = (limits, exceeds, has_flows);
        // The judge of budgets handles neither changes of weights nor foreign values.
        self.steps.retain(|(_, step)| {
            !matches!(step, Step::Resize(..) | Step::Grow(..) | Step::Poison(..))
        });
        for at in 0..self.steps.len() {
            let Step::Claim { mut claim, .. } = self.steps[at].1 else {
                continue;
            };
            // A claim has at most three levels. This leaves one or two of them to budgets.
            claim.0[2] = None;
            claim.0[1] = claim.0[1].filter(|_| random.one_in(2));
            let claim = self.with_budgets(random, claim, how, ms);
            if let Step::Claim { claim: own, .. } = &mut self.steps[at].1 {
                *own = claim;
            }
        }
        let within = random.pick(&[100, ms / 4, ms]);
        for _ in 0..random.pick(&[0, 10, 30, 60]) {
            let permits = Level {
                wait: random.one_in(2).then(|| Wait::new(random.up_to_ms(ms / 2))),
                ..Level::new(random.below(2) as Key, 3)
            };
            let permits = Some(permits).filter(|_| random.one_in(3));
            let claim = self.with_budgets(random, Claim([permits, None, None]), how, ms);
            let longest = random.pick(&[5, 100, 1_000, ms]);
            let step = Step::Claim {
                process: random.below(self.processes as u64) as usize,
                runtime: self.runtimes - 1,
                claim,
                hold: random.up_to_ms(longest),
                cancel: random.one_in(5).then(|| random.up_to_ms(longest)),
                goes_on: random.one_in(2),
            };
            self.steps.push((random.up_to_ms(within), step));
        }
        if random.one_in(3) {
            self.steps
                .retain(|(_, step)| matches!(step, Step::Claim { .. }));
            self.delay = self.delay.min(10);
            self.subscribes_late = Duration::ZERO;
            let mut draws = Random::new(!self.seed ^ BUDGET_DRAWS);
            if draws.one_in(3) {
                self.add_revocations_of_budgets(&mut draws, ms);
            }
        } else {
            self.add_faults_of_budgets(random, ms);
        }
    }

    /// Operators revoke one to four reservations.
    fn add_revocations_of_budgets(&mut self, draws: &mut Random, active: u64) {
        for _ in 0..1 + draws.below(4) {
            let key = BUDGET + draws.below(BUDGETS.into()) as Key;
            let step = Step::Revoke(key, draws.below(100) as usize);
            self.steps.push((draws.up_to_ms(active), step));
        }
    }

    /// Moves slots of budgets, sets their limits, pauses them, and revokes their reservations.
    fn add_faults_of_budgets(&mut self, random: &mut Random, active: u64) {
        for (_, step) in &mut self.steps {
            if let Step::Move(slot, ..) = step
                && *slot < BUDGET.into()
                && random.one_in(2)
            {
                *slot = SlotNo::from(BUDGET) + *slot % SlotNo::from(BUDGETS / 2);
            }
        }
        // `random` draws the times, and `draws` the faults.
        let mut add = |step| self.steps.push((random.up_to_ms(active), step));
        let mut draws = Random::new(!self.seed ^ BUDGET_DRAWS);
        let key = |draws: &mut Random| BUDGET + draws.below(BUDGETS.into()) as Key;
        if self.base == Workload::Limits {
            for _ in 0..draws.below(5) {
                let limit = draws.pick(&[None, Some(0), Some(1), Some(4), Some(50)]);
                add(Step::SetLimit(key(&mut draws), draws.one_in(3), limit));
            }
        }
        for _ in 0..draws.pick(&[0, 0, 1, 4]) {
            let process = draws.below(self.processes as u64) as usize;
            let key = key(&mut draws);
            add(Step::PauseKey(process, key, draws.up_to_ms(1_000)));
            add(Step::ResumeKey(process, key));
        }
        for _ in 0..draws.pick(&[0, 0, 1, 4]) {
            add(Step::Revoke(key(&mut draws), draws.below(100) as usize));
        }
    }

    /// Adds budgets to a claim, the shortest window last. They are on the server of its permits unless the servers are
    /// a cluster. The second tuple is: the limit of each budget, true if holders may use more than they estimate, and
    /// true if claims have flows.
    fn with_budgets(
        &self,
        random: &mut Random,
        claim: Claim,
        (limits, exceeds, has_flows): ([u32; BUDGETS as usize], bool, bool),
        active: u64,
    ) -> Claim {
        let mut levels: Vec<_> = claim.levels().collect();
        let first = levels
            .first()
            .map(|level| usize::from(level.key) % self.servers);
        let server = first.unwrap_or_else(|| random.below(self.servers as u64) as usize);
        let is_here = |key: &Key| self.is_cluster || self.settings(0).server_of(*key) == server;
        let all: Vec<_> = (BUDGET..BUDGET + BUDGETS).filter(is_here).collect();
        let used_here = random.pick(&[1, 2, all.len()]);
        let mut keys = Vec::new();
        for number in levels.len()..LEVELS {
            if number == levels.len() || random.one_in(2) {
                keys.push(all[random.below(used_here.min(all.len()) as u64) as usize]);
            }
        }
        if keys.len() > 1 && random.one_in(3) {
            // The same policy and key with another window.
            let other = BUDGET + (keys[0] - BUDGET + BUDGETS / 2) % BUDGETS;
            keys[1] = other;
        }
        keys.sort_by_key(|key| (std::cmp::Reverse(window(*key)), *key));
        keys.dedup();
        let weight = random.from(1, 1_000) as u32;
        for key in keys {
            let limit = limits[usize::from(key - BUDGET)];
            let part = random.pick(&[1, 2, 8]);
            let weight = random.pick(&[1, limit, limit.div_ceil(part), weight % limit + 1]);
            let most = if exceeds { 3 * weight } else { weight };
            let some = random.from(0, most.into()) as u32;
            let used = random.pick(&[0, weight / 2, weight, some]);
            let steps = random.pick(&[0, 1, 3, 12]);
            let charge = match random.one_in(3) {
                true => Charge::Grant,
                false => Charge::Settlement { used, steps },
            };
            levels.push(Level {
                weight,
                wait: (!random.one_in(3)).then(|| Wait {
                    time: random.up_to_ms(active / 2),
                    max_waiting: random.pick(&[1, 3, 100, 100]),
                    head_start: Duration::ZERO,
                }),
                is_strict: random.one_in(12),
                charge: Some(charge),
                ..Level::new(key, limit)
            });
        }
        let flow = random.below(3) as u8;
        for level in levels.iter_mut().filter(|_| has_flows) {
            level.flow = Some((b'a' + flow, flow + 1));
        }
        let mut claim = [None; LEVELS];
        for (place, level) in claim.iter_mut().zip(levels) {
            *place = Some(level);
        }
        Claim(claim)
    }

    /// Adds faults from separate draws, so that a seed keeps the rest of its schedule. Subscriptions come late. Slots
    /// of the store's own keys move, are stuck in a move until the end, or are served by no server.
    fn add_late_faults(&mut self, random: &mut Random, active: Duration) {
        if random.one_in(4) {
            self.subscribes_late = Duration::from_millis(random.pick(&[20, 300, 1_500]));
        }
        let moves_own = matches!(
            self.base,
            Workload::Cluster | Workload::Fair | Workload::Limits
        );
        if !self.has_slots || !moves_own || !random.one_in(2) {
            return;
        }
        for _ in 0..random.from(1, 3) {
            let slot = random.pick(&[CLOCK, subject::PROCESSES, subject::PROCESSES]);
            let to = random.below(self.servers as u64) as usize;
            let most = random.pick(&[1, 50, 1_000, STUCK]);
            let time = Duration::from_millis(random.from(most / 2, most));
            let at = match random.one_in(3) {
                true => Duration::ZERO,
                false => random.up_to_ms(active.as_millis() as u64),
            };
            self.steps.push((at, Step::Move(slot, to, time)));
        }
        for _ in 0..random.below(3) {
            let slot = random.pick(&[CLOCK, subject::PROCESSES]);
            let most = random.pick(&[50, 1_000, STUCK]);
            let time = Duration::from_millis(random.from(most / 2, most));
            let at = Duration::from_millis(random.below(active.as_millis() as u64));
            self.steps.push((at, Step::LeaveUnserved(slot, time)));
        }
    }

    /// Pauses semaphores that claims name. Other pauses may follow, longer or shorter, and some are ended early.
    fn add_pauses(&mut self, random: &mut Random, active: Duration) {
        let claims = self.claims();
        for _ in 0..random.from(1, 6) {
            let (at, claim, hold) = random.pick(&claims);
            let keys: Vec<_> = claim.levels().map(|level| level.key).collect();
            let (key, most) = (random.pick(&keys), active.as_millis() as u64);
            let mut at = match random.one_in(2) {
                true => at + random.up_to_ms(hold.as_millis() as u64 + 20),
                false => random.up_to_ms(most),
            };
            let count = random.pick(&[1, 1, 2, 3]);
            for _ in 0..count {
                let process = random.below(self.processes as u64) as usize;
                let time = random.pick(&[5, 60, 400, 1_500, 6_000]);
                let time = Duration::from_millis(random.from(1, time));
                self.steps.push((at, Step::PauseKey(process, key, time)));
                if random.one_in(4) {
                    let then = at + random.up_to_ms(time.as_millis() as u64 + 50);
                    self.steps.push((then, Step::ResumeKey(process, key)));
                }
                at += random.up_to_ms(time.as_millis() as u64 + 50);
            }
        }
    }

    /// Adds claims that wait at several levels, faults where they wait, and servers that do not report their time.
    fn add_mixture(&mut self, random: &mut Random, active: Duration) {
        // With few claims, a process may have none for a while, and must then have forgotten everything.
        if random.one_in(3) {
            let mut is_first = true;
            self.steps.retain(|(_, step)| {
                let is_claim = matches!(step, Step::Claim { .. });
                !is_claim || std::mem::take(&mut is_first) || random.one_in(8)
            });
        }
        if self.is_cluster {
            for _ in 0..random.pick(&[0, 1, 3]) {
                self.add_chain(random, active);
            }
        }
        for _ in 0..random.pick(&[0, 0, 1, 2]) {
            self.add_flush(random, active);
        }
        if random.one_in(3) {
            self.hide_times(random, active);
        }
        if self.is_cluster && random.one_in(6) {
            self.add_lost_answer(random);
        } else if random.one_in(6) {
            self.add_revoked_growths(random);
        }
    }

    /// Replaces all claims. One permit grows several times in one call, because other claims are under way. An operator
    /// has revoked it a moment before.
    fn add_revoked_growths(&mut self, random: &mut Random) {
        self.steps
            .retain(|(_, step)| !matches!(step, Step::Claim { .. }));
        let process = random.below(self.processes as u64) as usize;
        let runtime = self.runtimes - 1;
        let level = Level::new(0, 20);
        let claim = |hold| Step::Claim {
            process,
            runtime,
            claim: Claim::from(level),
            hold,
            cancel: None,
            goes_on: true,
        };
        let begin = Duration::from_millis(300) + random.up_to_ms(1_000);
        self.steps
            .push((begin, claim(Duration::from_millis(2_000))));
        let then = begin + Duration::from_millis(300) + random.up_to_ms(300);
        for _ in 0..random.from(1, 6) {
            self.steps.push((then, claim(random.up_to_ms(300))));
        }
        for _ in 0..random.from(2, 4) {
            self.steps.push((then, Step::Resize(process, 0, 1)));
        }
        let before = random.up_to_ms(20);
        self.steps.push((then - before, Step::Revoke(0, 0)));
    }

    /// Replaces all claims by one claim of two levels. The answer to its acquire of the wider level is lost, both
    /// servers stall a moment later, and its caller gives up. So a call without an answer lasts longer than later
    /// calls.
    fn add_lost_answer(&mut self, random: &mut Random) {
        self.steps
            .retain(|(_, step)| !matches!(step, Step::Claim { .. }));
        let (begin, narrow) = (random.up_to_ms(1_000), random.below(4) as Key);
        let process = random.below(self.processes as u64) as usize;
        let level = |key| Level {
            wait: Some(Wait::new(Duration::from_secs(2))),
            ..Level::new(key, 1)
        };
        let claim = Step::Claim {
            process,
            runtime: self.runtimes - 1,
            claim: Claim([Some(level(narrow)), Some(level(narrow + 1)), None]),
            hold: random.up_to_ms(300),
            cancel: Some(Duration::from_millis(random.from(500, 1_200))),
            goes_on: false,
        };
        self.steps.push((begin, claim));
        let [narrow_server, wide_server] =
            [narrow, narrow + 1].map(|key| usize::from(key) % self.servers);
        let time = Duration::from_millis(random.from(150, 400));
        for runtime in 0..self.runtimes {
            let link = runtime * self.servers + wide_server;
            self.steps
                .push((begin, Step::Break(process, link, Break::Deaf(time))));
        }
        for (server, soonest, latest) in [(narrow_server, 300, 700), (wide_server, 500, 1_200)] {
            let then = begin + Duration::from_millis(random.from(soonest, latest));
            let long = Duration::from_millis(random.from(1_500, 2_500));
            self.steps.push((then, Step::Pause(server, long)));
        }
    }

    /// Adds claims that wait at several levels. While one of them waits at a wider level, its narrowest level is
    /// paused, the limit of a wider level is set, or its servers answer late or not at all.
    fn add_chain(&mut self, random: &mut Random, active: Duration) {
        let (active, narrow) = (active.as_millis() as u64, random.below(3) as Key);
        let begin = Duration::from_millis(random.below(active / 2));
        let (count, heaviest) = (random.from(2, 6), random.pick(&[1, 1, 2]));
        let (longest, limit) = (active / 2, random.from(heaviest, 3) as u32);
        for _ in 0..count {
            let mut levels = [None; LEVELS];
            let most = random.from(2, LEVELS as u64) as usize;
            for (key, place) in (narrow..).zip(levels.iter_mut().take(most)) {
                *place = Some(Level {
                    weight: random.from(1, heaviest) as u32,
                    wait: Some(Wait::new(random.up_to_ms(longest))),
                    ..Level::new(key, limit)
                });
            }
            let step = Step::Claim {
                process: random.below(self.processes as u64) as usize,
                runtime: self.runtimes - 1,
                claim: Claim(levels),
                hold: random.up_to_ms(600),
                cancel: random.one_in(2).then(|| random.up_to_ms(longest)),
                goes_on: random.one_in(2),
            };
            self.steps.push((begin + random.up_to_ms(200), step));
        }
        for _ in 0..random.from(1, 4) {
            let at = begin + random.up_to_ms(1_500);
            let process = random.below(self.processes as u64) as usize;
            let wide = narrow + random.from(1, 2) as Key;
            let step = match random.below(3) {
                0 => Step::PauseKey(process, narrow, random.up_to_ms(1_000)),
                1 => Step::SetLimit(wide, false, Some(random.from(1, 3) as u32)),
                _ => {
                    self.add_silence(random, at);
                    continue;
                }
            };
            self.steps.push((at, step));
        }
    }

    /// Loses the answers of a server for a moment, and stalls the server a little later, before the process can repeat
    /// all of the calls.
    fn add_silence(&mut self, random: &mut Random, at: Duration) {
        let server = random.below(self.servers as u64) as usize;
        let process = random.below(self.processes as u64) as usize;
        let time = random.up_to_ms(400);
        for runtime in 0..self.runtimes {
            let link = runtime * self.servers + server;
            let step = Step::Break(process, link, Break::Deaf(time));
            self.steps.push((at, step));
        }
        let then = at + time + random.up_to_ms(800);
        let long = Duration::from_millis(random.from(300, 2_500));
        self.steps.push((then, Step::Pause(server, long)));
    }

    /// Adds a server that forgets its scripts while the calls of one runtime are slow, and claims of other runtimes for
    /// the units that this runtime releases.
    fn add_flush(&mut self, random: &mut Random, active: Duration) {
        let process = random.below(self.processes as u64) as usize;
        let at = random.up_to_ms(active.as_millis() as u64);
        let key = random.below(5) as Key;
        let slow = random.below(self.runtimes as u64) as usize;
        for _ in 0..random.from(2, 8) {
            let level = Level {
                wait: random.one_in(2).then(|| Wait::new(random.up_to_ms(500))),
                ..Level::new(key, 1)
            };
            let step = Step::Claim {
                process,
                runtime: random.below(self.runtimes as u64) as usize,
                claim: Claim::from(level),
                hold: random.up_to_ms(60),
                cancel: None,
                goes_on: false,
            };
            self.steps.push((at + random.up_to_ms(200), step));
        }
        let then = at + random.up_to_ms(100);
        for server in 0..self.servers {
            let link = slow * self.servers + server;
            let time = Duration::from_millis(random.from(50, 240));
            self.steps
                .push((then, Step::Break(process, link, Break::Stall(time))));
            for _ in 0..random.from(1, 3) {
                let step = Step::Flush(server, random.from(1, 4) as usize);
                self.steps.push((then + random.up_to_ms(100), step));
            }
        }
    }

    /// From the start on, a server does not report its time: to each process for a while, or until the end. In half of
    /// the cases, many claims of one process are made in that time.
    fn hide_times(&mut self, random: &mut Random, active: Duration) {
        let active = active.as_millis() as u64;
        let server = random.below(self.servers as u64) as usize;
        for process in 0..self.processes {
            let most = random.pick(&[100, 1_000, active, STUCK]);
            let time = Duration::from_millis(random.from(most / 2, most));
            let step = Step::HideTime(process, server, time);
            self.steps.push((Duration::ZERO, step));
        }
        let process = random.below(self.processes as u64) as usize;
        for _ in 0..random.pick(&[0, 0, 0, 20, 20, 80, 300, 0]) {
            let key = random.below(5) as Key;
            let level = Level::new(key, 3);
            let step = Step::Claim {
                process,
                runtime: self.runtimes - 1,
                claim: Claim::from(level),
                hold: random.up_to_ms(20),
                cancel: random.one_in(2).then(|| random.up_to_ms(50)),
                goes_on: false,
            };
            self.steps.push((random.up_to_ms(active), step));
        }
    }

    /// Adds questions of operators, mostly where something is held or waits, and moves slots at about the same time.
    fn add_questions(&mut self, random: &mut Random, active: Duration) {
        // While a slot moves, its new server runs a script only if it has all keys. All exist only if claims wait.
        if random.one_in(2) {
            self.add_crowds(random, active);
        }
        let claims = self.claims();
        for _ in 0..random.from(1, 8) {
            let (at, claim, hold) = random.pick(&claims);
            let keys: Vec<_> = claim.levels().map(|level| level.key).collect();
            let (process, key) = (
                random.below(self.processes as u64) as usize,
                random.pick(&keys),
            );
            let time = random.pick(&[5, 60, 400, 1_500]);
            let query = match random.below(6) {
                0 | 1 => OperatorAction::Usage,
                2 | 3 => OperatorAction::Revoke(random.below(100) as usize),
                4 => OperatorAction::Pause(Duration::from_millis(random.from(1, time))),
                _ => OperatorAction::Resume,
            };
            let then = at + random.up_to_ms(hold.as_millis() as u64 + 10);
            self.steps.push((then, Step::Ask(process, key, query)));
            if self.has_slots && random.one_in(2) {
                let to = random.below(self.servers as u64) as usize;
                let longest = random.pick(&[40, 400, 2_000]);
                let time = random.up_to_ms(longest);
                let at = (then + Duration::from_millis(100)).saturating_sub(random.up_to_ms(300));
                let step = Step::Move(key.into(), to, time);
                self.steps.push((at.min(active), step));
            }
        }
    }

    /// Adds limits of semaphores and of a policy, and claims of a lock, whose limit none of them changes.
    fn add_limits(&mut self, random: &mut Random, active: Duration) {
        let active = active.as_millis() as u64;
        for _ in 0..random.from(1, 8) {
            let key = random.pick(&[0, 0, 1, 1, 2, 3, 4, LOCK]);
            let limit = random.pick(&[None, Some(0), Some(1), Some(2), Some(3), Some(5)]);
            let step = Step::SetLimit(key, random.one_in(3), limit);
            self.steps.push((random.up_to_ms(active), step));
        }
        if random.one_in(2) {
            self.add_crowds(random, Duration::from_millis(active));
        }
        let level = Level {
            wait: Some(Wait::new(random.up_to_ms(active / 3))),
            is_strict: true,
            ..Level::new(LOCK, 1)
        };
        for _ in 0..random.from(0, 6) {
            let step = Step::Claim {
                process: random.below(self.processes as u64) as usize,
                runtime: self.runtimes - 1,
                claim: Claim::from(level),
                hold: random.up_to_ms(200),
                cancel: None,
                goes_on: false,
            };
            self.steps.push((random.up_to_ms(active), step));
        }
    }

    /// Gives flows to claims, and adds a crowd of claims that wait for one key. In half of the schedules all claims
    /// cost the same.
    fn add_flows(&mut self, random: &mut Random, active: Duration) {
        let is_plain = random.one_in(2);
        let shares = match is_plain {
            true => [1; 3],
            false => [1, random.pick(&[1, 2, 100]), random.pick(&[1, 3, 4])],
        };
        self.add_crowds(random, active);
        for (_, step) in &mut self.steps {
            let Step::Claim { claim, .. } = step else {
                continue;
            };
            for level in claim.0.iter_mut().flatten() {
                let flow = random.below(4) as usize;
                level.flow = shares.get(flow).map(|share| (b'a' + flow as u8, *share));
                level.weight = if is_plain { 1 } else { level.weight };
                if let Some(wait) = level.wait.as_mut().filter(|_| level.flow.is_some()) {
                    wait.head_start = Duration::ZERO;
                }
            }
        }
    }

    /// Adds claims of all processes that wait for one semaphore, hold it for a moment, and sometimes give up.
    fn add_crowds(&mut self, random: &mut Random, active: Duration) {
        let active = active.as_millis() as u64;
        let (begin, key) = (random.below(active / 2), random.below(2) as Key);
        let (limit, within) = (
            random.from(1, 3) as u32,
            random.pick(&[20, 300, active / 2]),
        );
        for _ in 0..random.from(5, 40) {
            let level = Level {
                weight: random.pick(&[1, 1, 1, 2]).min(limit),
                wait: Some(Wait {
                    time: random.up_to_ms(active / 3),
                    max_waiting: random.pick(&[3, 10, 100, 100]),
                    head_start: Duration::ZERO,
                }),
                ..Level::new(key, limit)
            };
            let step = Step::Claim {
                process: random.below(self.processes as u64) as usize,
                runtime: self.runtimes - 1,
                claim: Claim::from(level),
                hold: random.up_to_ms(60),
                cancel: random.one_in(8).then(|| random.up_to_ms(active / 3)),
                goes_on: false,
            };
            let at = Duration::from_millis(begin) + random.up_to_ms(within);
            self.steps.push((at, step));
        }
    }

    /// Lets Sentinels replace servers, early enough for all to agree before every claim is over.
    fn add_elections(&mut self, random: &mut Random, active: Duration) {
        for _ in 0..random.from(1, 2) {
            let server = random.below(self.servers as u64) as usize;
            let at = random.up_to_ms(active.as_millis() as u64 / 2);
            let data = random.pick(&[Data::Same, Data::Old]);
            let step = Step::Elect(server, random.up_to_ms(500), data);
            self.steps.push((at, step));
        }
    }

    /// Stalls each server, long enough for all processes to notice.
    fn add_outages(&mut self, random: &mut Random, active: Duration) {
        for server in 0..self.servers {
            let at = random.up_to_ms(active.as_millis() as u64 / 2);
            let long = Duration::from_millis(700) + random.up_to_ms(1_500);
            self.steps.push((at, Step::Pause(server, long)));
        }
    }

    /// Lets single servers stall, stop or refuse connections, while slots may move.
    fn add_absences(&mut self, random: &mut Random, active: Duration) {
        let active = active.as_millis() as u64;
        for _ in 0..random.pick(&[1, 1, 2, 4]) {
            let server = random.below(self.servers as u64) as usize;
            let at = random.up_to_ms(active / 2);
            let most = random.pick(&[300, 1_500, active / 2]);
            let long = Duration::from_millis(most / 3) + random.up_to_ms(most * 2 / 3);
            let step = match random.below(6) {
                0 | 1 => Step::Pause(server, long),
                2 => Step::Restart(server, long, Data::Same),
                3 => Step::Restart(server, long, random.pick(&[Data::Old, Data::Empty])),
                _ => Step::Deny(server, long, random.one_in(2)),
            };
            self.steps.push((at, step));
            let moves = if self.has_slots { random.below(4) } else { 0 };
            for _ in 0..moves {
                let to = random.below(self.servers as u64) as usize;
                let most = random.pick(&[1, 50, 500]);
                let step = Step::Move(random.below(5) as SlotNo, to, random.up_to_ms(most));
                let then = random.up_to_ms(long.as_millis() as u64);
                self.steps.push((at + then, step));
            }
            if random.one_in(2) {
                self.add_pairs(random, at);
            }
        }
        if self.homes < self.servers && random.one_in(2) {
            // The last server has just joined, and does not accept connections yet.
            let step = Step::Deny(self.homes, random.up_to_ms(active / 2), false);
            self.steps.push((Duration::ZERO, step));
        }
    }

    /// Adds claims of a process for one or two semaphores, at about the time when a server goes away.
    fn add_pairs(&mut self, random: &mut Random, at: Duration) {
        let (process, narrow) = (random.below(self.processes as u64), random.below(4) as Key);
        let (limit, runtime) = (random.from(1, 3) as u32, self.runtimes - 1);
        for _ in 0..random.from(2, 12) {
            let level = |key| Level::new(key, limit);
            let wide = random.one_in(2).then(|| level(narrow + 1));
            let step = Step::Claim {
                process: process as usize,
                runtime,
                claim: Claim([Some(level(narrow)), wide, None]),
                hold: random.up_to_ms(500),
                cancel: None,
                goes_on: random.one_in(2),
            };
            let before = Duration::from_millis(50).min(at);
            self.steps.push((at - before + random.up_to_ms(350), step));
        }
    }

    /// Adds replicas that lag, and lets some of them take the place of their servers.
    fn add_failovers(&mut self, random: &mut Random, active: Duration) {
        self.has_replicas = true;
        let active = active.as_millis() as u64;
        for _ in 0..random.from(0, 3) {
            let server = random.below(self.servers as u64) as usize;
            let (at, time) = (random.up_to_ms(active), random.up_to_ms(1_000));
            self.steps.push((at, Step::Mute(server, time)));
            if random.one_in(2) {
                let fails = at + random.up_to_ms(time.as_millis() as u64 + 1);
                let step = Step::FailOver(server, random.up_to_ms(500));
                self.steps.push((fails, step));
            }
        }
    }

    /// Moves slots. In half of the schedules that do, the clocks of the servers differ.
    fn add_moves(&mut self, random: &mut Random, active: Duration) {
        let count = random.pick(&[0, 1, 2, 5]);
        if count > 0 && random.one_in(2) {
            self.clocks.fill((0, 0));
        }
        for _ in 0..count {
            let at = random.up_to_ms(active.as_millis() as u64);
            let to = random.below(self.servers as u64) as usize;
            let most = random.pick(&[1, 50, 1_000]);
            let step = Step::Move(random.below(5) as SlotNo, to, random.up_to_ms(most));
            self.steps.push((at, step));
        }
    }

    /// Makes the servers a cluster, whose clocks differ.
    fn make_cluster(&mut self, random: &mut Random) {
        self.servers = random.from(2, 3) as usize;
        self.has_slots = random.one_in(2);
        let clocks = (0..self.servers).map(|_| {
            let (ahead, faster) = (random.below(30_000) as i64, random.below(100) as i64 - 50);
            (ahead, faster)
        });
        self.clocks = clocks.collect();
    }

    /// True if some process admits claims while their server is unavailable.
    pub fn admits(&self) -> bool {
        self.policies.iter().any(|policy| *policy != Policy::Refuse)
    }

    /// The settings of a process's core.
    pub fn settings(&self, process: usize) -> Settings {
        Settings {
            process: format!("p{process}"),
            lease: self.lease,
            timeout: TIMEOUT,
            servers: self.servers,
            has_slots: self.has_slots,
            slots: self.slots.clone(),
            homes: self.homes,
            policy: self.policies[process],
            replicas: u32::from(self.has_replicas),
            runtimes: self.runtimes,
        }
    }

    /// True if no lease ends by itself before [`cleared`](Self::cleared).
    pub fn has_long_leases(&self) -> bool {
        self.lease > Duration::from_secs(10)
    }

    /// The time in which claims are made and faults begin. Several short leases pass in it.
    pub fn active(&self) -> Duration {
        match self.has_long_leases() {
            true => Duration::from_secs(3),
            false => Duration::from_secs(4),
        }
    }

    /// When every claim and every fault is over.
    pub fn quiet(&self) -> Duration {
        self.active() + Duration::from_secs(1)
    }

    /// When nothing of the claims may be left, because nothing has been broken for a while.
    pub fn cleared(&self) -> Duration {
        self.quiet() + TIMEOUT * 6
    }

    /// When the simulation ends. By that time, data has also expired that nothing else removes.
    pub fn end(&self) -> Duration {
        self.cleared() + Duration::from_secs(2).max(self.lease * 2)
    }

    fn add_claims(&mut self, random: &mut Random, active: Duration) {
        let keys: Vec<_> = (0..random.from(1, 5)).collect();
        let limits: Vec<_> = keys.iter().map(|_| random.from(1, 3)).collect();
        let (count, has_head_starts) = (random.from(8, 40), random.one_in(3));
        let (active, longest) = (active.as_millis() as u64, active.as_millis() as u64 / 3);
        if random.one_in(64) {
            self.add_crowd(random, active);
        }
        for _ in 0..count {
            let claim = self.claim(random, &limits, (longest, has_head_starts));
            let step = Step::Claim {
                process: random.below(self.processes as u64) as usize,
                runtime: match self.runtimes {
                    1 => 0,
                    count => random.from(1, count as u64 - 1) as usize,
                },
                claim,
                hold: random.up_to_ms(longest),
                cancel: random.one_in(3).then(|| {
                    let within = random.pick(&[2, 20, 100, longest]);
                    random.up_to_ms(within)
                }),
                goes_on: random.one_in(2),
            };
            self.steps.push((random.up_to_ms(active), step));
        }
    }

    /// A claim of some of the keys, in their order, with these limits. Its keys are on one server unless the servers
    /// are a cluster. `how` is the longest wait in ms, and true if claims have head starts.
    fn claim(&self, random: &mut Random, limits: &[u64], how: (u64, bool)) -> Claim {
        let mut levels = [None; LEVELS];
        let mut key = random.below(limits.len() as u64) as usize;
        let most = random.pick(&[1, 1, 2, LEVELS]);
        for place in levels.iter_mut().take(most) {
            let level = limits
                .get(key)
                .map(|limit| level(random, (key, *limit), how));
            // Other workloads do not draw here, so that a seed keeps its schedule.
            let is_strict = match self.base {
                Workload::Outage | Workload::ClusterOutage => random.one_in(8),
                _ => random.clone().one_in(8),
            };
            *place = level.map(|level| Level { is_strict, ..level });
            // The keys of one server are `servers` apart.
            let step = if self.is_cluster { 1 } else { self.servers };
            key += step * random.from(1, 2) as usize;
        }
        Claim(levels)
    }

    /// Adds 70 to 150 claims of one process at one moment, some of them heavy.
    fn add_crowd(&mut self, random: &mut Random, active: u64) {
        let (at, process) = (random.up_to_ms(active), random.below(self.processes as u64));
        let (limit, heaviest) = (random.pick(&[5, 900]), random.pick(&[1, 400]));
        for _ in 0..random.from(70, 150) {
            let level = Level {
                key: random.below(2) as Key,
                limit,
                weight: random.from(1, heaviest.min(u64::from(limit))) as u32,
                wait: None,
                flow: None,
                is_strict: false,
                charge: None,
            };
            let claim = Claim::from(level);
            let step = Step::Claim {
                process: process as usize,
                runtime: self.runtimes - 1,
                claim,
                hold: random.up_to_ms(200),
                cancel: None,
                goes_on: false,
            };
            self.steps.push((at + random.up_to_ms(4), step));
        }
    }

    fn add_faults(&mut self, random: &mut Random, active: Duration) {
        let count = random.pick(&[0, 1, 3, 8]);
        // Once a clock was set, the judge excuses a lot. So this happens in few schedules only.
        let sets_clocks = random.one_in(4);
        let claims: Vec<_> = self.steps.iter().map(|(at, _)| *at).collect();
        for _ in 0..count {
            // Half of the faults strike while something is under way.
            let at = match random.one_in(2) {
                true => random.pick(&claims) + random.up_to_ms(self.delay * 2),
                false => random.up_to_ms(active.as_millis() as u64),
            };
            let step = self.fault(random, sets_clocks);
            self.steps.push((at, step));
        }
    }

    /// All claims: when each is made, its levels, and how long it is held.
    fn claims(&self) -> Vec<(Duration, Claim, Duration)> {
        let claims = self.steps.iter().filter_map(|(at, step)| match step {
            Step::Claim { claim, hold, .. } => Some((*at, *claim, *hold)),
            _ => None,
        });
        claims.collect()
    }

    fn add_revocations(&mut self, random: &mut Random) {
        let claims = self.claims();
        for _ in 0..random.pick(&[0, 0, 1, 4]) {
            // At that time something is usually held, or waits.
            let (at, claim, hold) = random.pick(&claims);
            let keys: Vec<_> = claim.levels().map(|level| level.key).collect();
            let after = random.up_to_ms(hold.as_millis() as u64 + 10);
            let step = Step::Revoke(random.pick(&keys), random.below(100) as usize);
            self.steps.push((at + after, step));
        }
    }

    fn add_poison(&mut self, random: &mut Random, active: Duration) {
        let claims = self.claims();
        for _ in 0..random.from(1, 2) {
            let (at, claim, _) = random.pick(&claims);
            let keys: Vec<_> = claim.levels().map(|level| level.key).collect();
            let key = random.pick(&keys);
            let at = (at + random.up_to_ms(10)).min(active);
            let time = random.up_to_ms(2_000).min(active - at);
            let step = Step::Poison(key, random.below(4) as usize, time);
            self.steps.push((at, step));
        }
    }

    fn add_resizes(&mut self, random: &mut Random, active: Duration) {
        for _ in 0..random.pick(&[0, 0, 3, 20]) {
            let process = random.below(self.processes as u64) as usize;
            let pick = random.below(1_000) as usize;
            let step = Step::Resize(process, pick, random.pick(&[-2, -1, 1, 1, 2]));
            let at = random.up_to_ms(active.as_millis() as u64);
            self.steps.push((at, step));
        }
    }

    /// Adds a permit that grows by one unit many times, like a permit that counts the tokens of a stream.
    fn add_growth(&mut self, random: &mut Random, active: Duration) {
        let (process, key) = (random.below(self.processes as u64) as usize, 0);
        let level = Level::new(key, random.pick(&[60, 900]));
        let claim = Step::Claim {
            process,
            runtime: self.runtimes - 1,
            claim: Claim::from(level),
            hold: active,
            cancel: None,
            goes_on: true,
        };
        self.steps.push((Duration::ZERO, claim));
        let active = active.as_millis() as u64;
        for _ in 0..random.from(50, 300) {
            let at = random.up_to_ms(active);
            self.steps.push((at, Step::Grow(process, key)));
        }
    }

    /// A random fault. If `sets_clocks`, it may set a server's clock.
    fn fault(&self, random: &mut Random, sets_clocks: bool) -> Step {
        let process = random.below(self.processes as u64) as usize;
        let server = random.below(self.servers as u64) as usize;
        let link = random.below((self.servers * self.runtimes) as u64) as usize;
        let time = random.up_to_ms(1_000);
        match random.below(if sets_clocks { 13 } else { 11 }) {
            0 => Step::Kill(process),
            1 | 2 => Step::Suspend(process, time),
            3 | 7 => Step::Break(process, link, Break::Reset),
            4 => Step::Break(process, link, Break::Stall(time)),
            5 => Step::Break(process, link, Break::Silence(time)),
            6 => Step::Break(process, link, Break::Deaf(time)),
            8 => {
                let data = random.pick(&[Data::Same, Data::Old, Data::Empty]);
                Step::Restart(server, time, data)
            }
            9 => Step::Pause(server, time),
            10 => Step::Abandon(process, link),
            _ => {
                let most = random.pick(&[5, 500, 5_000, 300_000]);
                let by = random.below(most) as i64;
                Step::ClockStep(server, if random.one_in(2) { by } else { -by })
            }
        }
    }
}

/// The policy of each process.
fn policies(workload: Workload, random: &mut Random) -> [Policy; PROCESSES] {
    // The first four admit claims up to a share.
    let all = [
        Policy::Share,
        Policy::Share,
        Policy::Half,
        Policy::Half,
        Policy::Admit,
        Policy::Refuse,
    ];
    match workload {
        Workload::Outage if random.one_in(2) => [Policy::Share; PROCESSES],
        Workload::Outage => [Policy::Half; PROCESSES],
        Workload::ClusterOutage if random.one_in(2) => [random.pick(&all[..4]); PROCESSES],
        Workload::ClusterOutage => [(); PROCESSES].map(|()| random.pick(&all)),
        _ => [Policy::Refuse; PROCESSES],
    }
}

/// A level of a claim, with a wait up to `longest` ms.
fn level(
    random: &mut Random,
    (key, limit): (usize, u64),
    (longest, has_head_starts): (u64, bool),
) -> Level {
    // One claim in twelve names a lower limit for its key than the others do.
    let limit = (limit - u64::from(random.one_in(12))).max(1);
    let wait = (!random.one_in(3)).then(|| Wait {
        time: random.up_to_ms(longest),
        max_waiting: random.pick(&[1, 3, 100, 100]),
        head_start: match has_head_starts && random.one_in(2) {
            true => random.up_to_ms(500),
            false => Duration::ZERO,
        },
    });
    Level {
        key: key as Key,
        limit: limit as u32,
        weight: random.pick(&[1, 1, 1, 2, 3]).min(limit) as u32,
        wait,
        flow: None,
        is_strict: false,
        charge: None,
    }
}

/// A sequence of numbers that depends only on its seed: SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn from(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// `true` once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// A length of time below `most` ms. It is a number of microseconds, so that few events coincide.
    pub fn up_to_ms(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.below(most * 1_000))
    }

    /// A random item.
    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}
