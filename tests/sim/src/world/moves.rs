//! Slots that move.

use super::{Happening, World};
use crate::{
    process::Input,
    server::Server,
    subject::{self, Command, Key, Refused, Servers},
    wire::Script,
};
use std::time::Duration;

impl World<'_> {
    /// The server that has a semaphore.
    pub(super) fn home(&self, key: Key) -> subject::Server {
        self.processes[0].settings.server_of(key)
    }

    /// Its slot begins to move, if it is not moving.
    pub(super) fn begin_move(&mut self, key: Key, to: subject::Server, time: Duration) {
        let from = self.home(key);
        let place = self.schedule.slots.place(key);
        if from == to || place.is_some_and(|place| place.moves_to.is_some()) {
            return;
        }
        self.schedule.slots.begin(key, (from, to));
        self.judge.moves(&self.processes, self.now);
        self.after(time / 4, Happening::Split(key));
        self.after(time / 2, Happening::Migrate(key));
        self.after(time, Happening::Moved(key));
    }

    /// Its keys move, as soon as both servers run, or once the new one has taken over what the other's replica had.
    pub(super) fn migrate(&mut self, key: Key) {
        let Some(place) = self.schedule.slots.place(key) else {
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
            return self.after(Duration::from_millis(20), Happening::Migrate(key));
        }
        self.note(|| format!("the keys of {key} move from server {from} to {to}"));
        let clock = |server: &Server| server.clock(self.now) / 1_000;
        let ahead = clock(&self.servers[to]) - clock(&self.servers[from]);
        let entries = self.servers[from].take(key);
        self.servers[to].put(entries, ahead);
        self.judge.migrated(key, (from, to), ahead);
        self.schedule.slots.migrate(key);
        self.judge.moves(&self.processes, self.now);
    }

    /// Its slot has moved, once its keys have. All processes learn of it after a while.
    pub(super) fn moved(&mut self, key: Key) {
        let place = self.schedule.slots.place(key);
        if place.is_some_and(|place| Some(place.home) != place.moves_to) {
            return self.after(Duration::from_millis(20), Happening::Moved(key));
        }
        self.note(|| format!("the slot of {key} has moved"));
        self.schedule.slots.end(key, self.now);
        self.judge.moves(&self.processes, self.now);
        for at in 0..self.processes.len() {
            let delay = self.random.up_to_ms(300);
            let process = &mut self.processes[at];
            let told = Input::Servers(Servers::Slots(process.settings.all_slots()));
            process.slots_at = process.slots_at.max(self.now + delay);
            let delay = process.slots_at - self.now;
            self.after(delay, Happening::Input(at, told));
        }
        self.after(crate::slots::KNOWN, Happening::Known);
    }

    /// Why a server does not run a command, if that names a semaphore that it has not, or that is moving.
    pub(super) fn redirects(
        &mut self,
        server: subject::Server,
        (script, command): (&Script, &Command),
    ) -> Option<Refused> {
        let (key, _) = command.ids().into_iter().next()?;
        if !self.schedule.has_slots {
            return None;
        }
        let Some(place) = self.schedule.slots.place(key) else {
            let owner = self.home(key);
            return (server != owner).then_some(Refused::Moved(owner));
        };
        match place.moves_to {
            Some(_) if server == place.owner && place.is_split => Some(Refused::Again),
            Some(to) if server == place.owner && place.home == to => Some(Refused::Ask(to)),
            Some(to) if server == place.owner && !self.servers[server].has(key) => {
                // What is new is made there.
                self.schedule.slots.migrate(key);
                Some(Refused::Ask(to))
            }
            Some(to) if server == to && script.is_asking => {
                (place.home != to).then_some(Refused::Again)
            }
            _ => (server != place.owner).then_some(Refused::Moved(place.owner)),
        }
    }

    /// A server that starts has nothing of what has moved away, whatever it has written.
    pub(super) fn forget_moved(&mut self, server: subject::Server) {
        for key in 0..=Key::MAX {
            if self.schedule.slots.place(key).is_some() && self.home(key) != server {
                drop(self.servers[server].take(key));
            }
        }
    }
}
