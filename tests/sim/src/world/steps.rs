//! The steps of the schedule.

use super::{Happening, World};
use crate::{
    process::{Conduct, Input},
    schedule::{Break, Data, Step},
    server::View,
    subject::{Key, PROCESSES},
    wire::{self, Script, limit_names},
};
use std::time::Duration;

/// How long Sentinels may disagree about which server is the primary.
const DISPUTE: Duration = Duration::from_millis(500);

impl World<'_> {
    /// Applies a step.
    pub(super) fn take_step(&mut self, step: Step) {
        if !matches!(step, Step::Claim { .. }) {
            self.note(|| format!("{step:?}"));
        }
        let now = self.now;
        match step {
            Step::Claim {
                process,
                runtime,
                claim,
                hold,
                cancel,
                goes_on,
            } => {
                let conduct = Conduct {
                    hold,
                    cancel,
                    goes_on,
                };
                self.input(process, Input::Claim(runtime, claim, conduct));
            }
            Step::Kill(process) => self.kill(process),
            Step::Suspend(process, time) => {
                let until = &mut self.processes[process].suspended_until;
                *until = (*until).max(now + time);
                let until = *until;
                self.schedule_at(until, Happening::Resume(process));
            }
            Step::Break(process, link, how) => self.break_link(process, link, how),
            Step::Abandon(process, link) => self.abandon(process, link),
            Step::Shutdown(process) => self.input(process, Input::Shutdown),
            Step::Resize(process, pick, by) => self.input(process, Input::Resize(pick, by)),
            Step::Grow(process, key) => self.input(process, Input::Grow(key)),
            Step::Revoke(key, pick) => self.choose_revocation(key, pick),
            Step::PauseKey(process, key, time) => self.pause_key(process, key, Some(time)),
            Step::ResumeKey(process, key) => self.pause_key(process, key, None),
            Step::Ask(process, key, query) => self.ask(process, key, query),
            Step::SetLimit(key, is_policy, limit) => self.set_limit(key, is_policy, limit),
            Step::HideTime(process, server, time) => {
                self.hidden.insert((process, server), now + time);
            }
            Step::Flush(server, commands) => self.servers[server].flushed = commands,
            Step::Restart(server, time, data) => self.restart(server, time, data),
            Step::Pause(server, time) => self.stall(server, now + time),
            Step::Deny(server, time, ends) => {
                let until = &mut self.servers[server].denies_until;
                *until = (*until).max(now + time);
                if ends {
                    self.cut_all(server);
                }
            }
            Step::Move(slot, to, time) => self.begin_move(slot, to, time),
            Step::LeaveUnserved(slot, time) => {
                self.schedule.slots.leave_unserved(slot, self.now + time);
            }
            Step::Poison(key, which, time) => {
                let home = self.home(key);
                self.servers[home].poison(key, which);
                self.schedule.slots.poison(key, now + time);
                self.judge.poisoned(key);
                self.schedule_after(time, Happening::Cure(key));
            }
            Step::Mute(server, time) => {
                self.servers[server].mute();
                self.schedule_after(time, Happening::Unmute(server));
            }
            Step::FailOver(server, time) => {
                self.servers[server].fail_over();
                self.judge.failed_over(server);
                self.restart(server, time, Data::Same);
            }
            Step::Elect(server, time, data) => {
                self.servers[server].disputed_until = now + time + DISPUTE;
                self.restart(server, time, data);
            }
            Step::ClockStep(server, ms) => {
                self.servers[server].offset += ms * 1_000;
                self.judge.stepped(server, ms);
            }
        }
    }

    /// An operator lists the holders and waiters of a semaphore, and a moment later revokes one of them.
    fn choose_revocation(&mut self, key: Key, pick: usize) {
        let View { held, queue, .. } = self.servers[self.home(key)].view(key);
        let ids = held.into_iter().chain(queue).map(|(id, _)| id);
        // A colon marks a further unit of a permit.
        let ids: Vec<_> = ids.filter(|id| !id.contains(':')).collect();
        let pause = match self.random.one_in(2) {
            true => Duration::ZERO,
            false => self.random.up_to_ms(100),
        };
        if let Some(id) = ids.get(pick % ids.len().max(1)) {
            self.schedule_after(pause, Happening::Revoke(key, id.clone()));
        }
    }

    /// A process requests a pause of a semaphore, or its end. The request may arrive late, twice or not at all.
    fn pause_key(&mut self, at: usize, key: Key, time: Option<Duration>) {
        let process = &mut self.processes[at];
        let local = process.local(self.now);
        if !process.runs(self.now) {
            return;
        }
        if let Some(core) = &mut process.core {
            let until = time.map(|time| local + time);
            core.note_pause(local, key, until);
            self.judge.requests_pause((at, key), until);
        }
        self.drive(at);
        let copies = if self.random.one_in(6) { 2 } else { 1 };
        for _ in 0..copies {
            let late = if self.random.one_in(8) { 2_000 } else { 0 };
            let delay = self.delay() + self.random.up_to_ms(late);
            if !self.random.one_in(10) {
                self.schedule_after(delay, Happening::PauseKey(at, key, time));
            }
        }
    }

    /// The request to pause a semaphore, or to end its pause, arrives at its server. It is lost if the server cannot
    /// run it now.
    pub(super) fn run_pause(&mut self, at: usize, key: Key, time: Option<Duration>) {
        let number = self.home(key);
        let length = time.map_or(0, |time| time.as_millis() as u64);
        let script = wire::pause(key, &self.processes[at].settings.process, length);
        let is_redirected = self.redirects(number, &script).is_some();
        let server = &self.servers[number];
        if server.is_ready(self.now) && !server.is_poisoned(key) && !is_redirected {
            self.run_pause_on((number, &script), key, time);
        }
    }

    /// A server runs the script that pauses a semaphore, or ends its pause.
    pub(super) fn run_pause_on(
        &mut self,
        (number, script): (usize, &Script),
        key: Key,
        time: Option<Duration>,
    ) {
        let length = time.map_or(0, |time| time.as_millis() as i64);
        let gives_away = self.gives_away(number, script);
        let server = &mut self.servers[number];
        server.gives_away = gives_away;
        match server.pause(self.runner, self.now, (key, script)) {
            Ok((run, is_paused)) => {
                self.note(|| {
                    let (_, before, after) = &run.semaphores[0];
                    format!(
                        "server {number} pauses key {key} for {time:?}: {before:?} became {after:?}"
                    )
                });
                self.judge.paused(number, &run, length, is_paused);
                self.publish(&run);
            }
            Err(error) => self.judge.fail("script", || error),
        }
    }

    /// An operator sets a limit, unless the server cannot store it now.
    fn set_limit(&mut self, key: Key, is_policy: bool, limit: Option<u32>) {
        let number = self.schedule.settings(0).counting_server();
        let [own, policy] = limit_names(key);
        let name = if is_policy { policy } else { own };
        let server = &mut self.servers[number];
        let place = self.schedule.slots.place(PROCESSES);
        if !server.is_ready(self.now) || place.is_some_and(|place| place.moves_to.is_some()) {
            return;
        }
        match server.set_limit(self.runner, self.now, &name, limit) {
            Ok(()) => self.judge.limited(limit),
            Err(error) => self.judge.fail("script", || error),
        }
    }

    /// An operator revokes an id, unless the server cannot run that now.
    pub(super) fn revoke(&mut self, key: Key, id: &str) {
        let number = self.home(key);
        let server = &mut self.servers[number];
        if server.is_ready(self.now) && !server.is_poisoned(key) {
            server.gives_away = false;
            self.run_revocation(number, key, id);
        }
    }

    /// A server runs an operator's revocation, whose slot may be moving.
    pub(super) fn run_revocation_on(
        &mut self,
        (number, script): (usize, &Script),
        key: Key,
        id: &str,
    ) {
        self.servers[number].gives_away = self.gives_away(number, script);
        self.run_revocation(number, key, id);
    }

    fn run_revocation(&mut self, number: usize, key: Key, id: &str) {
        match self.servers[number].revoke(self.runner, self.now, key, id) {
            Ok((run, was_there)) => {
                self.note(|| format!("server {number} revokes {id} of key {key}: {was_there}"));
                self.judge.revoked(number, &run, was_there);
                self.publish(&run);
            }
            Err(error) => self.judge.fail("script", || error),
        }
    }

    fn kill(&mut self, at: usize) {
        let fate = self.fate();
        let process = &mut self.processes[at];
        process.core = None;
        process.inbox.clear();
        for link in &mut process.links {
            link.cut(fate);
        }
        self.judge.killed(at);
    }

    fn break_link(&mut self, at: usize, number: usize, how: Break) {
        let link = &mut self.processes[at].links[number];
        let generation = link.generation;
        let until = match how {
            Break::Reset => return self.cut(at, number),
            Break::Stall(time) | Break::Silence(time) | Break::Deaf(time) => self.now + time,
        };
        match how {
            Break::Deaf(_) => link.deaf_until = link.deaf_until.max(until),
            _ => link.stalled_until = link.stalled_until.max(until),
        }
        if !matches!(how, Break::Stall(_)) {
            self.schedule_at(until, Happening::Cut(at, number, generation));
        }
    }

    /// Stalls a server. Calls that wait for the end of an earlier stall wait on, in the same order.
    fn stall(&mut self, server: usize, until: Duration) {
        let old = self.servers[server].paused_until;
        let until = until.max(old);
        self.servers[server].paused_until = until;
        let waiting = self.agenda.iter().filter(|((at, _), happening)| {
            let is_here = matches!(happening, Happening::Call(_, _, call) if call.server == server);
            *at == old && is_here
        });
        for (at, order) in waiting.map(|(key, _)| *key).collect::<Vec<_>>() {
            if let Some(happening) = self.agenda.remove(&(at, order)) {
                self.agenda.insert((until, order), happening);
            }
        }
    }

    /// Stops a server, which starts again after `time`.
    fn restart(&mut self, server: usize, time: Duration, data: Data) {
        if !self.servers[server].is_up {
            return;
        }
        self.servers[server].is_up = false;
        self.judge.restarted(server, data);
        self.cut_all(server);
        self.schedule_after(time, Happening::Start(server, data));
    }

    /// All connections to a server break.
    fn cut_all(&mut self, server: usize) {
        for at in 0..self.processes.len() {
            let links = 0..self.processes[at].links.len();
            for link in links.skip(server).step_by(self.schedule.servers) {
                self.cut(at, link);
            }
        }
    }
}
