//! Slots that move.
//!
//! A lease names its slot, and its server is looked up when something is sent. So when a slot moves leases are told
//! nothing: what waits for the old server waits for the new one from the next sweep on, and what was sent to the old one
//! before that is sent again. A server that has not run a command has not changed anything.

use super::{
    Core,
    call::{Flight, Items},
    id::{At, PermitId},
    server::Server,
    time::Time,
};
use std::ops::Range;

impl Core {
    /// Learns which servers have slots.
    pub(super) fn take_slots(&mut self, now: Time, slots: Vec<(Range<usize>, usize)>) {
        for (slots, server) in slots {
            self.put_slots(now, slots, server);
        }
    }

    /// A server that takes over from one that is not well has not been told what was admitted without that one.
    fn put_slots(&mut self, now: Time, slots: Range<usize>, server: usize) {
        self.know(server);
        let before = self.slots.put(slots, server);
        if before.is_empty() {
            return;
        }
        self.sweep = Some(0);
        let is_well = |old: &usize| self.servers[*old].health.is_well(now, &self.settings);
        if !before.iter().all(is_well) {
            self.servers[server].health.succeeds(now);
        }
    }

    /// There is a server of this number.
    pub(super) fn know(&mut self, server: usize) {
        let count = self.servers.len().max(server + 1);
        self.servers.resize_with(count, Server::default);
    }

    /// Where a lease is to be sent.
    pub(super) fn server_of(&self, at: At) -> usize {
        let lease = &self.permits[at];
        lease.asks.unwrap_or(self.slots.server_of(lease.slot))
    }

    /// A server has not run a command, because another one has the slot.
    pub(super) fn moved(&mut self, now: Time, flight: &Flight, (items, server): (&Items, usize)) {
        let slot = match items {
            Items::Presence(slot) => *slot,
            _ => {
                let mut leases = items.leases().into_iter();
                leases.find_map(|at| Some(self.lease(at)?.slot))
            }
        };
        let then = slot.map_or(now, |slot| {
            let number = usize::from(slot);
            self.put_slots(now, number..number + 1, server);
            self.slots.moves(now, slot)
        });
        self.repeat(now, flight, (items, then));
    }

    /// A server has not run a command, because another one has the keys already, if anyone has. It is asked once.
    pub(super) fn asks(&mut self, now: Time, flight: &Flight, (items, server): (&Items, usize)) {
        self.know(server);
        self.slots.ask(server);
        for at in items.leases() {
            if let Some(lease) = self.lease(at) {
                lease.asks = Some(server);
            }
        }
        self.repeat(now, flight, (items, now));
    }

    /// What waits for the server that had its slot waits for the one that has it.
    pub(super) fn wait_elsewhere(&mut self, now: Time, id: PermitId) {
        for at in self.all_of(id) {
            let server = self.server_of(at);
            let lease = self.lease(at).filter(|lease| {
                let is_there = |(_, waits_at)| waits_at == server;
                !lease.waits_in.is_none_or(is_there) || lease.asks.is_some()
            });
            if let Some(lease) = lease {
                (lease.waits_in, lease.asks) = (None, None);
                self.send_if_due(now, at);
                self.file(id);
            }
        }
    }
}
