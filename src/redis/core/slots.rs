//! Which server has a slot.

use super::time::{PAUSE, Time};
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    ops::Range,
};

/// The known servers of slots. While none is known, the first server has all.
#[derive(Debug, Default)]
pub(super) struct Slots {
    servers: Vec<usize>,
    /// The servers that have any slot.
    used: BTreeSet<usize>,
    /// Those to which slots have begun to move since any was known to have moved.
    asked: BTreeSet<usize>,
    /// When servers have said that they have moved, if that was lately.
    moved: BTreeMap<u16, Time>,
    /// The slots that no server serves according to a recent report, and until when each report counts.
    unserved: BTreeMap<u16, Time>,
}

impl Slots {
    pub(super) fn server_of(&self, slot: u16) -> usize {
        let server = self.servers.get(usize::from(slot));
        server.copied().unwrap_or_default()
    }

    pub(super) fn is_used(&self, server: usize) -> bool {
        let is_used = self.used.contains(&server) || self.asked.contains(&server);
        is_used || self.used.is_empty() && server == 0
    }

    /// Returns the servers that had some of them before.
    pub(super) fn put(&mut self, slots: Range<usize>, server: usize) -> BTreeSet<usize> {
        if self.servers.len() < slots.end {
            self.servers.resize(slots.end, 0);
        }
        let mut before = BTreeSet::new();
        for own in &mut self.servers[slots] {
            if *own != server {
                before.insert(mem::replace(own, server));
            }
        }
        if !before.is_empty() {
            self.used = self.servers.iter().copied().collect();
            self.asked.clear();
        }
        before
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

    /// A slot is moving to a server.
    pub(super) fn ask(&mut self, server: usize) {
        self.asked.insert(server);
    }

    /// A server has said that another one has a slot. Returns when to ask there: the other may say the same of it.
    pub(super) fn moves(&mut self, now: Time, slot: u16) -> Time {
        self.moved.retain(|_, moved| now < *moved + PAUSE);
        match self.moved.insert(slot, now) {
            Some(_) => now + PAUSE,
            None => now,
        }
    }
}
