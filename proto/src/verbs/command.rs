//! Commands as data, and their encoding as runs of scripts with KEYS and ARGV.

use super::{
    id::{Charge, LeaseUnits, Owner, Reservation, UnitId},
    verb::Verb,
};
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

/// One run of a script.
#[derive(Debug, Clone)]
pub enum Command {
    /// Grants permits, or positions in queues. A waiter's poll, which is its heartbeat, is an acquire too.
    Acquire {
        /// How long a grant lasts unless it is refreshed.
        lasts: Duration,
        /// Ms of the server's clock. After this time the command changes nothing.
        runs_until: u64,
        /// The first token of a semaphore that has none yet, in microseconds.
        floor: u64,
        /// The levels of each claim, from the narrowest limit to the widest.
        claims: Vec<Vec<Wanted>>,
    },
    /// Moves the ends of leases forward.
    Refresh {
        /// How long the leases last from now on.
        lasts: Duration,
        groups: Vec<Group>,
    },
    /// Frees units, or leaves queues.
    Release {
        /// True if the answer should report which units were held.
        with_answer: bool,
        /// As in `Acquire`, because the script grants the freed units to waiters.
        floor: u64,
        groups: Vec<Group>,
    },
    /// Reads the server's clock, and writes and reads the keys of these parts.
    Presence(Vec<Part>),
    /// Announces that this process leaves.
    Leave,
    /// Lets the next command run although its slot is moving.
    Asking,
    /// Waits until `replicas` replicas have all earlier writes, but at most for `within`.
    Confirm { replicas: u32, within: Duration },
}

/// A part of a presence call. Each names a separate key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The highest time of any server that this process has seen, microseconds.
    Clock(u64),
    /// The live processes: adds this one, and counts them.
    Processes,
    /// The limits that operators set, unless they have this version.
    Limits(Option<u64>),
    /// The description of this process, for operators.
    Process,
}

impl Part {
    /// The key of the part, and its two arguments: a name and a value.
    fn encoded(&self, owner: &Owner) -> (String, &'static str, String) {
        match self {
            Self::Clock(highest) => (owner.key("clock"), "clock", highest.to_string()),
            Self::Processes => (owner.key("processes"), "processes", owner.member()),
            Self::Limits(known) => {
                let known = known.map_or(String::new(), |version| version.to_string());
                (owner.limits_key(), "limits", known)
            }
            Self::Process => (owner.process_key(), "process", owner.about.clone()),
        }
    }
}

/// A level of a claim.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The name of the semaphore.
    pub name: Arc<str>,
    pub units: LeaseUnits,
    /// `None` if the claim does not wait here, or no longer.
    pub position: Option<Position>,
    pub standing: Standing,
}

/// The history of a claim when an acquire of it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No acquire was sent before.
    New,
    /// An acquire was sent before, so an operator may have revoked it.
    Sent,
    /// The caller holds the permit, which the server may lack. An operator may have revoked it. A pause takes no units
    /// that it still has, but a lease without units waits for the end of the pause.
    Granted,
}

/// A position in a queue, sent with each acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// How long the waiter counts as alive after this acquire.
    pub alive: Duration,
    /// The most claims that may wait for the semaphore.
    pub max_waiting: u32,
    /// The arrival that the server returned before; 0 if it has returned none.
    pub arrival: u64,
    /// The waiter counts as arrived earlier by this time.
    pub head_start: Duration,
}

/// Permits of one semaphore.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: Arc<str>,
    pub permits: Vec<LeaseUnits>,
}

impl Group {
    /// The number of units of its permits.
    pub fn units(&self) -> usize {
        let units = self.permits.iter().map(|permit| permit.count() as usize);
        units.sum()
    }
}

/// Receives the run of a script: its verb, then its keys and arguments.
pub trait Sink {
    /// Begins the run. `keys` keys follow, then about `args` arguments.
    fn begin(&mut self, verb: Verb, keys: usize, args: usize);

    /// Adds a key, or an argument.
    fn add(&mut self, item: impl fmt::Display);
}

/// Also receives commands that run no script.
pub trait CommandSink: Sink {
    fn plain(&mut self, words: &[&dyn fmt::Display]);
}

impl Command {
    /// Writes the command as its script takes it.
    pub fn encode(&self, owner: &Owner, sink: &mut impl CommandSink) {
        match self {
            Self::Acquire {
                lasts,
                runs_until,
                floor,
                claims,
            } => {
                let head = [owner.lease_ms, *runs_until, *floor, millis(*lasts)];
                encode_acquire(owner, &head, claims, sink);
            }
            Self::Refresh { lasts, groups } => {
                encode_groups(Verb::Refresh, &[millis(*lasts)], groups, (owner, sink));
            }
            Self::Release {
                with_answer,
                floor,
                groups,
            } => {
                let head = [u64::from(*with_answer), *floor];
                encode_groups(Verb::Release, &head, groups, (owner, sink));
            }
            Self::Presence(parts) => encode_presence(owner.lease_ms, parts, (owner, sink)),
            Self::Leave => encode_presence(0, &[Part::Processes], (owner, sink)),
            Self::Asking => sink.plain(&[&"ASKING"]),
            Self::Confirm { replicas, within } => {
                // Zero would be no bound.
                sink.plain(&[&"WAIT", replicas, &millis(*within).max(1)]);
            }
        }
    }
}

