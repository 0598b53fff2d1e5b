//! Slots that move.
//!
//! A lease names its slot, and its server is looked up when something is sent. So when a slot moves leases are told
//! nothing: what waits for the old server waits for the new one from the next sweep on, and what was sent to the old one
//! before that is sent again. A server that has not run a command has not changed anything.

use super::{
    Core,
    call::Items,
    id::{At, PermitId},
    server::Server,
    time::Time,
};
use std::ops::Range;

impl Core {
    /// A server has these slots. One that takes over from one that is not well has not been told what was admitted without
    /// that.
    pub(super) fn put_slots(&mut self, slots: Range<usize>, server: usize) {
        self.know(server);
        let before = self.slots.put(slots, server);
        if before.is_empty() {
            return;
        }
        self.sweep = Some(0);
        let is_well = |old: &usize| self.servers[*old].is_well(self.now, &self.settings);
        if !before.iter().all(is_well) {
            self.servers[server].health.succeeds(self.now);
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

    /// A server has not run a command, because another one has the slot. Returns when to ask that.
    pub(super) fn moved(&mut self, items: &Items, server: usize) -> Time {
        let slot = match items {
            Items::Presence(slot) => *slot,
            _ => {
                let mut leases = items.leases().into_iter();
                leases.find_map(|at| Some(self.lease(at)?.slot))
            }
        };
        slot.map_or(self.now, |slot| {
            let number = usize::from(slot);
            self.put_slots(number..number + 1, server);
            self.slots.moves(self.now, slot)
        })
    }

    /// A server has not run a command, because another one has the keys already, if anyone has. It is asked once, at once.
    pub(super) fn asks(&mut self, items: &Items, server: usize) -> Time {
        self.know(server);
        self.slots.ask(server);
        for at in items.leases() {
            if let Some(lease) = self.lease(at) {
                lease.asks = Some(server);
            }
        }
        self.now
    }

    /// What waits for the server that had its slot waits for the one that has it.
    pub(super) fn wait_elsewhere(&mut self, id: PermitId) {
        self.each_of(id, |core, at| {
            let server = core.server_of(at);
            let lease = &mut core.permits[at];
            let is_there = |(_, waits_at)| waits_at == server;
            if !lease.waits_in.is_none_or(is_there) || lease.asks.is_some() {
                (lease.waits_in, lease.asks) = (None, None);
                core.send_if_due(at);
                core.file(id);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::redis::{
        core::{
            Change, Core, Event, Failure, Level, Refusal, RuntimeId, Settings, THREAD, Time,
            WhenUnavailable,
        },
        protocol::{Answer, Told},
    };
    use std::time::Duration;

    fn level(name: &str, slot: u16) -> Level {
        Level {
            name: name.into(),
            slot,
            limit: 2,
            weight: 1,
            wait: None,
            is_strict: false,
            label: None,
            flow: None,
        }
    }

    const NOW: Time = Time::from_secs(100);

    /// A core of two servers, each of which has a slot, and has told its time.
    fn core() -> Core {
        let mut core = Core::new(Settings {
            lease: Duration::from_secs(10),
            timeout: Duration::from_millis(250),
            slots_of_store: [1, 1],
            claims: true,
            is_own: true,
            policy: WhenUnavailable::ShareOf(0.5),
            ..Settings::default()
        });
        core.handle_servers(NOW, Change::Slots(vec![(0..1, 0), (1..2, 1)]));
        for server in 0..2 {
            for runtime in [THREAD, RuntimeId(1)] {
                core.handle_servers(NOW, Change::Connected(runtime, server));
            }
        }
        core.handle_timeout(NOW);
        while let Some(call) = core.poll_call(NOW, THREAD) {
            let time = || Answer::Presence(1, Some(1_000), Some(2), Some(Told::default()));
            let answers = call.commands.iter().map(|_| time());
            core.handle_reply(NOW, call.id, Ok(answers.collect()));
        }
        core
    }

    /// Its share has filled while it waited to be sent.
    #[test]
    fn a_claim_that_is_refused_when_its_slot_moves_is_visited_no_more() {
        let mut core = core();
        let own = RuntimeId(1);
        let both = || [level("a", 0), level("b", 1)];
        let (_, first) = core.acquire(NOW, own, &[level("a", 0)]);
        let (_, second) = core.acquire(NOW, own, &both());
        let (waits, unsent) = core.acquire(NOW, own, &both());
        assert!(second.is_some() && unsent.is_none());
        let later = NOW + Duration::from_millis(5);
        let first = first.expect("nothing was in flight");
        core.handle_reply(later, first.id, Err(Failure::Broken));
        for runtime in [own, THREAD] {
            core.handle_servers(later, Change::Gone(runtime, 0));
        }
        core.handle_servers(later, Change::Slots(vec![(0..1, 2), (1..2, 1)]));
        core.handle_timeout(later);
        let mut told = std::iter::from_fn(|| core.poll_event());
        let is_it = |(id, event): &(_, Event)| {
            *id == waits && matches!(event, Event::Refused(Refusal::Unavailable(_)))
        };
        assert!(told.any(|event| is_it(&event)));
    }

    /// As a node that has joined, which an operator's question has found.
    #[test]
    fn a_server_may_refuse_a_connection_before_it_is_known() {
        let mut core = core();
        let denied = Change::NotConnected {
            server: 7,
            is_denied: true,
        };
        core.handle_servers(NOW, denied);
        core.handle_servers(NOW, Change::Gone(THREAD, 8));
        core.handle_timeout(NOW);
    }
}
