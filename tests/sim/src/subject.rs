//! The inputs and outputs of a core, as the judge reads them. A core makes decisions but performs no I/O. Times are
//! arguments, by the clock of the process.

use crate::{
    slots::Slots,
    wire::{Script, slot_key},
};
use model::stand_in::Reply;
use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc, time::Duration};

/// An instant of a process's clock, counted from the boot of its machine.
pub type Time = Duration;

/// The number of a key, and of its semaphore.
pub type Key = u8;

/// The number of a slot. If each semaphore has a separate slot, the slot has the number of the key.
pub type SlotNo = u16;

/// The slot of the store's key for the highest time that processes have seen of any server.
pub const CLOCK: SlotNo = 256;

/// The slot of the store's keys for the live processes and the operators' limits.
pub const PROCESSES: SlotNo = 257;

/// The number of a server.
pub type Server = usize;

/// The number of a runtime of a process. The first is that of the keeper's thread.
pub type Runtime = usize;

/// The number of a claim and its permit, which their process chooses. A *growth*, a claim for more units of a permit,
/// has a separate number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PermitId(pub u64);

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// The number of a call, which its process chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

/// How a process treats claims while their server is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// They are refused.
    Refuse,
    /// They are admitted.
    Admit,
    /// They are admitted up to the limit divided by the number of live processes.
    Share,
    /// They are admitted up to half of the limit.
    Half,
}

impl Policy {
    /// True if claims are admitted up to a share of the limit.
    pub fn shares(self) -> bool {
        matches!(self, Self::Share | Self::Half)
    }
}

/// The settings with which a core starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of the process.
    pub process: String,
    /// How long a grant lasts without a refresh.
    pub lease: Duration,
    /// How long the answer to a call may take.
    pub timeout: Duration,
    /// The number of servers.
    pub servers: usize,
    /// True if each semaphore has a separate slot. Otherwise one script may name all semaphores of a server.
    pub has_slots: bool,
    /// The locations of slots that have moved.
    pub slots: Slots,
    /// How many of the servers have slots at the start: all, or all but the last, which has just joined.
    pub homes: usize,
    /// How the process treats claims while their server is unavailable.
    pub policy: Policy,
    /// How many replicas must confirm a grant before it counts.
    pub replicas: u32,
    /// The number of runtimes of the process, including that of the keeper's thread.
    pub runtimes: usize,
}

impl Settings {
    /// The server that has a semaphore.
    pub fn server_of(&self, key: Key) -> Server {
        self.home_of(slot_key(key).into())
    }

    /// The server that has the keys of a slot. Each semaphore must have a separate slot.
    pub fn home_of(&self, slot: SlotNo) -> Server {
        let place = self.slots.place(slot);
        place.map_or_else(|| self.first_home(slot.into()), |place| place.home)
    }

    /// The server that has a slot at the start.
    pub fn first_home(&self, slot: usize) -> Server {
        slot % self.homes
    }

    /// The slot of a key. One script may name keys of one slot.
    pub fn slot_of(&self, key: Key) -> u16 {
        match self.has_slots {
            true => slot_key(key).into(),
            false => self.first_home(slot_key(key).into()) as u16,
        }
    }

    /// The slots of the key that stores the highest time, and of the key that stores the processes.
    pub fn slots_of_store(&self) -> [u16; 2] {
        match self.has_slots {
            true => [CLOCK, PROCESSES],
            false => [0, 0],
        }
    }

    /// The server that counts the live processes and stores the limits that operators set.
    pub fn counting_server(&self) -> Server {
        self.home_of(self.slots_of_store()[1])
    }

    /// All slots, and the server of each.
    pub fn all_slots(&self) -> Vec<(Range<usize>, Server)> {
        let slots = match self.has_slots {
            true => usize::from(PROCESSES) + 1,
            false => self.servers,
        };
        let owner = |slot| match self.slots.place(slot as SlotNo) {
            Some(place) => place.owner,
            None => self.first_home(slot),
        };
        (0..slots)
            .map(|slot| (slot..slot + 1, owner(slot)))
            .collect()
    }

    /// The leases of a claim: each has the neighbouring levels that one script may name.
    pub fn leases(&self, claim: Claim) -> Vec<Vec<Level>> {
        let levels: Vec<_> = claim.levels().collect();
        let runs = levels.chunk_by(|one, next| self.slot_of(one.key) == self.slot_of(next.key));
        runs.map(<[Level]>::to_vec).collect()
    }

    /// The number of a runtime's connection to a server.
    pub fn link(&self, runtime: Runtime, server: Server) -> usize {
        runtime * self.servers + server
    }