fn encode_presence(lease_ms: u64, parts: &[Part], (owner, sink): (&Owner, &mut impl Sink)) {
    let parts: Vec<_> = parts.iter().map(|part| part.encoded(owner)).collect();
    let keys: Vec<&str> = parts.iter().map(|(key, ..)| &**key).collect();
    begin(Verb::Presence, &keys, 1 + 3 * keys.len(), sink);
    sink.add(lease_ms);
    for (_, part, value) in &parts {
        sink.add(2);
        sink.add(part);
        sink.add(value);
    }
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

/// Writes the script, and its keys for semaphores of these names.
fn begin(verb: Verb, names: &[&str], args: usize, sink: &mut impl Sink) {
    sink.begin(verb, names.len() * verb.keys().len(), args);
    names.iter().for_each(|name| verb.add_keys(name, sink));
}

/// Writes the arguments for all semaphores, `head`. Then, for each semaphore, the number of its arguments and the
/// arguments.
fn encode_groups(
    verb: Verb,
    head: &[u64],
    groups: &[Group],
    (owner, sink): (&Owner, &mut impl Sink),
) {
    let names: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
    let units: usize = groups.iter().map(Group::units).sum();
    let permits = groups.iter().flat_map(|group| &group.permits);
    let verb = verb.serving(permits);
    begin(verb, &names, head.len() + names.len() + units, sink);
    for arg in head {
        sink.add(arg);
    }
    for group in groups {
        sink.add(group.units());
        for permit in &group.permits {
            match permit.reservation {
                None => permit.ids(owner).for_each(|unit| sink.add(unit)),
                Some(reservation) => permit
                    .ids(owner)
                    .for_each(|unit| sink.add(format_args!("{unit} {reservation}"))),
            }
        }
    }
}

/// Writes claims as `acquire.lua` takes them. Each semaphore is named once, and claims refer to its number. The terms
/// of neighbouring claims are written once if they are equal.
fn encode_acquire(owner: &Owner, head: &[u64], claims: &[Vec<Wanted>], sink: &mut impl Sink) {
    let (mut numbers, mut names) = (HashMap::new(), Vec::new());
    for wanted in claims.iter().flatten() {
        numbers.entry(&*wanted.name).or_insert_with(|| {
            names.push(&*wanted.name);
            names.len()
        });
    }
    let all_levels: usize = claims.iter().map(Vec::len).sum();
    let units = claims.iter().flatten().map(|wanted| &wanted.units);
    let verb = Verb::Acquire.serving(units);
    begin(verb, &names, 5 + 2 * claims.len() + 3 * all_levels, sink);
    let first = claims.first().map_or(0, Vec::len);
    let have_equal_length = claims.iter().all(|claim| claim.len() == first);
    let levels = if have_equal_length { first as u64 } else { 0 };
    for arg in head.iter().chain([&levels]) {
        sink.add(arg);
    }
    let terms = |claim: &[Wanted]| claim.iter().map(Wanted::terms).collect::<Vec<_>>();
    for run in claims.chunk_by(|one, next| terms(one) == terms(next)) {
        if !have_equal_length {
            sink.add(run[0].len());
        }
        sink.add(run.len());
        terms(&run[0]).iter().for_each(|terms| sink.add(terms));
        for wanted in run.iter().flatten() {
            sink.add(numbers[&*wanted.name]);
            sink.add(UnitId::new(owner, &wanted.units.id, 1));
        }
    }
}

/// The terms of a claim at a level: see `acquire.lua`.
#[derive(PartialEq)]
struct Terms {
    /// The limit, or a number up to 0 that `acquire.lua` explains.
    limit: i64,
    is_rate: bool,
    position: Option<Position>,
}

impl Wanted {
    fn terms(&self) -> Terms {
        let limit = match self.standing {
            Standing::Granted => -2,
            Standing::Sent => -1,
            Standing::New if self.units.members() > 1 => 0,
            Standing::New => i64::from(self.units.id.limit),
        };
        let reservation = self.units.reservation;
        Terms {
            limit,
            is_rate: reservation.is_some_and(|reservation| reservation.charge == Charge::Grant),
            position: self.position,
        }
    }
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.limit)?;
        if self.is_rate {
            f.write_str(" rate")?;
        }
        self.position
            .iter()
            .try_for_each(|position| write!(f, " {position}"))
    }
}

/// Written behind a unit's id in refreshes and releases: the units that count as used so far, and `keep`.
impl fmt::Display for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.settled.unwrap_or(0))?;
        f.write_str(if self.keeps_member { " keep" } else { "" })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (alive, head_start) = (self.alive.as_millis(), self.head_start.as_micros());
        let (max_waiting, arrival) = (self.max_waiting, self.arrival);
        write!(f, "{alive} {max_waiting} {arrival} {head_start}")
    }
}
