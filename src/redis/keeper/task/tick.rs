//! What the keeper does at each tick, and when the store becomes unavailable.

use super::{
    super::pulse::{Gap, Pulse},
    Report, Task,
};
use std::{mem, sync::Arc, time::Instant};

impl Task {
    /// Counts what this process holds, if the store has just become unavailable.
    pub(super) fn count(&mut self) {
        if let Some(alarm) = self.core.outage.uncounted() {
            let urgent = self.schedule.adopt(self.core.registry.adopt());
            self.core.outage.count_all(&self.schedule.all(), alarm);
            self.refresh(urgent, Report::Refreshed);
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        let adopted = self.core.registry.adopt();
        self.introduce(now, !adopted.is_empty());
        let mut due = self.schedule.adopt(adopted);
        let outage = &self.core.outage;
        self.schedule.expire(now, |lease| outage.kept_until(lease));
        due.extend(self.schedule.due(now));
        // Not in the condition: each of them is to be asked.
        let reasons = [
            self.was_stopped(),
            self.core.outage.has_returned(),
            self.core.notifications.is_new(),
        ];
        if reasons.contains(&true) {
            due = self.schedule.all();
        } else if self.core.outage.is_settling() {
            // A release that was on its way may have refused it before; later, waiters would.
            let all = self.schedule.all().into_iter();
            due.extend(all.filter(|lease| lease.is_degraded()));
        } else {
            due.extend(self.returning.due(now));
        }
        let retries = self.schedule.retries(now);
        self.refresh(retries, Report::RefreshedAgain);
        self.refresh(due, Report::Refreshed);
        let clock = self.core.attempts.protocol.clock_key();
        if now >= self.next_clock && self.is_active && !self.core.outage.is_silent(&clock) {
            self.next_clock = now + self.core.times.refresh_interval();
            self.is_active = false;
            self.read_clock();
        }
    }

    /// Exchanges the server's time for the highest seen.
    pub(super) fn read_clock(&self) {
        let core = Arc::clone(&self.core);
        tokio::spawn(async move {
            let deadline = Instant::now() + core.times.timeout;
            // A failure is ignored: the next read may succeed.
            let _ = core.attempts.protocol.clock(deadline).await;
        });
    }

    /// Takes note of what happened since the last tick. Returns whether all leases have to be refreshed.
    fn was_stopped(&mut self) -> bool {
        let pulse = Pulse::now();
        let last = mem::replace(&mut self.pulse, pulse);
        let gap = self.pulse.since(&last, self.core.times.refresh_interval());
        let was_stopped = self.schedule.note(gap, self.pulse.after(&last));
        if let Gap::Suspended(missed) = gap {
            self.core.outage.advance(missed);
        }
        was_stopped
    }
}