    /// How long a process waits before it tries again to acquire a lost permit.
    pub fn absence(&self) -> Duration {
        (self.lease / 3).min(Duration::from_secs(5))
    }

    /// How often a waiter polls.
    pub fn heartbeat(&self) -> Duration {
        self.lease / 12
    }

    /// How long a server counts a waiter as alive after a poll.
    pub fn alive(&self) -> Duration {
        (self.heartbeat() * 3).max(self.heartbeat() + self.timeout * 2)
    }
}

/// The most levels of a claim.
pub const LEVELS: usize = 3;

/// The levels of a caller's claim, from narrow to wide.
#[derive(Clone, Copy)]
pub struct Claim(pub [Option<Level>; LEVELS]);

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.levels()).finish()
    }
}

/// One limit of a claim.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// The semaphore.
    pub key: Key,
    /// How many units may be held at the same time.
    pub limit: u32,
    /// How many units the claim asks for.
    pub weight: u32,
    /// `None`: the claim does not wait here.
    pub wait: Option<Wait>,
    /// The letter of its flow, and its share.
    pub flow: Option<(u8, u8)>,
    /// True if the claim is never admitted without its server.
    pub is_strict: bool,
    /// `None`: it is no budget.
    pub charge: Option<Charge>,
}

/// When units of a budget count as used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charge {
    /// When the claim is granted.
    Grant,
    /// When the holder reports them (settles): a total, in some steps. With 0 steps it settles nothing.
    Settlement {
        /// The units that it has used at the end.
        used: u32,
        /// How often it settles.
        steps: u32,
    },
}

/// How a claim waits.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// The longest wait.
    pub time: Duration,
    /// How many claims may wait at the same time.
    pub max_waiting: u32,
    /// How much earlier than its arrival the claim counts as arrived.
    pub head_start: Duration,
}

impl Level {
    /// Creates a level of one unit, without a wait.
    pub fn new(key: Key, limit: u32) -> Self {
        Self {
            key,
            limit,
            weight: 1,
            wait: None,
            flow: None,
            is_strict: false,
            charge: None,
        }
    }
}

impl Wait {
    /// Creates a wait among at most 100 others, without a head start.
    pub fn new(time: Duration) -> Self {
        Self {
            time,
            max_waiting: 100,
            head_start: Duration::ZERO,
        }
    }
}

/// A change of a permit's weight.
#[derive(Debug, Clone, Copy)]
pub struct Resize {
    /// The number of the level in the claim, from 0.
    pub level: usize,
    /// The number of units to add or to take away, or those that the level has.
    pub units: u32,
    /// How many units may be held at the same time.
    pub limit: u32,
}

impl Resize {
    /// The claim for these units, if they are added.
    pub fn claim(&self, key: Key) -> Claim {
        let level = Level {
            key,
            limit: self.limit,
            weight: self.units,
            wait: None,
            flow: None,
            is_strict: false,
            charge: None,
        };
        Claim([Some(level), None, None])
    }
}

impl From<Level> for Claim {
    fn from(level: Level) -> Self {
        Self([Some(level), None, None])
    }
}

impl Claim {
    /// Its levels.
    pub fn levels(&self) -> impl Iterator<Item = Level> {
        self.0.into_iter().flatten()
    }

    /// Its level of a semaphore.
    pub fn level(&self, key: Key) -> Option<Level> {
        self.levels().find(|level| level.key == key)
    }

    /// How long it may wait.
    pub fn longest_wait(&self) -> Duration {
        let waits = self.levels().filter_map(|level| level.wait);
        waits.map(|wait| wait.time).max().unwrap_or_default()
    }
}

/// A permit under one of its ids, as the server knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// The permit's number in the lower 32 bits, the number of the growth in the next 16 (0: the permit itself), and
    /// then the generation, which counts the ids that the permit or growth has had.
    pub serial: u64,
    /// The limit of its claim.
    pub limit: u32,
    /// The weight of its claim.
    pub weight: u32,
    /// The numbers of the first and the last unit to which a command applies.
    pub units: (u32, u32),
}

/// The difference between the serials of two successive ids of a permit.
pub const GENERATION: u64 = 1 << 48;

/// The difference between the serials of a permit and its first growth, and of two successive growths.
pub const GROWTH: u64 = 1 << 32;

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            serial,
            limit,
            weight,
            units: (first, last),
        } = self;
        write!(f, "#{serial:x} {weight} of {limit}")?;
        match (*first, last == weight) {
            (1, true) => Ok(()),
            _ => write!(f, " units {first} to {last}"),
        }
    }
}

