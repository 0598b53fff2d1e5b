//! Slots that move between servers.
//!
//! A lease contains its slot, and its server is looked up when a command is sent. So a move of a slot changes no lease.
//! The next sweep moves the leases that wait for the old server to the queues of the new one. Commands that the old
//! server has refused are sent again, because it has changed nothing.

use super::{
    Core,
    call::{Items, StoreKey},
    id::{LeaseRef, PermitId},
    server::Server,
    time::{PAUSE, Time},
};
use std::ops::Range;

impl Core {
    /// Assigns slots to a server. If a previous server is not well, claims may have been admitted without it, so the
    /// new one counts as just returned. If the slots contain the keys of the clock or of the processes, an announcement
    /// to the new server is due by `then`.
    pub(super) fn put_slots(&mut self, slots: Range<usize>, server: usize, then: Time) {
        self.add_servers(server);
        let is_assigned = |slot: &u16| slots.contains(&usize::from(*slot));
        let has_store_keys = self.settings.slots_of_store.iter().any(is_assigned);
        let losers = self.slots.put(slots, server);
        if losers.is_empty() {
            return;
        }
        self.sweep = Some(0);
        if has_store_keys {
            self.announce_by(server, then);
        }
        let is_well = |old: &usize| self.servers[*old].is_well(self.now, &self.settings);
        if !losers.iter().all(is_well) {
            self.servers[server].health.note_return(self.now);
        }
    }

    /// Adds servers up to this number.
    pub(super) fn add_servers(&mut self, server: usize) {
        let count = self.servers.len().max(server + 1);
        self.servers.resize_with(count, Server::default);
    }

    /// The server for the next command of a lease (rule 14).
    pub(super) fn target_of(&self, at: LeaseRef) -> usize {
        self.slots.target_of(&self.permits[at].route)
    }

    /// Schedules an announcement to a server that now has a key of the store.
    fn announce_by(&mut self, server: usize, then: Time) {
        let server = &mut self.servers[server];
        server.must_announce_again |= server.presence_at.is_none();
        server.presence_at = server.presence_at.map(|at| at.min(then));
    }

    /// Handles a command that a server has not run because another server has the slot. Returns when to send it there.
    pub(super) fn handle_moved(&mut self, items: &Items, server: usize) -> Time {
        self.slot_named(items).map_or(self.now, |slot| {
            let number = usize::from(slot);
            let then = self.slots.note_moved(self.now, slot);
            self.put_slots(number..number + 1, server, then);
            then
        })
    }

    /// Handles a command that a server has not run because the keys, if they exist, have already moved to another
    /// server. The command is sent to that server now, and only this once. Returns the current time.
    pub(super) fn handle_ask(&mut self, items: &Items, server: usize) -> Time {
        self.add_servers(server);
        self.slots.note_redirect(server);
        if let Items::Presence(Some(key)) = items {
            self.store_redirects.insert(*key, server);
            self.announce_by(server, self.now);
        }
        for at in items.leases() {
            if let Some(lease) = self.lease(*at) {
                lease.route.redirect = Some(server);
            }
        }
        for debt in items.debts() {
            if let Some(debt) = self.debts.get_mut(debt) {
                debt.route.redirect = Some(server);
            }
        }
        self.now
    }

    /// Handles a command whose slot no server serves. Returns when to send it again: soon if claims wait for it.
    pub(super) fn handle_unserved(&mut self, items: &Items) -> Time {
        if let Some(slot) = self.slot_named(items) {
            let until = self.now + self.settings.timeout;
            self.slots.note_unserved(slot, self.now, until);
        }
        match items {
            Items::Acquire(..) => self.now + PAUSE,
            _ => self.now + self.settings.heartbeat(),
        }
    }

    /// The slot of the keys that a command names.
    fn slot_named(&self, items: &Items) -> Option<u16> {
        match items {
            Items::Acquire(slot, _) | Items::Refresh(slot, _) | Items::Release(slot, _) => {
                Some(*slot)
            }
            Items::Presence(key) => key.and_then(|key| self.slot_of(key)),
            Items::Leave | Items::Asking | Items::Confirm => None,
        }
    }

