//! The inputs of a process, and the calls, events and timeouts of its core.

use super::{Happening, World};
use crate::{
    process::{Conduct, Input},
    shipped::Shipped,
    subject::{Answer, Charge, Event, Failure, Key, PermitId, Resize, Servers},
};
use std::time::Duration;

/// How often a process may wake at one instant, in addition to once for each of its claims. A claim that the process
/// decides may let it send the next claim, which may be due at once.
const WAKES: usize = 2;

impl World<'_> {
    /// The timeout of a process is due.
    pub(super) fn wake(&mut self, at: usize) {
        let now = self.now;
        let claims = self
            .judge
            .open()
            .iter()
            .filter(|(process, _)| *process == at)
            .count();
        for _ in 0..WAKES + claims {
            let process = &mut self.processes[at];
            let local = process.local(now);
            process.wake = None;
            if let Some(core) = &mut process.core {
                core.handle_timeout(local);
            }
            self.drive(at);
            let process = &self.processes[at];
            let next = process.core.as_ref().and_then(Shipped::poll_timeout);
            if next.is_none_or(|next| next > local) {
                return;
            }
        }
        self.judge.fail("busy", || {
            format!("p{at} has done what is due, and something is still due")
        });
    }

    /// An input arrives at a process. A suspended process handles it later.
    pub(super) fn input(&mut self, at: usize, input: Input) {
        let process = &mut self.processes[at];
        if !process.runs(self.now) {
            return process.inbox.push(input);
        }
        let local = process.local(self.now);
        self.note(|| format!("p{at}: {input:?}"));
        let Some(core) = &mut self.processes[at].core else {
            return;
        };
        let revoked = match input {
            Input::Revoked(permit) => Some(permit),
            _ => None,
        };
        match input {
            Input::Claim(from, claim, conduct) => {
                let permit = core.acquire(local, from, claim);
                self.claimed(at, permit, conduct);
                self.judge.asked(at, permit, claim, local);
            }
            Input::Shutdown => {
                core.shutdown();
                self.judge.closed(at, local);
            }
            Input::Resize(pick, by) => self.resize(at, pick, by),
            Input::Grow(key) => {
                let heaviest = self.judge.heaviest(at, key);
                // A caller changes a weight only once the previous change is over.
                let is_idle = |permit| !self.merges.values().any(|(grows, ..)| *grows == permit);
                if let Some((permit, has)) = heaviest.filter(|(permit, _)| is_idle(*permit)) {
                    let size = Resize { units: 1, ..has };
                    self.grow(at, (permit, key), size);
                }
            }
            Input::Settle(permit, level, used) => {
                core.settle(permit, level, used);
                self.judge.settled_use(at, permit, (level, used));
            }
            Input::Release(permit) => {
                core.release(local, permit);
                self.judge.released(at, permit, local);
            }
            Input::Reply(call, reply) => {
                let answers = reply
                    .as_ref()
                    .map(|said| said.iter().map(|said| said.answer.clone()));
                let answers = answers.map(Iterator::collect).map_err(|failure| *failure);
                let answers = answers.and_then(|answers: Vec<_>| match answers.last() {
                    Some(Answer::Replicas(0)) => Err(Failure::Unconfirmed),
                    _ => Ok(answers),
                });
                self.judge.replied(at, call, &answers, local);
                core.handle_reply(local, call, reply);
            }
            Input::Message(message) => {
                self.judge.notified(at, message, local);
                core.handle_message(local, message);
            }
            Input::Revoked(permit) => core.handle_revocation(local, permit),
            Input::Subscribed => core.handle_subscription(local),
            Input::Servers(change) => {
                if let Servers::Slots(slots) = &change {
                    self.judge.placed(at, slots, local);
                }
                core.handle_servers(local, change);
            }
        }
        self.drive(at);
        if let Some(permit) = revoked {
            self.judge.heard(at, permit);
        }
    }

    /// A caller changes the weight of a permit that it holds, without giving up all of it.
    fn resize(&mut self, at: usize, pick: usize, by: i32) {
        let Some((permit, has, key)) = self.judge.resizable(at, pick) else {
            return;
        };
        let units = by.unsigned_abs();
        let size = Resize { units, ..has };
        if by > 0 {
            self.grow(at, (permit, key), size);
        } else if units < has.units {
            self.shrink(at, (permit, key), size);
        }
    }

    /// A caller claims more units for a permit. The core may merge earlier growths into the new one.
    fn grow(&mut self, at: usize, (permit, key): (PermitId, Key), size: Resize) {
        let process = &mut self.processes[at];
        let (local, from) = (process.local(self.now), process.settings.runtimes - 1);
        let core = process.core.as_mut();
        let growth = core.and_then(|core| core.grow(local, from, permit, size));
        let Some((growth, merged)) = growth else {
            return;
        };
        let units = size.units + merged;
        let claim = Resize { units, ..size }.claim(key);
        self.judge.grows(at, (growth, permit), claim, local);
        self.note(|| format!("p{at} adds {growth:?} to {permit:?}: {size:?} and {merged}"));
        let merge = Resize {
            units: merged,
            ..size
        };
        self.merges.insert((at, growth), (permit, key, merge));
    }

    /// A caller gives up some units of a permit.
    fn shrink(&mut self, at: usize, (permit, key): (PermitId, Key), size: Resize) {
        let process = &mut self.processes[at];
        let local = process.local(self.now);
        let core = process.core.as_mut();
        let parts = core.map(|core| core.shrink(local, permit, size));
        // The list is empty once the permit is released.
        if let Some(parts) = parts.filter(|parts| !parts.is_empty()) {
            let units = (key, size.units);
            self.judge.shrinks(at, permit, units, &parts, local);
            self.note(|| format!("p{at} takes {parts:?} from {permit:?}: {size:?}"));
        }
    }

    /// Notes how the caller of a new claim behaves, and when it gives up.
    fn claimed(&mut self, at: usize, permit: PermitId, conduct: Conduct) {
        self.note(|| format!("p{at} calls the claim {permit:?}"));
        self.conduct.insert((at, permit), conduct);
        if let Some(after) = conduct.cancel {
            self.schedule_after(after, Happening::Input(at, Input::Release(permit)));
        }
    }

    /// Sends the calls and delivers the events of a process's core, and notes when to wake the process.
    pub(super) fn drive(&mut self, at: usize) {
        let now = self.now;
        loop {
            let process = &mut self.processes[at];
            let local = process.local(now);
            let Some(core) = &mut process.core else {
                return;
            };
            if let Some(event) = core.poll_event() {
                self.deliver_event(at, event);
            } else if let Some(call) = core.poll_call(local) {
                self.send(at, call);
            } else if let Some(event) = core.poll_event() {
                // While the core looked for a call, it refused a claim that exceeds its share.
                self.deliver_event(at, event);
            } else {
                break;
            }
            if self.judge.violation.is_some() {
                return;
            }
        }
        let late = self.random.up_to_ms(2);
        let process = &mut self.processes[at];
        let next = process.core.as_ref().and_then(Shipped::poll_timeout);
        // A later time stands for a timer that is never due.
        let next = next.filter(|next| *next < Duration::from_secs(1_000_000));
        if process.wake.map(|(local, _)| local) != next {
            process.wake = next.map(|local| (local, process.world(local).max(now) + late));
        }
    }

    /// A caller receives an event. It releases a granted permit after a while, and a lost one soon, unless it goes on.
    fn deliver_event(&mut self, at: usize, event: Event) {
        let process = &self.processes[at];
        let local = process.local(self.now);
        self.note(|| format!("p{at} is told {event:?}"));
        self.judge.received(
            at,
            &self.processes[at],
            &self.servers,
            event,
            (self.now, local),
        );
        if let Event::GivenUp(..) = event {
            return;
        }
        let merged = self.merges.remove(&(at, event.permit()));
        match (event, merged) {
            (Event::Granted(..), Some((permit, key, size))) if size.units > 0 => {
                self.shrink(at, (permit, key), size);
            }
            _ => {}
        }
        let conduct = self.conduct.get(&(at, event.permit()));
        let after = match (event, conduct) {
            (Event::Granted(..), Some(conduct)) => Some(conduct.hold),
            (Event::Lost(_), Some(conduct)) if !conduct.goes_on => Some(self.random.up_to_ms(20)),
            _ => None,
        };
        if let (Event::Granted(permit, _), Some(hold)) = (event, after) {
            self.use_budgets(at, permit, hold);
        }
        if let Some(after) = after {
            self.schedule_after(after, Happening::Input(at, Input::Release(event.permit())));
        }
    }

    /// The holder of a permit settles its use of budgets, step by step. The last step coincides with the release.
    fn use_budgets(&mut self, at: usize, permit: PermitId, hold: Duration) {
        for (number, level) in self.judge.claim_of(at, permit).into_iter().enumerate() {
            let Some(Charge::Settlement { used, steps }) = level.charge else {
                continue;
            };
            for step in 1..=steps {
                let total = u64::from(used) * u64::from(step) / u64::from(steps);
                let settle = Input::Settle(permit, number, total as u32);
                self.schedule_after(hold * step / steps, Happening::Input(at, settle));
                if self.random.one_in(8) {
                    // A smaller total that comes later must not count.
                    let settle = Input::Settle(permit, number, total as u32 / 2);
                    self.schedule_after(hold * step / steps, Happening::Input(at, settle));
                }
            }
        }
    }

    /// A suspended process continues, and handles the inputs that have come.
    pub(super) fn resume(&mut self, at: usize) {
        if self.now < self.processes[at].suspended_until {
            return;
        }
        self.note(|| format!("p{at} goes on"));
        // It handles timeouts that are due before the inputs or after them.
        if self.random.one_in(2) {
            self.wake(at);
        }
        for input in std::mem::take(&mut self.processes[at].inbox) {
            // Messages come over a separate socket, so they may be read later than the other inputs.
            let is_late = matches!(input, Input::Message(_)) && self.random.one_in(2);
            match is_late {
                true => {
                    let late = self.random.up_to_ms(500);
                    self.schedule_after(late, Happening::Input(at, input));
                }
                false => self.input(at, input),
            }
        }
    }
}
