//! What goes in and out of a core, which decides and does nothing. Time comes in as an argument, and is that of the
//! process's own clock.

use crate::{slots::Slots, wire::Script};
use model::stand_in::Reply;
use std::{collections::BTreeMap, fmt, ops::Range, sync::Arc, time::Duration};

/// An instant of a process's clock, since its machine has booted.
pub type Time = Duration;

/// The number of a key, and of its semaphore.
pub type Key = u8;

/// The number of a slot. That of a semaphore, where each has one, is that of its key.
pub type SlotNo = u16;

/// The slot of the key of the highest time.
pub const CLOCK: SlotNo = 256;

/// The slot of the keys of the processes and of the limits.
pub const PROCESSES: SlotNo = 257;

/// The number of a server.
pub type Server = usize;

/// The number of a runtime of a process. The first is that of the keeper's thread.
pub type Runtime = usize;

/// A claim and its permit have one number, which their process chooses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PermitId(pub u64);

impl fmt::Debug for PermitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A process's number of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {}", self.0)
    }
}

/// What becomes of claims while their server is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// They are refused.
    Refuse,
    /// They are admitted.
    Admit,
    /// They are admitted up to the limit divided by how many processes live.
    Share,
    /// They are admitted up to half of the limit.
    Half,
}

impl Policy {
    /// Whether claims are admitted up to a share.
    pub fn shares(self) -> bool {
        matches!(self, Self::Share | Self::Half)
    }
}

/// What a core is told when its process starts.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of the process.
    pub process: String,
    /// How long a grant lasts without a refresh.
    pub lease: Duration,
    /// How long the answer to a call may take.
    pub timeout: Duration,
    /// How many servers there are.
    pub servers: usize,
    /// Whether one script may name all semaphores of a server, or each is in a slot of its own.
    pub has_slots: bool,
    /// Where semaphores are that have moved.
    pub slots: Slots,
    /// How many of them have slots at the start: all, or all but the last, which has joined.
    pub homes: usize,
    /// What becomes of claims while their server is unavailable.
    pub policy: Policy,
    /// How many replicas must have a grant before it counts.
    pub replicas: u32,
    /// How many runtimes the process has, that of the keeper's thread among them.
    pub runtimes: usize,
}

impl Settings {
    /// The server that has a semaphore.
    pub fn server_of(&self, key: Key) -> Server {
        self.home_of(key.into())
    }

    /// The server that has the keys of a slot, where each semaphore has one.
    pub fn home_of(&self, slot: SlotNo) -> Server {
        let place = self.slots.place(slot);
        place.map_or_else(|| self.home(slot.into()), |place| place.home)
    }

    /// The server that has it at the start.
    fn first_of(&self, key: Key) -> Server {
        self.home(key.into())
    }

    /// The server that has a slot at the start.
    pub fn home(&self, slot: usize) -> Server {
        slot % self.homes
    }

    /// The slot of a key. One script may name keys of one slot.
    pub fn slot_of(&self, key: Key) -> u16 {
        match self.has_slots {
            true => key.into(),
            false => self.first_of(key) as u16,
        }
    }

    /// The slots of the key of the highest time, and of that of the processes.
    pub fn slots_of_store(&self) -> [u16; 2] {
        match self.has_slots {
            true => [CLOCK, PROCESSES],
            false => [0, 0],
        }
    }

    /// The server that counts processes, and has the limits that operators set.
    pub fn counting(&self) -> Server {
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
            None => self.home(slot),
        };
        (0..slots)
            .map(|slot| (slot..slot + 1, owner(slot)))
            .collect()
    }

    /// The leases of a claim: each a run of neighbouring levels that one script may name.
    pub fn leases(&self, claim: Claim) -> Vec<Vec<Level>> {
        let levels: Vec<_> = claim.levels().collect();
        let runs = levels.chunk_by(|one, next| self.slot_of(one.key) == self.slot_of(next.key));
        runs.map(<[Level]>::to_vec).collect()
    }

    /// The number of a runtime's connection to a server.
    pub fn link(&self, runtime: Runtime, server: Server) -> usize {
        runtime * self.servers + server
    }

    /// How long a lost permit waits before it tries to come back once more.
    pub fn absence(&self) -> Duration {
        (self.lease / 3).min(Duration::from_secs(5))
    }

    /// How often a waiter polls.
    pub fn heartbeat(&self) -> Duration {
        self.lease / 12
    }

    /// How long a waiter counts as alive after a poll.
    pub fn alive(&self) -> Duration {
        (self.heartbeat() * 3).max(self.heartbeat() + self.timeout * 2)
    }
}

