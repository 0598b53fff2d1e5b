//! A call of a script, with its arguments as the scripts' headers say.

use crate::{
    scripts::Verb,
    semaphore::keys,
    time::{ALIVE, LEASE, NOW, NOW_MS, REMEMBER},
    unit::Unit,
};

/// How a claim waits at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Wait {
    /// How many claims may wait.
    pub max_waiting: u8,
    /// The arrival that the server has told, from now, microseconds.
    pub arrival: Option<i64>,
    /// Microseconds.
    pub head_start: i64,
}

/// What a call names: a permit that is wanted, or a unit to refresh or to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Item {
    /// The semaphore.
    pub key: u8,
    /// The unit; of a permit the first one.
    pub unit: Unit,
    /// Whether the claim waits.
    pub wait: Option<Wait>,
    /// Whether the permit was sent before, so that it may have been revoked.
    pub was_sent: bool,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    /// The script.
    pub verb: Verb,
    /// Of a release, whether an answer is wanted.
    pub with_answer: bool,
    /// Until when an acquire may run, ms from now.
    pub deadline: i64,
    /// The least token without a predecessor, microseconds from now.
    pub floor: i64,
    /// The items of each semaphore, or the levels of each claim.
    pub shares: Vec<Vec<Item>>,
}

/// What the server says of an item; of a claim for several levels, about all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Tokens from now, in microseconds, and how many units are held, for each level.
    Granted(Vec<(i64, i64)>),
    /// There is no room at a level.
    Full {
        /// From 0.
        level: u8,
        /// Units.
        held: i64,
    },
    /// The queue of a level is full.
    QueueFull {
        /// From 0.
        level: u8,
    },
    /// It waits at a level.
    Queued {
        /// From 0.
        level: u8,
        /// Units.
        held: i64,
        /// From now, microseconds.
        arrival: i64,
        /// Ms, of the head.
        recheck: Option<i64>,
        /// From now, microseconds.
        last_token: i64,
    },
    /// It was revoked at a level.
    Revoked {
        /// From 0.
        level: u8,
    },
    /// The call came after its deadline.
    Late,
    /// Whether a unit is held, or was; whether a permit was revoked.
    Is(bool),
    /// A release without an answer.
    Unknown,
}

impl Call {
    /// Whether the call may only be refused.
    pub fn is_late(&self) -> bool {
        self.is_acquire() && self.deadline < 0
    }

    /// Whether the call grants to those whom it names.
    pub fn is_acquire(&self) -> bool {
        self.verb == Verb::Acquire
    }

    /// All items.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.shares.iter().flatten()
    }

    /// Whether the call names a permit or one of its units.
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

    /// `KEYS`.
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

    /// `ARGV`.
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
                for share in &self.shares {
                    args.push(share.len().to_string());
                    args.extend(share.iter().map(|item| item.unit.to_string()));
                }
            }
        }
        args
    }

    /// Claims that wait alike say how once.
    fn claim_args(&self, args: &mut Vec<String>) {
        let (semaphores, equal) = (self.semaphores(), self.levels());
        args.push(equal.to_string());
        let terms = |share: &[Item]| share.iter().map(terms).collect::<Vec<_>>();
        for run in self.shares.chunk_by(|one, next| terms(one) == terms(next)) {
            args.extend((equal == 0).then(|| run[0].len().to_string()));
            args.push(run.len().to_string());
            args.extend(terms(&run[0]));
            for item in run.iter().flatten() {
                let number = semaphores.iter().position(|key| *key == item.key);
                args.push((number.unwrap_or_default() + 1).to_string());
                args.push(item.unit.to_string());
            }
        }
    }

    /// How many levels each claim has; 0 if their numbers differ.
    fn levels(&self) -> usize {
        let counts: Vec<_> = self.shares.iter().map(Vec::len).collect();
        match counts.windows(2).all(|pair| pair[0] == pair[1]) {
            true => counts.first().copied().unwrap_or_default(),
            false => 0,
        }
    }
}

/// The limit of a claim at a level, and how it waits there.
fn terms(item: &Item) -> String {
    let wait = item.wait.map(wait_text).unwrap_or_default();
    fast_limit(item) + &wait
}

fn fast_limit(item: &Item) -> String {
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
