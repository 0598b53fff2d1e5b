//! Slots that move.

use super::{Happening, World};
use crate::{
    process::Input,
    server::Server,
    subject::{self, Key, PROCESSES, Refused, Servers, SlotNo},
    wire::Script,
};
use std::time::Duration;

impl World<'_> {
    /// The server that has a semaphore.
    pub(super) fn home(&self, key: Key) -> subject::Server {
        self.processes[0].settings.server_of(key)
    }

    /// A slot begins to move, unless it is moving already.
    pub(super) fn begin_move(&mut self, slot: SlotNo, to: subject::Server, time: Duration) {
        let from = self.processes[0].settings.home_of(slot);
        let place = self.schedule.slots.place(slot);
        if from == to || place.is_some_and(|place| place.moves_to.is_some()) {
            return;
        }
        self.schedule.slots.begin(slot, (from, to));
        self.judge.moves(&self.processes, self.now);
        self.schedule_after(time / 4, Happening::Split(slot));
        self.schedule_after(time / 2, Happening::Migrate(slot));
        self.schedule_after(time, Happening::Moved(slot));
    }

    /// Moves the keys of a slot as soon as both servers run. If `takes_over` is set, the old server need not run: the
    /// keys come from its replica.
    pub(super) fn migrate(&mut self, slot: SlotNo) {
        let Some(place) = self.schedule.slots.place(slot) else {
            return;
        };
        let (from, Some(to)) = (place.home, place.moves_to) else {
            return;
        };
        if from == to {
            return;
        }
        let is_ready = |server: usize| self.servers[server].is_ready(self.now);
        if !is_ready(to) || !is_ready(from) && !self.schedule.takes_over {
            return self.schedule_after(Duration::from_millis(20), Happening::Migrate(slot));
        }
        self.note(|| format!("the keys of slot {slot} move from server {from} to {to}"));
        let clock = |server: &Server| server.clock(self.now) / 1_000;
        let ahead = clock(&self.servers[to]) - clock(&self.servers[from]);
        let entries = self.servers[from].take(slot);
        self.servers[to].put(self.now, entries, ahead);
        if let Ok(key) = Key::try_from(slot) {
            self.judge.migrated(key, (from, to), ahead);
        }
        self.schedule.slots.migrate(slot);
        self.judge.moves(&self.processes, self.now);
    }

    /// Completes the move of a slot once its keys have moved. All processes learn of it after a while.
    pub(super) fn moved(&mut self, slot: SlotNo) {
        let place = self.schedule.slots.place(slot);
        if place.is_some_and(|place| Some(place.home) != place.moves_to) {
            return self.schedule_after(Duration::from_millis(20), Happening::Moved(slot));
        }
        self.note(|| format!("slot {slot} has moved"));
        self.schedule.slots.end(slot, self.now);
        self.judge.moves(&self.processes, self.now);
        for at in 0..self.processes.len() {
            let delay = self.random.up_to_ms(300);
            let process = &mut self.processes[at];
            let slots = Input::Servers(Servers::Slots(process.settings.all_slots()));
            process.slots_at = process.slots_at.max(self.now + delay);
            let delay = process.slots_at - self.now;
            self.schedule_after(delay, Happening::Input(at, slots));
        }
        self.schedule_after(crate::slots::KNOWN, Happening::Known);
    }

    /// The reason why a server does not run a command that names keys of a slot, if the server does not have the slot
    /// or the slot is moving. The answers are those of a cluster node that migrates or imports the slot.
    pub(super) fn redirects(&self, number: subject::Server, script: &Script) -> Option<Refused> {
        let slot = script.slot().filter(|_| self.schedule.has_slots)?;
        if self.schedule.slots.is_unserved(slot, self.now) {
            return Some(Refused::Unserved);
        }
        let server = &self.servers[number];
        let Some(place) = self.schedule.slots.place(slot) else {
            let owner = self.processes[0].settings.home_of(slot);
            return (number != owner).then_some(Refused::Moved(owner));
        };
        let present = script
            .keys
            .iter()
            .filter(|key| server.has_key(self.now, key));
        let (present, all) = (present.count(), script.keys.len());
        match place.moves_to {
            Some(_) if number == place.owner && place.is_split => Some(Refused::Again),
            Some(_) if number == place.owner && present == all => None,
            Some(to) if number == place.owner && present == 0 => Some(Refused::Ask(to)),
            Some(_) if number == place.owner => Some(Refused::Again),
            Some(to) if number == to && script.is_asking => {
                (place.is_split || all > 1 && present < all).then_some(Refused::Again)
            }
            _ => (number != place.owner).then_some(Refused::Moved(place.owner)),
        }
    }

    /// True if a server is giving away the slot of a script.
    pub(super) fn gives_away(&self, server: subject::Server, script: &Script) -> bool {
        let slot = script.slot().filter(|_| self.schedule.has_slots);
        let place = slot.and_then(|slot| self.schedule.slots.place(slot));
        place.is_some_and(|place| server == place.owner && place.moves_to.is_some())
    }

    /// Removes the keys of moved slots from a server that starts, because its stored data may still have them.
    pub(super) fn forget_moved(&mut self, server: subject::Server) {
        for slot in 0..=PROCESSES {
            let place = self.schedule.slots.place(slot);
            if place.is_some_and(|place| place.home != server) {
                drop(self.servers[server].take(slot));
            }
        }
    }
}
