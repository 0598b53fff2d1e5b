//! The servers of slots.

use super::{
    remote::Route,
    time::{PAUSE, Time},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Range,
};

/// The known servers of slots. Until one is known, the first server has all slots.
#[derive(Debug, Default)]
pub(super) struct Slots {
    servers: Vec<usize>,
    /// The servers that have slots.
    used: BTreeSet<usize>,
    /// The servers to which slots have begun to move since a slot last changed its server.
    targets: BTreeSet<usize>,
    /// The slots that have moved according to a recent report, and the time of each report.
    moved: BTreeMap<u16, Time>,
    /// The slots that no server serves according to a recent report, and the time until which each report counts.
    unserved: BTreeMap<u16, Time>,
}

impl Slots {
    pub(super) fn owner_of(&self, slot: u16) -> usize {
        let server = self.servers.get(usize::from(slot));
        server.copied().unwrap_or_default()
    }

    /// The server for the next command on this route (rule 14).
    pub(super) fn target_of(&self, route: &Route) -> usize {
        route.redirect.unwrap_or(self.owner_of(route.slot))
    }

    /// True if a server has slots, or slots are moving to it. Without a map of slots, the first server has all.
    pub(super) fn is_used(&self, server: usize) -> bool {
        let is_used = self.used.contains(&server) || self.targets.contains(&server);
        is_used || self.used.is_empty() && server == 0
    }

    /// Assigns slots to a server. Returns the servers that lose slots.
    pub(super) fn put(&mut self, slots: Range<usize>, server: usize) -> BTreeSet<usize> {
        if self.servers.len() < slots.end {
            self.servers.resize(slots.end, 0);
        }
        let mut losers = BTreeSet::new();
        for owner in &mut self.servers[slots] {
            if *owner != server {
                losers.insert(mem::replace(owner, server));
            }
        }
        if !losers.is_empty() {
            self.used = self.servers.iter().copied().collect();
            self.targets.clear();
        }
        losers
    }

    /// Notes a report that no server serves a slot. The report counts until the given time.
    pub(super) fn note_unserved(&mut self, slot: u16, now: Time, until: Time) {
        self.unserved.retain(|_, until| now < *until);
        self.unserved.insert(slot, until);
    }

    pub(super) fn is_unserved(&self, slot: u16, now: Time) -> bool {
        let until = self.unserved.get(&slot);
        until.is_some_and(|until| now < *until)
    }

    /// Notes that a slot is moving to a server.
    pub(super) fn note_redirect(&mut self, server: usize) {
        self.targets.insert(server);
    }

    /// Notes a report that a slot has moved. Returns when to send the refused command to the slot's new server: now, or
    /// after a pause if the slot was reported as moved shortly before, because two servers may refer to each other. Two
    /// refused commands of one call are two reports.
    pub(super) fn note_moved(&mut self, now: Time, slot: u16) -> Time {
        self.moved.retain(|_, moved| now < *moved + PAUSE);
        match self.moved.insert(slot, now) {
            Some(_) => now + PAUSE,
            None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(100);

    #[test]
    fn a_server_that_loses_slots_is_reported_once_and_used_while_it_has_others() {
        let mut slots = Slots::default();
        assert!(slots.is_used(0) && !slots.is_used(1));
        assert_eq!(slots.put(0..4, 1), [0].into());
        assert_eq!(slots.put(0..4, 1), [].into());
        assert_eq!(slots.put(2..6, 2), [0, 1].into());
        assert!(!slots.is_used(0) && slots.is_used(1) && slots.is_used(2));
        assert_eq!([1, 2, 5].map(|slot| slots.owner_of(slot)), [1, 2, 2]);
    }

    #[test]
    fn a_server_that_slots_move_to_is_used_until_a_slot_has_changed_its_server() {
        let mut slots = Slots::default();
        slots.put(0..4, 1);
        slots.note_redirect(7);
        assert!(slots.is_used(7));
        slots.put(0..4, 1);
        assert!(slots.is_used(7), "nothing has changed");
        slots.put(0..1, 2);
        assert!(!slots.is_used(7));
    }

    #[test]
    fn a_slot_counts_as_unserved_until_its_report_ends() {
        let mut slots = Slots::default();
        let until = NOW + PAUSE;
        slots.note_unserved(1, NOW, until);
        slots.note_unserved(2, NOW, until + PAUSE);
        assert!(slots.is_unserved(1, NOW) && slots.is_unserved(2, until));
        assert!(!slots.is_unserved(1, until) && !slots.is_unserved(3, NOW));
        slots.note_unserved(3, until, until + PAUSE);
        assert_eq!(slots.unserved.len(), 2, "the first report is over");
    }

    #[test]
    fn a_slot_that_is_reported_as_moved_twice_in_a_row_pauses_the_command() {
        let mut slots = Slots::default();
        assert_eq!(slots.note_moved(NOW, 1), NOW);
        assert_eq!(slots.note_moved(NOW, 2), NOW);
        assert_eq!(slots.note_moved(NOW, 1), NOW + PAUSE);
        assert_eq!(
            slots.note_moved(NOW + PAUSE, 1),
            NOW + PAUSE,
            "the last report is long ago"
        );
    }
}
