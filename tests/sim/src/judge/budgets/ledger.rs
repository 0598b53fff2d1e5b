//! A budget on a server, as it must be after the calls that the server has run.
//!
//! The ledger counts parts of units. If the window has *w* milliseconds, a unit is *w* parts, and each millisecond
//! returns *limit* parts. So nothing is rounded.

use crate::{
    server::{BudgetView, View},
    wire::IdFields,
};
use std::collections::{BTreeMap, BTreeSet};

/// A reservation.
#[derive(Debug, Clone)]
pub(super) struct Reserved {
    pub(super) weight: i64,
    /// The units that are settled. `None` until the claim is granted for a whole lease.
    pub(super) settled: Option<i64>,
    /// The end of its lease, in ms.
    pub(super) ends: i64,
    /// True if it was released while an acquire might still run.
    pub(super) is_over: bool,
}

impl Reserved {
    fn left(&self) -> i64 {
        match self.is_over {
            true => 0,
            false => (self.weight - self.settled.unwrap_or(0)).max(0),
        }
    }
}

/// Units that count as used, and when, in ms.
#[derive(Debug, Clone)]
pub(super) struct Use {
    pub(super) id: String,
    pub(super) units: i64,
    pub(super) at: i64,
    /// True if the reservation of a permit that was granted for a whole lease has expired.
    pub(super) is_lost: bool,
    /// True if the reservation has expired, and its claim was never granted for a whole lease.
    pub(super) is_freed: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Ledger {
    window: i64,
    /// The spent parts at the time `at`.
    parts: i128,
    at: i64,
    /// The limit of the last grant: the number of parts that return in a ms.
    rate: i64,
    pub(super) reserved: BTreeMap<String, Reserved>,
    /// Units that are reserved although no reservation is left, after a script that was aborted.
    leak: i64,
}

/// The limit and the weight in an id.
pub(super) fn terms(id: &str) -> (i64, i64) {
    let fields = id.split(':').next().and_then(IdFields::read);
    fields.map_or((0, 0), |fields| {
        (fields.id.limit.into(), fields.id.weight.into())
    })
}

/// The lease in an id, in ms.
pub(super) fn lease_of(id: &str) -> i64 {
    IdFields::read(id).map_or(0, |fields| fields.lease_ms as i64)
}

impl Ledger {
    /// Reads a budget whose history is not known.
    pub(super) fn read(window: u32, view: &View, budget: &BudgetView, now: i64) -> Self {
        let [spent, at, reserved, rate, credit] = budget.state.unwrap_or([0, now, 0, 0, 0]);
        let members = view.held.iter().map(|(id, ends)| {
            let (_, weight) = terms(id);
            let settled = budget.settled.get(id).copied();
            let own = Reserved {
                weight,
                settled,
                ends: *ends,
                is_over: false,
            };
            (id.clone(), own)
        });
        let window = i64::from(window);
        let mut ledger = Self {
            window,
            parts: i128::from(spent) * i128::from(window) - i128::from(credit),
            at,
            rate,
            reserved: members.collect(),
            leak: 0,
        };
        ledger.leak = (reserved - ledger.all_reserved()).max(0);
        ledger
    }

    /// The clock was set back: units that have returned since the server last saved its state are spent again. Returns
    /// false if the server counts fewer spent units than this ledger.
    pub(super) fn rewind(&mut self, budget: &BudgetView) -> bool {
        let [spent, at, _, _, credit] = budget.state.unwrap_or([0, self.at, 0, 0, 0]);
        let parts = i128::from(spent) * i128::from(self.window) - i128::from(credit);
        let is_right = parts >= self.parts;
        (self.parts, self.at) = (parts, at);
        is_right
    }

    /// True if anything is spent or reserved.
    pub(super) fn is_used(&self) -> bool {
        self.parts > 0 || !self.reserved.is_empty()
    }

    /// The time up to which units have returned.
    pub(super) fn time(&self) -> i64 {
        self.at
    }

    /// True if an aborted script has left units that nothing will release.
    pub(super) fn leaks(&self) -> bool {
        self.leak > 0
    }

    pub(super) fn all_reserved(&self) -> i64 {
        self.leak + self.reserved.values().map(Reserved::left).sum::<i64>()
    }

    fn pass(&mut self, time: i64) {
        let passed = i128::from((time - self.at).max(0));
        self.parts = (self.parts - passed * i128::from(self.rate)).max(0);
        self.at = self.at.max(time);
    }

    /// Removes the expired reservations, in the order of their ends, and lets spent units come back until `now`.
    /// Returns the units that count as used.
    pub(super) fn advance(&mut self, now: i64) -> Vec<Use> {
        let ended = self.reserved.iter().filter(|(_, own)| own.ends <= now);
        let mut ended: Vec<_> = ended.map(|(id, own)| (own.ends, id.clone())).collect();
        ended.sort();
        let mut uses = Vec::new();
        for (at, id) in ended {
            let own = self.reserved.remove(&id).expect("it is there");
            let units = if own.settled.is_some() { own.left() } else { 0 };
            let (is_lost, is_freed) =
                (own.settled.is_some() && !own.is_over, own.settled.is_none());
            self.pass(at);
            self.parts += i128::from(units) * i128::from(self.window);
            uses.push(Use {
                id,
                units,
                at,
                is_lost,
                is_freed,
            });
        }
        self.pass(now);
        self.at = now;
        uses
    }

