//! A call of a script, with the arguments that the script's header documents.

use crate::{
    scripts::Verb,
    semaphore::keys,
    time::{ALIVE, LEASE, NOW, NOW_MS, REMEMBER},
    unit::Unit,
};

/// How a claim waits at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wait {
    /// The queue's bound: how many claims may wait.
    pub max_waiting: u8,
    /// The arrival that the server has reported before, in microseconds from now.
    pub arrival: Option<i64>,
    /// In microseconds.
    pub head_start: i64,
}

/// An item of a call: a permit to acquire or revoke, or a unit to refresh or release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Item {
    /// The semaphore.
    pub key: u8,
    /// The unit. For a whole permit, its first unit.
    pub unit: Unit,
    /// How the claim waits; `None` if it does not wait.
    pub wait: Option<Wait>,
    /// True if an acquire of the permit was sent before, so that the permit may have been revoked.
    pub was_sent: bool,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// The script.
    pub verb: Verb,
    /// True if a release asks which units were still held; otherwise the server answers only 0.
    pub with_answer: bool,
    /// The time until which an acquire may run, in ms from now.
    pub deadline: i64,
    /// The least token that a key without an earlier token may grant, in microseconds from now.
    pub floor: i64,
    /// For an acquire, the levels of each claim; for another call, the items of each semaphore.
    pub groups: Vec<Vec<Item>>,
}

/// The server's answer to one item, or to all levels of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Granted: for each level, the token in microseconds from now, and how many units are held.
    Granted(Vec<(i64, i64)>),
    /// A level has no room.
    Full {
        /// The level, from 0.
        level: u8,
        /// The units held.
        held: i64,
    },
    /// The queue of a level is full.
    QueueFull {
        /// The level, from 0.
        level: u8,
    },
    /// The claim waits at a level.
    Queued {
        /// The level, from 0.
        level: u8,
        /// The units held.
        held: i64,
        /// The arrival, in microseconds from now.
        arrival: i64,
        /// For the head of the queue, the time until its next poll, in ms.
        recheck: Option<i64>,
        /// The last token, in microseconds from now.
        last_token: i64,
    },
    /// The permit was revoked at a level.
    Revoked {
        /// The level, from 0.
        level: u8,
    },
    /// The call came after its deadline.
    Late,
    /// For a refresh, true if the unit is held; for a release, if it was held; for a revocation, if the permit was
    /// found.
    Is(bool),
    /// A release that wants no answer.
    Unknown,
}

impl Call {
    /// Returns true if the call must be refused, because its deadline has passed.
    pub fn is_late(&self) -> bool {
        self.is_acquire() && self.deadline < 0
    }

    /// Returns true if the call grants permits to the claims that it names.
    pub fn is_acquire(&self) -> bool {
        self.verb == Verb::Acquire
    }

    /// All items.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.groups.iter().flatten()
    }

    /// Returns true if the call names a permit or one of its units.
    pub fn names(&self, unit: Unit) -> bool {
        let is_named = |item: &Item| match self.verb {
            Verb::Acquire | Verb::Revoke => item.unit.id() == unit.id(),
            _ => item.unit == unit,
        };
        self.items().any(is_named)
    }

    /// The semaphores that the call names, in the order of `KEYS`.
    fn semaphores(&self) -> Vec<u8> {
        let mut semaphores = Vec::new();
        for item in self.items() {
            if !semaphores.contains(&item.key) {
                semaphores.push(item.key);
            }
        }
        semaphores
    }

    /// The script's `KEYS`.
    pub fn keys(&self) -> Vec<String> {
        let names = self.semaphores().into_iter().flat_map(|at| {
            let [held, queue, alive, token] = keys(at);
            match self.verb {
                Verb::Refresh => vec![held, token],
                _ => vec![held, queue, alive, token],
            }
        });
        names.collect()
    }

    /// The script's `ARGV`.
    pub fn args(&self) -> Vec<String> {
        let (deadline, floor) = (NOW_MS + self.deadline, NOW + self.floor);
        let head = match self.verb {
            Verb::Refresh => vec![LEASE],
            Verb::Release => vec![i64::from(self.with_answer), floor],
            Verb::Revoke => vec![floor, REMEMBER],
            _ => vec![LEASE, deadline, floor, LEASE],
        };
        let mut args: Vec<_> = head.iter().map(ToString::to_string).collect();
        match self.is_acquire() {
            true => self.claim_args(&mut args),
            false => {
                for group in &self.groups {
                    args.push(group.len().to_string());
                    args.extend(group.iter().map(|item| item.unit.to_string()));
                }
            }
        }
        args
    }

    /// Adds the arguments of claims. Consecutive claims with the same terms share one copy of them.
    fn claim_args(&self, args: &mut Vec<String>) {
        let (semaphores, levels) = (self.semaphores(), self.common_levels());
        args.push(levels.to_string());
        let terms = |claim: &[Item]| claim.iter().map(terms).collect::<Vec<_>>();
        for run in self.groups.chunk_by(|one, next| terms(one) == terms(next)) {
            args.extend((levels == 0).then(|| run[0].len().to_string()));
            args.push(run.len().to_string());
            args.extend(terms(&run[0]));
            for item in run.iter().flatten() {
                let number = semaphores.iter().position(|key| *key == item.key);
                args.push((number.unwrap_or_default() + 1).to_string());
                args.push(item.unit.to_string());
            }
        }
    }

    /// The number of levels of each claim, or 0 if claims differ.
    fn common_levels(&self) -> usize {
        let counts: Vec<_> = self.groups.iter().map(Vec::len).collect();
        match counts.windows(2).all(|pair| pair[0] == pair[1]) {
            true => counts.first().copied().unwrap_or_default(),
            false => 0,
        }
    }
}

/// The terms of a claim at one level: its limit, and how it waits.
fn terms(item: &Item) -> String {
    let wait = item.wait.map(wait_text).unwrap_or_default();
    limit_term(item) + &wait
}

/// The limit as the script expects it: -1 if an acquire was sent before, 0 for several units.
fn limit_term(item: &Item) -> String {
    let Unit { limit, weight, .. } = item.unit;
    match (item.was_sent, weight) {
        (true, _) => "-1".to_owned(),
        (false, 1) => limit.to_string(),
        (false, _) => "0".to_owned(),
    }
}

fn wait_text(wait: Wait) -> String {
    let arrival = wait.arrival.map_or(0, |arrival| arrival + NOW);
    let (max_waiting, head_start) = (wait.max_waiting, wait.head_start);
    format!(" {ALIVE} {max_waiting} {arrival} {head_start}")
}