impl Id {
    /// The permit or growth, regardless of the generation.
    pub fn permit(&self) -> PermitId {
        PermitId(self.serial % GENERATION)
    }

    /// The number of units to which a command applies.
    pub fn count(&self) -> u32 {
        self.units.1 + 1 - self.units.0
    }
}

/// A permit that an acquire asks for.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Its id.
    pub id: Id,
    /// `None`: it does not wait, or does not wait any more.
    pub position: Option<Position>,
    /// True if an acquire of it was sent before.
    pub was_sent: bool,
    /// True if its caller holds the permit, so that the acquire brings it back.
    pub is_back: bool,
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = if self.position.is_some() {
            "waits"
        } else {
            "does not wait"
        };
        write!(f, "{:?} {waits}", self.id)
    }
}

/// A position in the queue.
#[derive(Debug, Clone, Copy)]
pub struct Position {
    /// How the claim waits.
    pub wait: Wait,
    /// How long the waiter counts as alive.
    pub alive: Duration,
    /// The arrival that an earlier answer of the server contained, or 0.
    pub arrival: u64,
}

/// One run of a script.
#[derive(Debug, Clone)]
pub enum Command {
    /// Grants permits or positions. Polls and heartbeats are acquires too.
    Acquire {
        /// How long a grant lasts without a refresh.
        lasts: Duration,
        /// The time in ms of the server's clock after which the script changes nothing.
        runs_until: u64,
        /// The least token that a semaphore without an earlier token gives: a time in microseconds.
        floor: u64,
        /// The levels of each claim.
        claims: Vec<Vec<(Key, Wanted)>>,
    },
    /// Postpones the ends of permits.
    Refresh {
        /// How long the permits last from now on.
        lasts: Duration,
        /// The permits of each semaphore.
        of: Vec<(Key, Vec<Id>)>,
    },
    /// Frees units, and removes waiters.
    Release {
        /// True if the answer must list which permits were held.
        with_answer: bool,
        /// As for an acquire.
        floor: u64,
        /// The permits of each semaphore.
        of: Vec<(Key, Vec<Id>)>,
    },
    /// Reads the server's clock.
    Clock {
        /// The highest time that the process has seen, in microseconds. `None`: the server does not store it.
        highest: Option<u64>,
        /// True if the server counts the live processes.
        counts: bool,
        /// `Some` if the process asks for the operators' limits: the version that it knows, if any.
        limits: Option<Option<u64>>,
    },
    /// The process does not count as alive any more.
    Leave,
    /// A script for claims with budgets. Only the judge of budgets reads more of it.
    Budgets {
        /// The permits that it wants.
        wanted: Vec<PermitId>,
        /// Its arguments.
        args: Vec<String>,
    },
}

/// The commands that travel to a server together.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number.
    pub id: CallId,
    /// The runtime that sends it.
    pub runtime: Runtime,
    /// The server to which it goes.
    pub server: Server,
    /// The scripts to run, in this order.
    pub scripts: Vec<Script>,
    /// The same, decoded.
    pub commands: Vec<Command>,
    /// True if its last command waits until replicas have what it wrote.
    pub confirms: bool,
    /// Answers that come later need not count.
    pub deadline: Time,
    /// The world calls this when the call leaves the process, so that the core knows that it was written.
    pub on_written: OnWritten,
}

/// Notes in the core that a call has left its process.
#[derive(Clone)]
pub struct OnWritten(pub Arc<dyn Fn()>);

impl fmt::Debug for OnWritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnWritten")
    }
}

/// Why a server did not run a script to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is loading its data, or reports that it is a replica.
    Loading,
    /// It does not know the script.
    NoScript,
    /// Another server has the slot.
    Moved(Server),
    /// The slot is moving to another server, which has the keys if they exist.
    Ask(Server),
    /// The slot is moving, and this server has only some of the keys.
    Again,
    /// No server serves the slot.
    Unserved,
    /// A key has a value of another type. The effects of the script up to that point remain.
    WrongType,
    /// The process has no right to run the script.
    Forbidden,
    /// The slot is moving away, and the script has used a key that it had deleted before, so that it no longer was
    /// here. The effects of the script up to that point remain.
    Midway,
}

