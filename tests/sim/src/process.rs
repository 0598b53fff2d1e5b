//! A process: its core, its clock and its connections. Each connection delivers in order.

use crate::{
    shipped::Shipped,
    subject::{
        CallId, Claim, Failure, Key, Message, PermitId, Runtime, Said, Servers, Settings, Time,
    },
};
use std::{collections::BTreeMap, time::Duration};

/// An input of a process.
#[expect(clippy::large_enum_variant, reason = "there are few of them")]
#[derive(Debug)]
pub enum Input {
    /// A caller in a runtime makes a claim.
    Claim(Runtime, Claim, Conduct),
    /// A caller changes the weight of a permit that it holds: a number that picks one of the levels that are held, and
    /// the units to add or, if negative, to give up.
    Resize(usize, i32),
    /// The holder of the most units of a semaphore adds one.
    Grow(Key),
    /// The process is closed: it makes no more claims, and gives up everything.
    Shutdown,
    /// The holder of a permit has used units of a level's budget: the number of the level, and the total so far.
    Settle(PermitId, usize, u32),
    /// A caller gives up a permit or a claim.
    Release(PermitId),
    /// The answer to a call.
    Reply(CallId, Result<Vec<Said>, Failure>),
    /// A message.
    Message(Message),
    /// A message that an operator has revoked a permit.
    Revoked(PermitId),
    /// Messages arrive from now on.
    Subscribed,
    /// Slots or connections change.
    Servers(Servers),
}

/// The behaviour of a caller after its claim.
#[derive(Debug, Clone, Copy)]
pub struct Conduct {
    /// How long it holds a permit.
    pub hold: Duration,
    /// After how long it gives up, with or without a permit.
    pub cancel: Option<Duration>,
    /// True if it goes on when its permit is lost.
    pub goes_on: bool,
}

/// A process.
#[derive(Debug)]
pub struct Process {
    /// The settings of its core.
    pub settings: Settings,
    /// `None`: it was killed.
    pub(crate) core: Option<Shipped>,
    /// Its connections, by [runtime and server](Settings::link).
    pub links: Vec<Link>,
    /// The end of its suspension.
    pub suspended_until: Duration,
    /// When the last map of slots that was sent to it arrives. The maps arrive in order.
    pub slots_at: Duration,
    /// Until when it has no subscription to messages.
    pub deaf_until: Duration,
    /// The inputs that came while it was suspended.
    pub inbox: Vec<Input>,
    /// The next timeout that its core has requested, and when the world wakes the process for it.
    pub wake: Option<(Time, Duration)>,
    /// How long before the start of the world its machine was booted. Its clock counts from there.
    boot: Duration,
    /// How much faster its clock runs, in parts per million.
    drift: i64,
}

impl Process {
    /// Creates a process without connections.
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

    /// The time on its clock.
    pub fn local(&self, now: Duration) -> Time {
        let micros = now.as_micros() as i64;
        self.boot + Duration::from_micros((micros + micros * self.drift / 1_000_000) as u64)
    }

    /// The world's time when its clock shows `local`, or a moment later.
    pub fn world(&self, local: Time) -> Duration {
        let micros = local.saturating_sub(self.boot).as_micros() as i64;
        let true_micros = micros * 1_000_000 / (1_000_000 + self.drift) + 2;
        Duration::from_micros(true_micros as u64)
    }

    /// The connection of a runtime to a server.
    pub fn link(&mut self, runtime: Runtime, server: usize) -> &mut Link {
        let link = self.settings.link(runtime, server);
        &mut self.links[link]
    }

    /// True if it is neither killed nor suspended.
    pub fn runs(&self, now: Duration) -> bool {
        self.core.is_some() && now >= self.suspended_until
    }
}

/// A connection.
#[derive(Debug, Default)]
pub struct Link {
    /// The number of the current connection to this server. Everything from an earlier one is out of date.
    pub generation: u32,
    /// True if it is up, as far as the process knows.
    pub is_up: bool,
    /// Since when it has been up, or down.
    pub since: Duration,
    /// The calls without an answer.
    pub in_flight: Vec<CallId>,
    /// When the last call arrives, and when the last answer does, by [`Way`].
    last: [Duration; 2],
    /// When calls and answers arrive again after a stall.
    pub stalled_until: Duration,
    /// When answers are no longer lost.
    pub deaf_until: Duration,
    /// True if it leads to a server that was replaced, and that reports that it is a replica.
    pub is_misled: bool,
    /// The fates of calls that were under way when earlier generations broke.
    fates: BTreeMap<u32, Fate>,
}

/// The fate of the calls that are under way when a connection breaks: the first few arrive late, and the others never.
#[derive(Debug, Clone, Copy)]
pub struct Fate {
    /// How many arrive late.
    pub arrive: u64,
    /// How much later these arrive.
    pub late: Duration,
}

/// The direction of something that travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// To the server.
    There,
    /// To the process.
    Back,
}

impl Link {
    /// Returns when something that leaves now arrives: never before something that left earlier.
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

    /// Ends the connection. Returns the calls that have no answer.
    pub fn cut(&mut self, fate: Fate) -> Vec<CallId> {
        // The server that was replaced runs nothing.
        let arrive = if self.is_misled { 0 } else { fate.arrive };
        self.fates.insert(self.generation, Fate { arrive, ..fate });
        self.is_misled = false;
        self.generation += 1;
        self.is_up = false;
        std::mem::take(&mut self.in_flight)
    }

    /// A call of this generation arrives. Returns its additional delay, which is zero if its connection is still up.
    /// Returns `None` if the call is lost.
    pub fn late(&mut self, generation: u32) -> Option<Duration> {
        let Some(fate) = self.fates.get_mut(&generation) else {
            return Some(Duration::ZERO);
        };
        fate.arrive = fate.arrive.checked_sub(1)?;
        Some(fate.late)
    }
}

/// The generation of a call that [`Link::late`] has delayed: it has no fate, so the call arrives without further delay.
pub const LATE: u32 = u32::MAX;
