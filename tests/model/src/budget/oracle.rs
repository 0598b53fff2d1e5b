//! The units of a budget, counted in whole numbers and without rounding. All times are in ms.

use crate::stand_in::{Entry, StandIn, Value};
use std::collections::BTreeMap;

/// A reservation as the oracle knows it.
#[derive(Debug, Clone)]
pub struct Reserved {
    /// The units of its claim.
    pub weight: i64,
    /// The settled units; `None` if its claim is not granted yet.
    pub settled: Option<i64>,
    /// When its lease ends.
    pub ends: i64,
    /// True if it was released while an acquire might still run.
    pub is_done: bool,
}

impl Reserved {
    /// The reserved units.
    pub fn left(&self) -> i64 {
        match self.is_done {
            true => 0,
            false => (self.weight - self.settled.unwrap_or(0)).max(0),
        }
    }

    /// The units that count as settled. All units of a released reservation do, so that a later total does not spend them.
    pub fn spent(&self) -> Option<i64> {
        let least = if self.is_done { self.weight } else { 0 };
        self.settled.map(|settled| settled.max(least))
    }
}

/// The oracle. It counts spent units in parts, so that it needs no fractions. A unit has one part for each millisecond
/// of the window, and each millisecond returns one part for each unit of the limit.
#[derive(Debug, Clone)]
pub struct Oracle {
    /// In ms.
    pub window: i128,
    /// The spent parts at the time `at`.
    pub parts: i128,
    /// The time of the count.
    pub at: i64,
    /// How many units return within a window: the limit of the last grant.
    pub limit: i64,
    /// The reservations by their ids.
    pub reserved: BTreeMap<String, Reserved>,
    /// True once the clock was set back. The server may then count more spent units for a while, but never fewer.
    pub was_set_back: bool,
}

impl Oracle {
    /// A budget that is not in use yet.
    pub fn new(window: i64, now: i64) -> Self {
        Self {
            window: window.into(),
            parts: 0,
            at: now,
            limit: 0,
            reserved: BTreeMap::new(),
            was_set_back: false,
        }
    }

    /// Lets units return until a time.
    pub fn pass(&mut self, time: i64) {
        let passed = i128::from((time - self.at).max(0));
        self.parts = (self.parts - passed * i128::from(self.limit)).max(0);
        self.at = self.at.max(time);
    }

    /// Counts units as spent.
    pub fn spend(&mut self, units: i64) {
        self.parts += i128::from(units) * self.window;
    }

    /// Ends the reservations that have ended, in the order of their ends, and lets the time pass.
    pub fn move_to(&mut self, now: i64) {
        let mut ended: Vec<_> = self
            .reserved
            .iter()
            .filter(|(_, reserved)| reserved.ends <= now)
            .collect();
        ended.sort_by_key(|(id, reserved)| (reserved.ends, *id));
        let ended: Vec<_> = ended
            .into_iter()
            .map(|(id, reserved)| (id.clone(), reserved.clone()))
            .collect();
        for (id, reserved) in ended {
            self.reserved.remove(&id);
            if reserved.settled.is_some() {
                self.pass(reserved.ends);
                self.spend(reserved.left());
            }
        }
        self.pass(now);
        self.at = now;
    }

    /// The units of all reservations.
    pub fn all_reserved(&self) -> i64 {
        self.reserved.values().map(Reserved::left).sum()
    }

    /// The spent units after some more milliseconds, rounded up.
    pub fn spent_in(&self, ms: i64) -> i64 {
        let parts = self.parts - i128::from(ms) * i128::from(self.limit);
        (parts.max(0) + self.window - 1).div_euclid(self.window) as i64
    }

    /// True if a claim fits after some more milliseconds, if no reservation changes.
    pub fn fits_in(&self, ms: i64, weight: i64, limit: i64) -> bool {
        self.spent_in(ms) + self.all_reserved() + weight <= limit
    }

    /// True if a reservation is there and has not ended.
    pub fn has(&self, id: &str) -> bool {
        self.reserved.contains_key(id)
    }

    /// Reserves the units of a claim unless they are reserved already, until a time at least. If the claim is granted at all
    /// of its levels, `spent` is the total that the grant settles.
    pub fn grant(&mut self, id: &str, weight: i64, limit: i64, until: i64, spent: Option<i64>) {
        if !self.has(id) {
            self.limit = limit;
            let new = Reserved {
                weight,
                settled: None,
                ends: until,
                is_done: false,
            };
            self.reserved.insert(id.to_owned(), new);
        }
        self.extend(id, until);
        if let Some(total) = spent {
            self.settle(id, total);
        }
    }

    /// Lets a reservation last until a time at least.
    pub fn extend(&mut self, id: &str, until: i64) {
        if let Some(own) = self.reserved.get_mut(id) {
            own.ends = own.ends.max(until);
        }
    }

    /// Settles a total. Only its growth counts.
    pub fn settle(&mut self, id: &str, total: i64) {
        let Some(own) = self.reserved.get_mut(id) else {
            return;
        };
        let before = own.spent().unwrap_or(0);
        own.settled = Some(total.max(before));
        self.spend((total - before).max(0));
    }

    /// Settles a total, and ends the reservation. If `keeps`, an acquire of it may still run, so it stays without units.
    pub fn release(&mut self, id: &str, total: i64, keeps: bool) {
        self.settle(id, total);
        match self.reserved.get_mut(id) {
            Some(own) if keeps => own.is_done = true,
            _ => drop(self.reserved.remove(id)),
        }
    }
}

/// The spent parts and the reserved units at the server's time, as the hash of a server has them.
///
/// # Panics
///
/// If the hash is no hash, never expires, or its state is not five numbers.
pub fn stored(server: &StandIn, hash: &str, window: i64) -> (i128, i64) {
    let now = server.now / 1_000;
    let is_live = |entry: &&Entry| now < entry.expires_at.expect("every key expires");
    let fields = match server.key(hash).filter(is_live).map(|entry| &entry.value) {
        Some(Value::Hash(fields)) => fields.get(&window.to_string()),
        None => None,
        other => panic!("{other:?}"),
    };
    let Some(state) = fields else {
        return (0, 0);
    };
    let numbers = state.split(' ').map(str::parse::<i64>);
    let numbers: Result<Vec<_>, _> = numbers.collect();
    let Ok([spent, at, reserved, limit, credit]) = numbers.as_deref() else {
        panic!("{state}")
    };
    let passed = i128::from((now - at).max(0));
    let parts = i128::from(*spent) * i128::from(window) - i128::from(*credit);
    ((parts - passed * i128::from(*limit)).max(0), *reserved)
}