/// A server's answer to a command.
#[derive(Debug, Clone)]
pub struct Said {
    /// The reply as it came.
    pub reply: Result<Reply, Refused>,
    /// The same reply, decoded.
    pub answer: Answer,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// The server's time in ms, and the answer for each claim.
    Acquired(u64, Vec<Acquired>),
    /// The acquire arrived after its `runs_until`, and changed nothing. The number is the server's time in ms.
    Late(u64),
    /// True for each permit that is held.
    Held(Vec<bool>),
    /// The release was done.
    Released,
    /// The server's time in ms, the number of live processes, and the operators' limits if the process does not know
    /// them.
    Clock(u64, Option<u32>, Option<Limits>),
    /// The reply to a script that knows budgets.
    Budgets,
    /// This number of replicas have everything that the call wrote.
    Replicas(u32),
    /// The server did not run the script, or the script ended with an error.
    Error(Refused),
}

/// The limits that operators have set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// A number that grows with each change.
    pub version: u64,
    /// The limits by name: `POLICY:KEY`, or `POLICY`.
    pub all: BTreeMap<String, u32>,
}

/// The answer for a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Acquired {
    /// It is held.
    Granted {
        /// The token of each level.
        tokens: [u64; LEVELS],
        /// The number of units that all permits hold at each level.
        held: [u64; LEVELS],
    },
    /// The limit leaves no room.
    Full {
        /// The number of that level in the lease, from 0.
        level: usize,
    },
    /// Too many claims wait.
    QueueFull {
        /// As for `Full`.
        level: usize,
    },
    /// An operator has revoked it.
    Revoked {
        /// As for `Full`.
        level: usize,
    },
    /// That level is paused.
    Paused {
        /// As for `Full`.
        level: usize,
        /// For how long it stays paused.
        left: Duration,
    },
    /// It waits, and holds the narrower levels.
    Queued {
        /// As for `Full`.
        level: usize,
        /// The arrival of the waiter, as the server numbers it.
        arrival: u64,
        /// After how long the claim should poll, if it is the head of the queue.
        recheck: Option<Duration>,
        /// The last token of the semaphore.
        last_token: u64,
        /// For how long the level is paused, if it is.
        pause: Option<Duration>,
    },
}

/// Why a call has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection was up, so the call was not sent.
    NotConnected,
    /// The connection broke. The call may still run.
    Broken,
    /// The task that carried the call was dropped. The call may still run.
    Abandoned,
    /// The call has run, but too few replicas have confirmed it.
    Unconfirmed,
}

/// A message that a script has sent to the process.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The serial of the permit's id.
    pub serial: u64,
    /// The token of the grant. 0 means that the waiter should poll.
    pub token: u64,
}

/// A change of slots or connections.
#[derive(Debug, Clone)]
pub enum Servers {
    /// The server of each slot.
    Slots(Vec<(Range<usize>, Server)>),
    /// A connection of a runtime to a server is up.
    Connected(Runtime, Server),
    /// Another connection has replaced a silent one.
    Replaced(Runtime, Server),
    /// A connection is gone. Calls in flight fail one by one.
    Gone(Runtime, Server),
    /// No connection to a server could be made. True if the server refused it.
    Denied(Server, bool),
}

/// An event for a caller.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event {
    /// The permit is held, with these tokens.
    Granted(PermitId, [u64; LEVELS]),
    /// The claim is refused.
    Refused(PermitId, Refusal),
    /// The permit is held no more.
    Lost(PermitId),
    /// It goes on without its server.
    Degraded(PermitId),
    /// It was lost, and is held again, with these tokens.
    Regained(PermitId, [u64; LEVELS]),
    /// An operator has ended it.
    Revoked(PermitId),
    /// Units that were taken from a permit are released. The id is that of the part, not of the permit.
    Released(PermitId),
    /// The releases of a permit that its caller has given up are over. True if all of it was held until then.
    GivenUp(PermitId, bool),
}

impl Event {
    /// The permit to which the event applies.
    pub fn permit(&self) -> PermitId {
        match *self {
            Self::Granted(permit, _)
            | Self::Refused(permit, _)
            | Self::Lost(permit)
            | Self::Regained(permit, _)
            | Self::Revoked(permit)
            | Self::Degraded(permit)
            | Self::Released(permit)
            | Self::GivenUp(permit, _) => permit,
        }
    }
}

/// Why a claim is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The limit has no room for it.
    Full,
    /// Too many claims wait.
    QueueFull,
    /// The limit had no room during the whole wait of the claim.
    TimedOut,
    /// A level is paused for this much longer, and the claim does not wait until then.
    Paused(Duration),
    /// An operator has revoked the claim.
    Revoked,
    /// The process makes no more claims.
    Closed,
    /// The server does not answer.
    Unavailable,
    /// The server has answered with an error that concerns a key of the claim.
    Failed,
    /// The process had more claims than it could send to the server in time.
    Congested,
}
