//! A process: its core, a clock of its own, and its connections, each with an order of its own.

use crate::{
    shipped::Shipped,
    subject::{
        CallId, Claim, Failure, Key, Message, PermitId, Runtime, Said, Servers, Settings, Time,
    },
};
use std::{collections::BTreeMap, time::Duration};

/// What comes to a process.
#[derive(Debug)]
pub enum Input {
    /// A caller in a runtime claims.
    Claim(Runtime, Claim, Conduct),
    /// A caller changes the weight of a permit that it holds: which one, and by how much.
    Resize(usize, i32),
    /// The holder of most units of a semaphore adds one.
    Grow(Key),
    /// The process claims no more, and gives up everything.
    Shutdown,
    /// A caller gives up a permit or a claim.
    Release(PermitId),
    /// The answer to a call.
    Reply(CallId, Result<Vec<Said>, Failure>),
    /// A message.
    Message(Message),
    /// The message that an operator has revoked a permit.
    Revoked(PermitId),
    /// Messages come from now on.
    Subscribed,
    /// A connection comes or goes.
    Servers(Servers),
}

/// What a caller does beside its claim.
#[derive(Debug, Clone, Copy)]
pub struct Conduct {
    /// How long it holds a permit.
    pub hold: Duration,
    /// After how long it gives up, held or not.
    pub cancel: Option<Duration>,
    /// Whether it goes on when its permit is lost.
    pub goes_on: bool,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// What its core was told.
    pub settings: Settings,
    /// `None`: it was killed.
    pub(crate) core: Option<Shipped>,
    /// By [runtime and server](Settings::link).
    pub links: Vec<Link>,
    /// Until when it stands still.
    pub suspended_until: Duration,
    /// When the last map of slots comes that was sent to it: they come in order.
    pub slots_at: Duration,
    /// Until when it has no subscription.
    pub deaf_until: Duration,
    /// What has come meanwhile.
    pub inbox: Vec<Input>,
    /// What its core has named as its next timeout, and when the world wakes it.
    pub wake: Option<(Time, Duration)>,
    /// How long before the world its machine has booted.
    boot: Duration,
    /// How much faster its clock is, parts in a million.
    drift: i64,
}

impl Process {
    /// A process without connections.
    pub fn new(settings: Settings, boot: Duration, drift: i64) -> Self {
        let core = Shipped::new(settings.clone());
        let links = settings.servers * settings.runtimes;
        let links = (0..links).map(|_| Link::default()).collect();
        Self {
            settings,
            core: Some(core),
            links,
            suspended_until: Duration::ZERO,
            slots_at: Duration::ZERO,
            deaf_until: Duration::ZERO,
            inbox: Vec::new(),
            wake: None,
            boot,
            drift,
        }
    }

    /// What its clock shows.
    pub fn local(&self, now: Duration) -> Time {
        let micros = now.as_micros() as i64;
        self.boot + Duration::from_micros((micros + micros * self.drift / 1_000_000) as u64)
    }

    /// When its clock shows that, or a moment later.
    pub fn world(&self, local: Time) -> Duration {
        let micros = local.saturating_sub(self.boot).as_micros() as i64;
        let true_micros = micros * 1_000_000 / (1_000_000 + self.drift) + 2;
        Duration::from_micros(true_micros as u64)
    }

    /// The link of a call.
    pub fn link(&mut self, runtime: Runtime, server: usize) -> &mut Link {
        let link = self.settings.link(runtime, server);
        &mut self.links[link]
    }

    /// Whether it can do something.
    pub fn runs(&self, now: Duration) -> bool {
        self.core.is_some() && now >= self.suspended_until
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Link {
    /// Which of the connections to this server it is. What belongs to an earlier one is out of date.
    pub generation: u32,
    /// Whether it is there, as far as the process knows.
    pub is_up: bool,
    /// Since when it is, or is not.
    pub since: Duration,
    /// The calls without an answer.
    pub in_flight: Vec<CallId>,
    /// When the last call arrives, and the last answer.
    last: [Duration; 2],
    /// Until when nothing arrives.
    pub stalled_until: Duration,
    /// Until when answers are lost.
    pub deaf_until: Duration,
    /// Whether it leads to a server that was replaced, and says that it is a replica.
    pub is_misled: bool,
    /// Of what earlier generations have under way.
    fates: BTreeMap<u32, Fate>,
}

/// What becomes of the calls that are under way when a connection breaks: so many arrive, so much later, and
/// those behind them do not.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// How many arrive.
    pub arrive: u64,
    /// How much later.
    pub late: Duration,
}

/// Where something goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    There,
    /// To the process.
    Back,
}

impl Link {
    /// When something that leaves now arrives: not before what left before it.
    pub fn arrival(&mut self, way: Way, now: Duration, delay: Duration) -> Duration {
        let last = &mut self.last[way as usize];
        *last = (*last).max(now + delay).max(self.stalled_until);
        *last
    }

    /// Begins a connection.
    pub fn connect(&mut self, since: Duration) {
        let generation = self.generation + 1;
        let fates = std::mem::take(&mut self.fates);
        *self = Self {
            generation,
            is_up: true,
            since,
            fates,
            ..Self::default()
        };
    }

    /// Ends it. Returns the calls that have no answer.
    pub fn cut(&mut self, fate: Fate) -> Vec<CallId> {
        let arrive = if self.is_misled { 0 } else { fate.arrive };
        self.fates.insert(self.generation, Fate { arrive, ..fate });
        self.is_misled = false;
        self.generation += 1;
        self.is_up = false;
        std::mem::take(&mut self.in_flight)
    }

    /// A call of this generation arrives: now if its connection is there, else as much later as this, or not
    /// at all.
    pub fn late(&mut self, generation: u32) -> Option<Duration> {
        let Some(fate) = self.fates.get_mut(&generation) else {
            return Some(Duration::ZERO);
        };
        fate.arrive = fate.arrive.checked_sub(1)?;
        Some(fate.late)
    }
}

/// The generation of a call that has outlived its connection.
pub const LATE: u32 = u32::MAX;
