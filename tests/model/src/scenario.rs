//! The clients' possible actions in a walk, and the possible faults.

use crate::time::TICK;

/// One level of a claim.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// The semaphore.
    pub key: u8,
    /// The limit: how many units may be held at a time.
    pub limit: u8,
    /// The weight: how many units the claim needs.
    pub weight: u8,
    /// The queue's bound; `None` if the claim does not wait.
    pub waits: Option<u8>,
    /// The head start, in ms.
    pub head_start: i64,
    /// The letter of its flow; 0 if it has none.
    pub flow: u8,
    /// The share of its flow.
    pub share: u8,
    /// The client with a lower number to whose permit the units are added.
    pub added_to: Option<u8>,
}

/// A claim, from the narrowest level to the widest.
pub type Claim = Vec<Level>;

/// The leaps of the server's clock in a walk.
#[derive(Debug, Clone, Default)]
pub struct Leaps {
    /// The distances of the possible leaps, in ms.
    pub distances: Vec<i64>,
    /// The most leaps of a walk.
    pub most: u8,
}

/// The clients of a walk, and the rules that limit it.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Its name in the table of [scenarios](crate::scenarios).
    pub name: &'static str,
    /// The claims that each client may make, one at a time.
    pub clients: Vec<Vec<Claim>>,
    /// True if a request and its reply are separate steps, between which other clients act. If false, a request is
    /// answered at once, or it is lost, or its reply is lost, or it is late.
    pub splits_calls: bool,
    /// True if two requests may travel in one call.
    pub has_batches: bool,
    /// True if requests and replies may be lost.
    pub loses: bool,
    /// How many requests of a client may be late.
    pub late: usize,
    /// True if clients may crash.
    pub crashes: bool,
    /// True if holders neither refresh nor release.
    pub holders_do_nothing: bool,
    /// True if a permit of two units may release the second.
    pub lightens: bool,
    /// The leaps of the server's clock.
    pub leaps: Leaps,
    /// True if the clock is set back, so that processes report its highest time to each other.
    pub sets_clock_back: bool,
    /// True if operators revoke permits.
    pub revokes: bool,
    /// How many units one call grants from a queue, instead of the scripts' `MAX_ADVANCED`.
    pub max_advanced: Option<usize>,
    /// The walk ends after the depth at which it has seen at least this number of states.
    pub states: usize,
}

impl Scenario {
    /// A scenario whose clients lose calls and crash, and whose requests may be late.
    pub fn new(name: &'static str, clients: Vec<Vec<Claim>>, states: usize) -> Self {
        Self {
            name,
            clients,
            splits_calls: false,
            has_batches: false,
            loses: true,
            late: 1,
            crashes: true,
            holders_do_nothing: false,
            lightens: false,
            leaps: Leaps::default(),
            sets_clock_back: false,
            revokes: false,
            max_advanced: None,
            states,
        }
    }

    /// The largest leap back of the clock, in ms; 0 if it is never set back, otherwise negative.
    pub fn set_back(&self) -> i64 {
        self.leaps
            .distances
            .iter()
            .copied()
            .min()
            .unwrap_or(0)
            .min(0)
    }

    /// How far a step moves the clock, in ms: 0 by a tick, another number by that leap.
    pub fn distance(&self, pass: u8) -> i64 {
        match pass.checked_sub(1) {
            None => TICK,
            Some(leap) => self.leaps.distances[usize::from(leap)],
        }
    }
}
