//! What clients may do in a walk, and what may go wrong.

use crate::time::TICK;

/// One level of a claim.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// The semaphore.
    pub key: u8,
    /// How many units may be held together.
    pub limit: u8,
    /// How many units the claim is for.
    pub weight: u8,
    /// How many may wait, if the claim waits.
    pub waits: Option<u8>,
    /// Ms.
    pub head_start: i64,
    /// The letter of its flow; 0: it has none.
    pub flow: u8,
    /// The share of its flow.
    pub share: u8,
    /// The client with a lower number to whose permit the units are added.
    pub added_to: Option<u8>,
}

/// A claim, from the narrowest level to the widest.
pub type Claim = Vec<Level>;

/// What a walk visits.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name in the table of [scenarios](crate::scenarios).
    pub name: &'static str,
    /// The claims that each client may make, one at a time.
    pub clients: Vec<Vec<Claim>>,
    /// Whether requests and replies are under way while others act. If not, a request is answered at
    /// once, or lost, or its reply is lost, or it is late.
    pub has_messages: bool,
    /// Whether two requests may travel in one call.
    pub has_batches: bool,
    /// Whether requests and replies are lost.
    pub loses: bool,
    /// How many requests of a client may be late.
    pub late: usize,
    /// Whether clients crash.
    pub crashes: bool,
    /// Whether holders neither refresh nor release.
    pub has_no_refresh: bool,
    /// Whether a permit may become lighter.
    pub lightens: bool,
    /// How far the server's clock may move besides the tick, ms, and how often altogether.
    pub leaps: (Vec<i64>, u8),
    /// Whether the clock is set back, so that processes tell each other its highest time.
    pub has_clock: bool,
    /// Whether operators revoke permits.
    pub revokes: bool,
    /// Units that one call grants from a queue, instead of 1000.
    pub max_advanced: Option<usize>,
    /// Where the walk ends, after the depth at which it has seen so many states.
    pub states: usize,
}

impl Scenario {
    /// Clients that lose calls and crash, and whose requests are late.
    pub fn new(name: &'static str, clients: Vec<Vec<Claim>>, states: usize) -> Self {
        Self {
            name,
            clients,
            has_messages: false,
            has_batches: false,
            loses: true,
            late: 1,
            crashes: true,
            has_no_refresh: false,
            lightens: false,
            leaps: (Vec::new(), 0),
            has_clock: false,
            revokes: false,
            max_advanced: None,
            states,
        }
    }

    /// How far the clock may be set back, ms, at most 0.
    pub fn set_back(&self) -> i64 {
        self.leaps.0.iter().copied().min().unwrap_or(0).min(0)
    }

    /// How far the clock may move: a tick, or a leap.
    pub fn pass(&self, at: u8) -> i64 {
        match at.checked_sub(1) {
            None => TICK,
            Some(leap) => self.leaps.0[usize::from(leap)],
        }
    }
}