    /// The number of ms from now until units fit, if `reserved` does not change. `None` if time alone does not help.
    pub(super) fn due(&self, (limit, weight): (i64, i64), reserved: i64, now: i64) -> Option<i64> {
        let room = i128::from(limit - reserved - weight);
        let over = self.parts - room * i128::from(self.window);
        let rate = i128::from(self.rate.max(1));
        let passed = i128::from(now - self.at);
        let ms = (over.max(0) + rate - 1) / rate - passed;
        (room >= 0).then_some(ms.max(0) as i64)
    }

    /// True if the units of an id fit at this time.
    pub(super) fn fits(&self, id: &str, now: i64) -> bool {
        self.due(terms(id), self.all_reserved(), now) == Some(0)
    }

    /// True if an id has a reservation.
    pub(super) fn has(&self, id: &str) -> bool {
        self.reserved.contains_key(id)
    }

    /// True if these ids have reservations, and no other.
    pub(super) fn has_exactly(&self, ids: &BTreeSet<&String>) -> bool {
        self.reserved.keys().eq(ids.iter().copied())
    }

    /// Returns how many units of an id's reservation are settled.
    pub(super) fn settled(&self, id: &str) -> i64 {
        self.reserved
            .get(id)
            .and_then(|own| own.settled)
            .unwrap_or(0)
    }

    /// Reserves the units of an id until `ends`, or extends the reservation that it has. Returns true if it had none.
    pub(super) fn grant(&mut self, id: &str, limit: i64, ends: i64) -> bool {
        let is_new = !self.has(id);
        if is_new {
            self.rate = limit;
            let new = Reserved {
                weight: terms(id).1,
                settled: None,
                ends,
                is_over: false,
            };
            self.reserved.insert(id.to_owned(), new);
        }
        self.extend(id, ends, false);
        is_new
    }

    /// Moves the end of a reservation to a later time. If the call grants a whole lease (`is_whole`), an earlier time
    /// is also accepted.
    pub(super) fn extend(&mut self, id: &str, ends: i64, is_whole: bool) {
        if let Some(own) = self.reserved.get_mut(id) {
            own.ends = if is_whole { ends } else { own.ends.max(ends) };
        }
    }

    /// Settles a reservation: only the growth of a total counts. Returns the growth.
    pub(super) fn settle(&mut self, id: &str, total: i64) -> i64 {
        let Some(own) = self.reserved.get_mut(id) else {
            return 0;
        };
        let before = own.settled.unwrap_or(0);
        let before = if own.is_over {
            before.max(own.weight)
        } else {
            before
        };
        let growth = (total - before).max(0);
        own.settled = Some(before + growth);
        self.parts += i128::from(growth) * i128::from(self.window);
        growth
    }

    /// Ends a reservation without further use. `stays`: it is there until another release.
    pub(super) fn free(&mut self, id: &str, stays: bool) {
        if !stays {
            self.reserved.remove(id);
        } else if let Some(own) = self.reserved.get_mut(id) {
            own.is_over = true;
        }
    }

    /// Compares the ledger with a server after a run. Returns what differs.
    pub(super) fn compare(&mut self, view: &View, budget: &BudgetView, now: i64) -> Option<String> {
        let members: BTreeMap<_, _> = view.held.iter().map(|(id, ends)| (id, *ends)).collect();
        let (has, expected): (Vec<_>, Vec<_>) =
            (members.keys().collect(), self.reserved.keys().collect());
        if has
            .iter()
            .map(|id| id.as_str())
            .ne(expected.iter().map(|id| id.as_str()))
        {
            return Some(format!("reservations {has:?} instead of {expected:?}"));
        }
        for (id, own) in &mut self.reserved {
            let (ends, lease) = (members[id], lease_of(id));
            if own.ends > now + lease && ends == now + lease {
                // Such an end was written before the clock was set back.
                own.ends = ends;
            }
            if own.ends != ends {
                return Some(format!("{id} ends at {ends} instead of {}", own.ends));
            }
            let settled = budget.settled.get(id).copied();
            let total = own.settled.map(|total| {
                if own.is_over {
                    total.max(own.weight)
                } else {
                    total
                }
            });
            if settled != total {
                return Some(format!("{id} has settled {settled:?} instead of {total:?}"));
            }
        }
        let Some([spent, at, reserved, rate, credit]) = budget.state else {
            let is_empty = self.parts == 0 && self.reserved.is_empty();
            return (!is_empty).then(|| "no state".to_owned());
        };
        if reserved != self.all_reserved() {
            return Some(format!(
                "{reserved} reserved instead of {}",
                self.all_reserved()
            ));
        }
        // A pause writes the state of a window that was not in use, or whose state has expired.
        let is_new = rate == 0 && self.parts == 0 && self.reserved.is_empty();
        if rate != self.rate && !is_new {
            return Some(format!("a limit of {rate} instead of {}", self.rate));
        }
        let parts = i128::from(spent) * i128::from(self.window) - i128::from(credit);
        let passed = i128::from((now - at).max(0));
        let parts = (parts - passed * i128::from(rate)).max(0);
        (parts != self.parts).then(|| format!("{parts} parts are spent instead of {}", self.parts))
    }

    /// The time in ms from which nothing is spent or reserved, if each reservation is used up at its end. No end is
    /// further ahead than a lease, unless the clock was set back.
    pub(super) fn unused_from(&self, now: i64) -> i64 {
        let mut later = self.clone();
        for (id, own) in &mut later.reserved {
            own.ends = own.ends.min(now + lease_of(id));
        }
        let last = later.reserved.values().map(|own| own.ends).max();
        later.advance(last.unwrap_or(self.at).max(self.at));
        let rate = i128::from(later.rate.max(1));
        later.at + ((later.parts + rate - 1) / rate) as i64
    }
}