/// The most levels of a claim.
pub const LEVELS: usize = 3;

/// What a caller asks for: some levels, from narrow to wide.
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
    /// How many units may be held together.
    pub limit: u32,
    /// How many units it asks for.
    pub weight: u32,
    /// `None`: the claim does not wait here.
    pub wait: Option<Wait>,
    /// The letter of its flow, and its share.
    pub flow: Option<(u8, u8)>,
    /// Whether the claim is never admitted without its server.
    pub is_strict: bool,
}

/// How a claim waits.
#[derive(Debug, Clone, Copy)]
pub struct Wait {
    /// At most.
    pub time: Duration,
    /// How many may wait.
    pub max_waiting: u32,
    /// How much earlier it counts as arrived.
    pub head_start: Duration,
}

impl Level {
    /// One unit, without a wait.
    pub fn new(key: Key, limit: u32) -> Self {
        Self {
            key,
            limit,
            weight: 1,
            wait: None,
            flow: None,
            is_strict: false,
        }
    }
}

impl Wait {
    /// A wait among at most 100 others, without a head start.
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
    /// The number of the level.
    pub level: usize,
    /// The difference.
    pub units: u32,
    /// How many units may be held together.
    pub limit: u32,
}

impl Resize {
    /// What is claimed for a growth.
    pub fn claim(&self, key: Key) -> Claim {
        let level = Level {
            key,
            limit: self.limit,
            weight: self.units,
            wait: None,
            flow: None,
            is_strict: false,
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

/// A permit as the server knows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Id {
    /// The permit's number in its lower 32 bits, that of its growth in the next 16, and the generation.
    pub serial: u64,
    /// That of its claim.
    pub limit: u32,
    /// That of its claim.
    pub weight: u32,
    /// The numbers of the first and of the last of its units that are meant.
    pub units: (u32, u32),
}

/// What a permit's serial grows by when it gets another id.
pub const GENERATION: u64 = 1 << 48;

/// The distance between the serials of a permit's growths. The first growth has the permit's serial plus this.
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
    /// The permit.
    pub fn permit(&self) -> PermitId {
        PermitId(self.serial % GENERATION)
    }

    /// How many units are meant.
    pub fn count(&self) -> u32 {
        self.units.1 + 1 - self.units.0
    }
}

/// A permit that is wanted.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Its id.
    pub id: Id,
    /// `None`: it does not wait, or no longer.
    pub position: Option<Position>,
    /// Whether an acquire of it was sent before.
    pub was_sent: bool,
    /// True if its caller holds the permit, which comes back.
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
    /// What the server has answered before, or 0.
    pub arrival: u64,
}

/// One run of a script.
#[derive(Debug, Clone)]
pub enum Command {
    /// Grants permits or positions. A poll and a heartbeat are the same.
    Acquire {
        /// How long a grant lasts without a refresh.
        lasts: Duration,
        /// Ms of the server's clock, after which it changes nothing.
        runs_until: u64,
        /// Microseconds, the least token of a semaphore without one.
        floor: u64,
        /// The levels of each claim.
        claims: Vec<Vec<(Key, Wanted)>>,
    },
    /// Moves ends forward.
    Refresh {
        /// How long, from now on.
        lasts: Duration,
        /// Permits of each semaphore.
        of: Vec<(Key, Vec<Id>)>,
    },
    /// Frees units, or leaves queues.
    Release {
        /// Whether the answer says what was held.
        with_answer: bool,
        /// As for an acquire.
        floor: u64,
        /// Permits of each semaphore.
        of: Vec<(Key, Vec<Id>)>,
    },
    /// Reads the server's clock.
    Clock {
        /// The highest that the process has seen, microseconds. `None`: the server does not keep it.
        highest: Option<u64>,
        /// Whether it counts the processes that live.
        counts: bool,
        /// Of the limits that operators set, if they are asked, the version that the process knows.
        limits: Option<Option<u64>>,
    },
    /// The process counts no more.
    Leave,
}

/// What travels to a server together.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its number.
    pub id: CallId,
    /// Which runtime sends it.
    pub runtime: Runtime,
    /// Where it goes.
    pub server: Server,
    /// In this order.
    pub scripts: Vec<Script>,
    /// The same, as it is read.
    pub commands: Vec<Command>,
    /// Whether it waits for replicas at its end.
    pub confirms: bool,
    /// Until when an answer counts.
    pub deadline: Time,
    /// Whether it has left, which the world notes.
    pub left: Left,
}

