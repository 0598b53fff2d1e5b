//! The checks after every step.

use super::{
    answers::{HORIZON, Waiter},
    call::{BUDGET, LIMIT, SEMAPHORE, WINDOW, channel, id},
    oracle::stored,
    walk::Scenario,
    world::{Checked, World, check},
};
use crate::{stand_in::Value, time::TICK};
use std::collections::{BTreeMap, BTreeSet};

impl World {
    /// The server's state equals the oracle's.
    pub(super) fn check(&self, scenario: &Scenario) -> Checked {
        self.check_reservations()?;
        self.check_hash()?;
        self.check_queue(scenario)?;
        let held = self.members(SEMAPHORE[0]);
        let held = held.filter(|(end, _)| *end > self.now()).count() as i64;
        let units = self.live_units();
        check(!scenario.has_semaphore || held == units, || {
            format!("{held} units instead of {units}")
        })?;
        self.check_expiries()
    }

    /// Every key expires. Those of the budget keep everything until time has returned it.
    fn check_expiries(&self) -> Checked {
        for (key, entry) in self.server.entries() {
            let end = entry.expires_at;
            check(end.is_some(), || format!("{key} never expires"))?;
            if key == BUDGET[3] || key == BUDGET[0] {
                let mut last = self.oracle.clone();
                last.move_to(end.unwrap_or(0));
                let rest = (last.spent_in(0), last.all_reserved());
                check(rest == (0, 0), || format!("{key} loses {rest:?}"))?;
            }
        }
        Ok(())
    }

    /// The members of `held` are the reservations of the last call. They expire only after all have ended.
    fn check_reservations(&self) -> Checked {
        let held = self.members(BUDGET[0]).map(|(end, id)| (id, end));
        let held: BTreeMap<_, _> = held.collect();
        let reserved = self.counted.reserved.iter();
        let reserved: BTreeMap<_, _> = reserved.map(|(id, own)| (&**id, own.ends)).collect();
        let may_be_lost = reserved.values().all(|end| *end <= self.now());
        check(held == reserved || held.is_empty() && may_be_lost, || {
            format!("{held:?} instead of {reserved:?}")
        })
    }

    /// The hash has the state and the fields of the last call. It expires only after all units have come back.
    fn check_hash(&self) -> Checked {
        let Some(fields) = self.fields() else {
            let rest = (self.oracle.parts, self.oracle.all_reserved());
            return check(rest == (0, 0), || format!("the hash is lost with {rest:?}"));
        };
        let mut counted = self.counted.clone();
        counted.pass(self.now());
        let state = stored(&self.server, BUDGET[3], WINDOW);
        let expected = (counted.parts, counted.all_reserved());
        check(state == expected, || {
            format!("{state:?} instead of {expected:?}")
        })?;
        let prefix = format!("{WINDOW}:");
        let settled = fields.iter().filter_map(|(field, settled)| {
            let id = field.strip_prefix(&prefix)?;
            Some((id.to_owned(), settled.clone()))
        });
        let settled: BTreeMap<_, _> = settled.collect();
        let expected = counted.reserved.iter().map(|(id, own)| {
            let settled = own
                .spent()
                .map_or("-".to_owned(), |total| total.to_string());
            (id.clone(), settled)
        });
        let expected: BTreeMap<_, _> = expected.collect();
        check(settled == expected, || {
            format!("fields {settled:?} instead of {expected:?}")
        })
    }

    fn fields(&self) -> Option<&BTreeMap<String, String>> {
        let mut entries = self.server.entries();
        match &entries.find(|(key, _)| *key == BUDGET[3])?.1.value {
            Value::Hash(fields) => Some(fields),
            other => panic!("{other:?}"),
        }
    }

    /// All live waiters are in the queue, and besides them only dead ones.
    fn check_queue(&self, scenario: &Scenario) -> Checked {
        let now = self.now();
        let listed: BTreeSet<_> = self.waiters().map(str::to_owned).collect();
        let ids = |waiters: &mut dyn Iterator<Item = &Waiter>| -> BTreeSet<_> {
            waiters.map(|waiter| id(waiter.client, scenario)).collect()
        };
        let live = ids(&mut self.queue.iter().filter(|waiter| waiter.alive_until > now));
        let all = ids(&mut self.queue.iter());
        check(live.is_subset(&listed) && listed.is_subset(&all), || {
            format!("the queue has {listed:?} instead of {live:?} of {all:?}")
        })
    }

    /// The scores and members of a sorted set.
    fn members(&self, key: &str) -> impl Iterator<Item = (i64, &str)> {
        let entry = self.server.entries().find(|(name, _)| *name == key);
        let items = match entry.map(|(_, entry)| &entry.value) {
            Some(Value::Sorted(sorted)) => sorted.items(),
            _ => &[],
        };
        items
            .iter()
            .map(|(score, member)| (*score as i64, &**member))
    }

    /// The ids in the budget's queue. A pause has score 0.
    pub(super) fn waiters(&self) -> impl Iterator<Item = &str> {
        let waiters = self.members(BUDGET[1]).filter(|(score, _)| *score > 0);
        waiters.map(|(_, id)| id)
    }

    /// Notified waiters poll. The head of the queue polls no later than at the first tick at which it fits, if nothing else
    /// happens.
    pub(super) fn check_wake(&mut self, scenario: &Scenario) -> Checked {
        let now = self.now();
        self.receive_messages()?;
        let Some(head) = self.queue.iter().find(|waiter| waiter.alive_until > now) else {
            return Ok(());
        };
        let first = self.waiters().next().unwrap_or_default();
        if first != id(head.client, scenario) {
            // A dead waiter keeps its place until the next claim removes it.
            let dead = self.queue.iter().filter(|waiter| waiter.alive_until <= now);
            let mut dead = dead.map(|waiter| id(waiter.client, scenario));
            return check(dead.any(|id| id == first), || {
                format!("{first} is before {head:?}")
            });
        }
        let mut oracle = self.oracle.clone();
        let fits = (0..HORIZON).map(|ticks| now + ticks * TICK).find(|time| {
            oracle.move_to(*time);
            *time >= self.paused_until
                && oracle.fits_in(0, scenario.claims[head.client].weight, LIMIT)
        });
        let is_late = fits.is_some_and(|fits| head.polls_at.is_none_or(|polls| polls > fits));
        check(!is_late, || {
            format!("{head:?} does not poll at {fits:?}, now is {now}")
        })
    }

    /// Each message of this step is a revocation, or notifies a waiter that it should poll: with token 0, and the units in use.
    fn receive_messages(&mut self) -> Checked {
        let (now, used, is_paused) = (self.now(), self.used(), self.now() < self.paused_until);
        for (to, text) in &self.server.published {
            if text.ends_with(" revoked") {
                continue;
            }
            let mut waiters = self.queue.iter_mut();
            let waiter = waiters.find(|waiter| *to == channel(waiter.client));
            let count = text
                .strip_prefix("2.0.0 0 ")
                .and_then(|count| count.parse().ok());
            // `advance_any` counts all units as used, so a pause that it finds notifies with this number. No client reads it.
            let is_right = count == Some(used) || is_paused && count == Some(u32::MAX.into());
            check(waiter.is_some() && is_right, || {
                format!("{text} to {to}, {used} are used")
            })?;
            if let Some(waiter) = waiter {
                waiter.polls_at = Some(now);
            }
        }
        Ok(())
    }
}
