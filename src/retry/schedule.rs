//! The schedule of returns of one key's refused clients.

use super::{ages::Ages, mean::Mean};
use std::time::Duration;

/// Maximum of parts (lanes) of a second. Clients are told whole seconds, so those refused in one
/// part of a second return in the same part of a later one.
const LANES: usize = 32;

/// Bounds of the longest time told, in seconds. Within them it is this many mean holds.
const MOST: (f64, f64) = (60.0, 600.0);
const MOST_HOLDS: f64 = 20.0;

/// Units left free for chance, in square roots of the limit.
const MARGIN: f64 = 1.25;

/// The share of arrivals that may be refused while returns are due, and how much one arrival
/// changes the pace.
const TARGET: f64 = 0.1;
const GAIN: f64 = 0.1;
const SLOWEST: f64 = 16.0;

/// Times are seconds since the creation of the layer.
pub(super) struct Schedule {
    pub(super) mean: Mean,
    /// The next free return of each lane.
    lanes: [f64; LANES],
    /// The first and the last return of the current run.
    due: (f64, f64),
    /// Factor by which returns are spread further than planned, because too many clients were
    /// refused again.
    pace: f64,
    told: u64,
}

impl Schedule {
    pub(super) fn new(mean: Mean) -> Self {
        Self {
            mean,
            lanes: [0.0; LANES],
            due: (f64::INFINITY, f64::NEG_INFINITY),
            pace: 1.0,
            told: 0,
        }
    }

    pub(super) fn is_over(&self, now: f64) -> bool {
        now > self.due.1 + 1.0
    }

    /// A claim was admitted at this time. It stands for `of` claims.
    pub(super) fn admitted(&mut self, at: f64, of: u32) {
        if self.is_due(at) {
            self.adapt((1.0 - GAIN * TARGET).powi(of as i32));
        }
    }

    /// Seconds until the return of a client that is refused now.
    pub(super) fn next(&mut self, now: Duration, held: Ages, limit: u32, weight: u32) -> u64 {
        let hold = self.mean.beside(held, now);
        let now = now.as_secs_f64();
        if self.is_over(now) {
            // The pace of an earlier storm does not apply.
            self.pace = 1.0;
        } else if self.is_due(now) {
            self.adapt(1.0 + GAIN * (1.0 - TARGET));
        }
        let plan = Plan::new(hold, limit, weight);
        let lane = &mut self.lanes[plan.lane(now)];
        let back = lane.max(now + plan.first);
        // The sum of two times may round down.
        let after = (back - now + 1e-6).floor();
        if after > plan.most {
            return self.spread(plan.most);
        }
        *lane = back + plan.apart * self.pace;
        if self.is_over(now) {
            self.due.0 = back;
        }
        self.due.1 = self.due.1.max(back);
        after as u64
    }

    /// Clients beyond the longest time share its second half.
    fn spread(&mut self, most: f64) -> u64 {
        let half = (most / 2.0) as u64;
        self.told += 1;
        half + self.told % half
    }

    fn is_due(&self, at: f64) -> bool {
        self.due.0 <= at && !self.is_over(at)
    }

    fn adapt(&mut self, factor: f64) {
        self.pace = (self.pace * factor).clamp(1.0, SLOWEST);
    }
}

/// The times of a refused claim, in seconds.
struct Plan {
    /// From now to the first return.
    first: f64,
    /// Between two returns of one lane.
    apart: f64,
    /// The longest time that is told.
    most: f64,
    lanes: f64,
}

impl Plan {
    /// Holds are random, so a return finds a free unit only with some to spare. The margin is the
    /// square root of the limit, as in the square-root staffing rule.
    fn new(hold: f64, limit: u32, weight: u32) -> Self {
        let parallel = f64::from(limit) / f64::from(weight.max(1));
        let margin = 1.0 + MARGIN / parallel.sqrt();
        let (shortest, longest) = MOST;
        Self {
            first: (hold * margin).max(1.0),
            apart: hold.max(1.0) * margin / parallel,
            most: (hold * MOST_HOLDS).clamp(shortest, longest),
            lanes: (1.0 / hold).floor().clamp(1.0, LANES as f64),
        }
    }

    fn lane(&self, now: f64) -> usize {
        (now.fract() * self.lanes) as usize
    }
}