/// Whether a call has left its process.
#[derive(Clone)]
pub struct Left(pub Arc<dyn Fn()>);

impl fmt::Debug for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Left")
    }
}

/// Why a server has run no script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It reads its data, or says that it is a replica.
    Loading,
    /// It does not know the script, or has only removed what had ended.
    NoScript,
    /// Another server has the slot.
    Moved(Server),
    /// Another server has the keys, if they are anywhere.
    Ask(Server),
    /// Some keys are there, and some are not.
    Again,
    /// No server serves the slot.
    Unserved,
    /// A key has a value of another type. What it has done before it met that is done.
    WrongType,
    /// The process has no right to run the script.
    Forbidden,
    /// The slot is moving away, and the script has named a key that it had emptied. What it has done before is done.
    Midway,
}

/// What a server has said to a command.
#[derive(Debug, Clone)]
pub struct Said {
    /// As it came.
    pub reply: Result<Reply, Refused>,
    /// The same, as it is read.
    pub answer: Answer,
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// For each claim. The time is that of the server, ms.
    Acquired(u64, Vec<Acquired>),
    /// The call came after its end. Nothing was changed.
    Late(u64),
    /// Whether each permit is held.
    Held(Vec<bool>),
    /// The release was done.
    Released,
    /// The server's time, ms, how many processes live, and the limits that operators have set, if the process does not
    /// know them.
    Clock(u64, Option<u32>, Option<Limits>),
    /// So many replicas have it.
    Replicas(u32),
    /// The server has not run the script. Nothing was changed.
    Error(Refused),
}

/// The limits that operators have set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Grows with each change.
    pub version: u64,
    /// By what they are of: `POLICY:KEY`, or `POLICY`.
    pub all: BTreeMap<String, u32>,
}

/// The answer for a claim.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Acquired {
    /// It is held.
    Granted {
        /// The token of each level.
        tokens: [u64; LEVELS],
        /// How many units are held there.
        held: [u64; LEVELS],
    },
    /// There is no room.
    Full {
        /// At this level, from 0.
        level: usize,
    },
    /// Too many wait.
    QueueFull {
        /// Likewise.
        level: usize,
    },
    /// An operator has revoked it.
    Revoked {
        /// Likewise.
        level: usize,
    },
    /// That level is paused.
    Paused {
        /// Likewise.
        level: usize,
        /// For how long.
        left: Duration,
    },
    /// It waits, and holds the narrower levels.
    Queued {
        /// Likewise.
        level: usize,
        /// Its arrival.
        arrival: u64,
        /// When the head should poll.
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
    /// There was no connection, so it was not sent.
    NotConnected,
    /// The connection broke. The call may run yet.
    Broken,
    /// The task that carried it was dropped. The call may run yet.
    Abandoned,
    /// It has run, and too few replicas have what it has written.
    Unconfirmed,
}

/// A message that a script has sent to the process.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// The serial of the permit's id.
    pub serial: u64,
    /// The token of the grant; 0: the waiter should poll.
    pub token: u64,
}

/// What has become of servers and connections.
#[derive(Debug, Clone)]
pub enum Servers {
    /// These slots are there.
    Slots(Vec<(Range<usize>, Server)>),
    /// There is one.
    Connected(Runtime, Server),
    /// There is another one instead of one that is mute.
    Replaced(Runtime, Server),
    /// There is none. Calls in flight fail one by one.
    Gone(Runtime, Server),
    /// None was made, and whether the server has refused it.
    Denied(Server, bool),
}

/// What callers are told.
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
    /// What was taken from a permit is released.
    Released(PermitId),
    /// The releases of a permit that its caller has given up are over. True if all of it was held until then.
    GivenUp(PermitId, bool),
}

impl Event {
    /// Of which permit it tells.
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
    /// The limit is reached.
    Full,
    /// Too many wait.
    QueueFull,
    /// It was reached for as long as the claim may wait.
    TimedOut,
    /// A level is paused for this time, and the claim waits no longer.
    Paused(Duration),
    /// An operator has revoked the claim.
    Revoked,
    /// The process claims no more.
    Closed,
    /// The server does not answer.
    Unavailable,
    /// The server has answered with an error of a key.
    Failed,
    /// More claims came than can be sent to the server.
    Congested,
}