    fn slot_of(&self, key: StoreKey) -> Option<u16> {
        let [clock, processes] = self.settings.slots_of_store;
        match key {
            StoreKey::Clock => Some(clock),
            StoreKey::Processes | StoreKey::Limits => Some(processes),
            StoreKey::Process => self.settings.slot_of_process,
        }
    }

    /// Moves the leases of a permit that wait for the previous server of their slot to the current one.
    pub(super) fn requeue_leases_if_moved(&mut self, id: PermitId) {
        for at in self.lease_refs(id) {
            let server = self.target_of(at);
            if self.permits[at].leave_other_than(server, self.now) {
                self.enqueue_if_due(at);
                self.set_timer(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        core::{
            CallFailure, Change, Core, CoreSettings, Event, LevelClaim, OutagePolicy, Refusal,
            RuntimeId, THREAD, Time,
            tests::{self, settings},
        },
        verbs::{Answer, Command, CommandFault, OperatorLimits, Part},
    };
    use std::time::Duration;

    fn level(name: &str, slot: u16) -> LevelClaim {
        LevelClaim {
            limit: 2,
            ..tests::level(name, slot)
        }
    }

    const NOW: Time = Time::from_secs(100);

    /// A core of two servers with a slot each, which have reported their time.
    fn core() -> Core {
        let mut core = connected();
        core.handle_timeout(NOW);
        while let Some(call) = core.poll_call(NOW, THREAD) {
            let report =
                || Answer::Presence(1, Some(1_000), Some(2), Some(OperatorLimits::default()));
            let answers = call.commands.iter().map(|_| report());
            core.handle_reply(NOW, call.id, Ok(answers.collect()));
        }
        core
    }

    /// The same core before it has sent anything.
    fn connected() -> Core {
        let mut core = Core::new(CoreSettings {
            slots_of_store: [1, 1],
            policy: OutagePolicy::ShareOf { fraction: 0.5 },
            ..settings()
        });
        core.handle_servers(NOW, Change::Slots(vec![(0..1, 0), (1..2, 1)]));
        for server in 0..2 {
            for runtime in [THREAD, RuntimeId(1)] {
                core.handle_servers(NOW, Change::Connected(runtime, server));
            }
        }
        core
    }

    /// Runs a core for a second. Returns when its thread first sends an acquire, and how many calls it sends.
    fn first_acquire(
        core: &mut Core,
        answer: impl Fn(&Command) -> Answer,
    ) -> (Option<Time>, usize) {
        let (mut first, mut calls) = (None, 0);
        for ms in 0..1_000 {
            let now = NOW + Duration::from_millis(ms);
            core.handle_timeout(now);
            while let Some(call) = core.poll_call(now, THREAD) {
                let is_acquire = |command: &Command| matches!(command, Command::Acquire { .. });
                first = first.or(call.commands.iter().any(is_acquire).then_some(now));
                calls += 1;
                let answers = call.commands.iter().map(&answer).collect();
                core.handle_reply(now, call.id, Ok(answers));
            }
        }
        (first, calls)
    }

    #[test]
    fn a_claim_waits_for_limits_that_are_refused_no_longer_than_a_timeout() {
        for fault in [
            CommandFault::Again,
            CommandFault::Moved(1),
            CommandFault::Interrupted,
        ] {
            let mut core = connected();
            core.acquire(NOW, RuntimeId(1), &[level("a", 0)]);
            let (first, calls) = first_acquire(&mut core, |command| match command {
                Command::Presence(parts) if matches!(parts[..], [Part::Limits(_)]) => {
                    Answer::Failed(fault)
                }
                Command::Presence(_) => Answer::Presence(1, Some(1_000), Some(2), None),
                _ => Answer::Failed(CommandFault::Again),
            });
            let waits = first.map(|first| first - NOW);
            let timeout = Duration::from_millis(250);
            assert_eq!(waits, Some(timeout), "{fault:?}");
            // Each command is sent again after 20 ms at the earliest, so a second has some 50 calls.
            assert!(!core.reads_limits() && calls < 60, "{fault:?} {calls}");
        }
    }

    #[test]
    fn limits_are_read_from_the_server_that_their_slot_is_moving_to() {
        let mut core = connected();
        core.acquire(NOW, RuntimeId(1), &[level("a", 0)]);
        let reads = std::cell::Cell::new(0);
        let (first, _) = first_acquire(&mut core, |command| match command {
            Command::Presence(parts) if matches!(parts[..], [Part::Limits(None)]) => {
                reads.set(reads.get() + 1);
                match reads.get() {
                    1 => Answer::Failed(CommandFault::Ask(0)),
                    _ => Answer::Presence(1, None, None, Some(OperatorLimits::default())),
                }
            }
            Command::Asking => Answer::Done,
            _ => Answer::Presence(1, Some(1_000), Some(2), None),
        });
        assert!(first.is_some_and(|first| first < NOW + Duration::from_millis(10)));
        assert!(core.reads_limits());
    }

    /// The script has run in part, so the units that it may have taken are released when the caller gives up.
    #[test]
    fn a_claim_whose_script_was_interrupted_is_sent_again_and_is_released_at_its_end() {
        let mut core = core();
        let (id, call) = core.acquire(NOW, RuntimeId(1), &[level("a", 0)]);
        let call = call.expect("nothing was in flight");
        let interrupted = vec![Answer::Failed(CommandFault::Interrupted)];
        core.handle_reply(NOW, call.id, Ok(interrupted.clone()));
        assert!(core.poll_event().is_none(), "it is not refused");
        let again = NOW + Duration::from_millis(20);
        core.handle_timeout(again);
        let call = [RuntimeId(1), THREAD].into_iter();
        let mut call = call.filter_map(|from| core.poll_call(again, from));
        let call = call.next().expect("it is sent again");
        assert!(matches!(call.commands[..], [Command::Acquire { .. }]));
        core.handle_reply(again, call.id, Ok(interrupted));
        core.release(again, id, false);
        let later = again + Duration::from_millis(1);
        core.handle_timeout(later);
        let call = core.poll_call(later, THREAD).expect("it is released");
        assert!(matches!(call.commands[..], [Command::Release { .. }]));
    }

    /// The share has filled while the claim waited to be sent.
    #[test]
    fn a_waiting_claim_beyond_its_share_is_refused_when_its_slot_moves() {
        let mut core = core();
        let runtime = RuntimeId(1);
        let both = || [level("a", 0), level("b", 1)];
        let (_, first) = core.acquire(NOW, runtime, &[level("a", 0)]);
        let (_, second) = core.acquire(NOW, runtime, &both());
        let (waits, unsent) = core.acquire(NOW, runtime, &both());
        assert!(second.is_some() && unsent.is_none());
        let later = NOW + Duration::from_millis(5);
        let first = first.expect("nothing was in flight");
        core.handle_reply(later, first.id, Err(CallFailure::Broken));
        for runtime in [runtime, THREAD] {
            core.handle_servers(later, Change::Gone(runtime, 0));
        }
        core.handle_servers(later, Change::Slots(vec![(0..1, 2), (1..2, 1)]));
        core.handle_timeout(later);
        let mut events = std::iter::from_fn(|| core.poll_event());
        let is_refusal = |(id, event): &(_, Event)| {
            *id == waits && matches!(event, Event::Refused(Refusal::Unavailable(_)))
        };
        assert!(events.any(|event| is_refusal(&event)));
    }

    /// For example a node that has just joined, and to which an operator's query was redirected.
    #[test]
    fn a_server_may_refuse_a_connection_before_the_core_knows_the_server() {
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
