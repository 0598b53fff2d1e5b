//! The three sorted sets of one semaphore.

use super::model::Seen;
use crate::market::plan::{LEASE, micros};
use std::collections::HashMap;

/// A unit that is held.
#[derive(Debug, Clone, Copy)]
struct Unit {
    /// When it ends, ms.
    end: i64,
    /// Whether it was last held for a whole lease, and not for as long as a waiter counts as alive.
    is_leased: bool,
}

#[derive(Debug, Default)]
pub(super) struct Semaphore {
    held: HashMap<String, Unit>,
    /// Waiter to its score.
    pub(super) queue: HashMap<String, f64>,
    /// Waiter to until when it counts as alive, ms.
    alive: HashMap<String, i64>,
}

impl Semaphore {
    /// A waiter that counts as alive then and comes before this score.
    pub(super) fn before(&self, id: &str, score: f64, at: i64) -> Option<&String> {
        let is_alive = |other: &str| self.alive.get(other).is_some_and(|end| end * 1_000 > at);
        let mut others = self.queue.iter().filter(|(other, _)| *other != id);
        let is_before = |other: &str, its: f64| its < score || its == score && other < id;
        let found = others.find(|(other, its)| is_before(other, **its) && is_alive(other));
        found.map(|(other, _)| other)
    }

    pub(super) fn unexpired(&self, at: i64) -> usize {
        let units = self.held.values();
        units.filter(|unit| unit.end * 1_000 > at).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.queue.is_empty()
    }

    pub(super) fn has(&self, part: &str, member: &str) -> bool {
        match part {
            "held" => self.held.contains_key(member),
            "queue" => self.queue.contains_key(member),
            _ => self.alive.contains_key(member),
        }
    }

    pub(super) fn set(&mut self, at: i64, (part, member): (&str, &str), score: f64) {
        let member = member.to_owned();
        match part {
            "held" => drop(self.held.insert(member, Unit::until(score as i64, at))),
            "queue" => drop(self.queue.insert(member, score)),
            "alive" => drop(self.alive.insert(member, score as i64)),
            _ => {}
        }
    }

    pub(super) fn remove(&mut self, part: &str, member: &str) -> bool {
        match part {
            "held" => self.held.remove(member).is_some(),
            "queue" => self.queue.remove(member).is_some(),
            _ => self.alive.remove(member).is_some(),
        }
    }

    pub(super) fn clear(&mut self, part: &str) {
        match part {
            "held" => self.held.clear(),
            "queue" => self.queue.clear(),
            "alive" => self.alive.clear(),
            _ => {}
        }
    }

    pub(super) fn expire(&mut self, up_to: i64) -> Vec<Seen> {
        let expired = self.held.extract_if(|_, unit| unit.end <= up_to);
        let expired = expired.map(|(id, Unit { end, is_leased })| match is_leased {
            true => Seen::Expired { id, end },
            false => Seen::Untaken,
        });
        expired.collect()
    }
}

impl Unit {
    fn until(end: i64, at: i64) -> Self {
        let is_leased = end * 1_000 - at > micros(LEASE) * 9 / 10;
        Self { end, is_leased }
    }
}
