//! What is known of the keeper's thread, and what it needs.

use crate::redis::core::{Core, THREAD, Time};
use std::{mem, time::Duration};

/// While claims come and go, the thread looks as often, at the full milliseconds of Tokio's timers. So it need not be
/// woken for what they leave.
const TICK: Duration = Duration::from_micros(250);

/// How late it may be.
const SLACK: Duration = Duration::from_millis(1);

/// The longest sleep, because a timer does not notice that the machine was suspended.
const LONGEST: Duration = Duration::from_secs(1);

/// What the thread needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Needs {
    #[default]
    Nothing,
    /// It has work before it wakes by itself.
    Bell,
    /// There is none.
    Start,
}

/// What is known of the thread.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    pub(super) runs: bool,
    /// When it wakes by itself. Zero: it does not sleep.
    sleeps_until: Time,
    /// Whether claims or releases came since it looked.
    pub(super) is_busy: bool,
}

impl Keeper {
    /// Looks what the thread needs, once the lock is released. It has something to do when that is `due`.
    pub(super) fn look(&mut self, core: Option<&Core>, due: Option<Time>, is_used: bool) -> Needs {
        let is_over = !is_used && core.is_none_or(Core::is_idle);
        if !self.runs {
            self.runs = !is_over;
            return if is_over {
                Needs::Nothing
            } else {
                Needs::Start
            };
        }
        if is_over || core.is_some_and(|core| self.is_late(core, due)) {
            self.sleeps_until = Time::ZERO;
            return Needs::Bell;
        }
        Needs::Nothing
    }

    /// Whether there is something for it to do before it wakes.
    fn is_late(&self, core: &Core, due: Option<Time>) -> bool {
        let is_due = due.is_some_and(|due| due + SLACK < self.sleeps_until);
        let sleeps = self.sleeps_until > Time::ZERO;
        sleeps && (is_due || core.has_call(THREAD))
    }

    /// Until when it sleeps if `due` is when something is to be done.
    pub(super) fn sleeps(&mut self, now: Time, due: Option<Time>) -> Time {
        let longest = match mem::take(&mut self.is_busy) {
            true => now + TICK,
            false => now + LONGEST,
        };
        self.sleeps_until = due.map_or(longest, |due| due.min(longest));
        self.sleeps_until
    }
}
