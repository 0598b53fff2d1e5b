//! Pauses. The judge derives their ends from the calls to servers, not from the servers' data.

use super::{Verdict, check, effect::Effect};
use crate::{
    server::View,
    subject::{Acquired, Command},
};

/// The highest score of a revocation in `alive`. Waiters have higher ones.
const REVOKED: i64 = -5_000_000_000_000_000;

/// A pause. Times are ms of the server's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) end: i64,
    length: i64,
}

/// The pause of a semaphore, as the judge knows it.
#[derive(Debug, Default)]
pub(super) struct KnownPauses {
    pause: Option<Pause>,
    /// True while the end is uncertain, because the server has other data or another clock. Until the server's own
    /// pause is plausible again, the judge adopts it, but never for more than its length.
    is_uncertain: bool,
}

impl KnownPauses {
    /// Notes that the server has other data, or that its clock was set back.
    pub(super) fn mark_uncertain(&mut self) {
        self.is_uncertain = true;
    }

    /// Updates the pause to the time at which a script begins.
    pub(super) fn advance_to(&mut self, before: &View, clock: i64) {
        if self.is_uncertain {
            self.adopt(before, clock);
        }
        if let Some(pause) = &mut self.pause {
            pause.end = pause.end.min(clock + pause.length);
        }
        self.pause = self.pause.filter(|pause| pause.end > clock);
    }

    /// Adopts the pause of the server's data.
    fn adopt(&mut self, view: &View, clock: i64) {
        self.pause = view.pause.map(|(length, end)| Pause { end, length });
        // If the keys came from a server with another clock, they may expire before the end that they name.
        let is_far = |pause: Pause| {
            pause.end > clock + pause.length || view.expires.is_some_and(|end| end < pause.end)
        };
        self.is_uncertain = self.pause.is_some_and(is_far);
    }

    pub(super) fn pause(&self) -> Option<Pause> {
        self.pause
    }

    pub(super) fn is_uncertain(&self) -> bool {
        self.is_uncertain
    }

    /// Checks a run of the script that pauses, or ends the pause if `length` is 0. `is_paused` is its answer. No waiter
    /// may move, and the keys of an otherwise empty queue must expire with the pause.
    pub(super) fn ran(
        &mut self,
        (before, after): (&View, &View),
        (clock, length, is_paused): (i64, i64, bool),
    ) -> Verdict {
        self.advance_to(before, clock);
        if self.is_uncertain {
            self.adopt(after, clock);
            return Ok(());
        }
        let describe =
            |what: &str| format!("{what} by a pause for {length} ms: {before:?} became {after:?}");
        let was_paused = self.pause.is_some();
        if length == 0 {
            self.pause = None;
            return check(is_paused == was_paused, "a pause", || {
                describe("a wrong answer")
            });
        }
        check(is_paused, "a pause", || describe("a wrong answer"))?;
        let end = clock + length;
        if self.pause.is_none_or(|pause| pause.end < end) {
            self.pause = Some(Pause { end, length });
        }
        check(before.queue == after.queue, "a pause", || {
            describe("waiters are moved")
        })?;
        let is_first = before.queue.is_empty() && before.pause.is_none();
        check(!is_first || after.expires == Some(end), "a pause", || {
            describe("the keys and the pause end at different times")
        })
    }
}

impl Effect<'_> {
    /// Checks that nothing is granted in a pause, that claims that can wait are queued, and that answers contain the
    /// rest of the pause.
    pub(super) fn check_pause(&self) -> Verdict {
        let granted = self.granted();
        let left = self.pause.map(|pause| pause.end - self.clock);
        check(left.is_none() || granted.is_empty(), "a pause", || {
            self.describe(&format!("{granted:?} is granted in a pause of {left:?} ms"))
        })?;
        let Command::Acquire { claims, .. } = &self.run.command else {
            return self.check_leftovers();
        };
        let crate::subject::Answer::Acquired(_, each) = &self.run.answer else {
            return Ok(());
        };
        for (claim, acquired) in claims.iter().zip(each) {
            let is_granted = matches!(acquired, Acquired::Granted { .. });
            // Units that a permit already holds stay, also if it is acquired again.
            let is_new = || {
                let mut levels = claim.iter();
                levels.any(|(key, wanted)| *key == self.key && !wanted.is_back)
            };
            let is_right = left.is_none() || self.is_uncertain || !is_granted || !is_new();
            check(is_right, "a pause", || {
                self.describe(&format!(
                    "{acquired:?} is granted in a pause of {left:?} ms"
                ))
            })?;
            let (Acquired::Full { level }
            | Acquired::QueueFull { level }
            | Acquired::Paused { level, .. }
            | Acquired::Queued { level, .. }) = *acquired
            else {
                continue;
            };
            let (key, wanted) = claim[level];
            if key != self.key {
                continue;
            }
            let is_right = match *acquired {
                Acquired::Full { .. } | Acquired::QueueFull { .. } => left.is_none(),
                Acquired::Paused { left: rest, .. } => {
                    let most = wanted.position.map(|position| position.wait.max_waiting);
                    let is_full = most.is_none_or(|most| self.all_waiters() >= most as usize);
                    self.is_rest(rest.as_millis() as i64) && is_full
                }
                Acquired::Queued { pause, recheck, .. } => {
                    let is_right = match pause {
                        Some(rest) => self.is_rest(rest.as_millis() as i64),
                        None => left.is_none(),
                    };
                    let is_woken =
                        recheck.is_some_and(|after| pause.is_none_or(|rest| after <= rest));
                    is_right && (pause.is_none() || is_woken)
                }
                _ => true,
            };
            check(is_right, "a pause", || {
                self.describe(&format!(
                    "{:?} gets {acquired:?}, and {left:?} ms are left",
                    wanted.id
                ))
            })?;
        }
        self.check_leftovers()
    }

    /// True if this is the rest of the pause, or less while the end is uncertain.
    fn is_rest(&self, rest: i64) -> bool {
        let left = self.pause.map(|pause| pause.end - self.clock);
        left.is_some_and(|left| rest == left || self.is_uncertain && rest <= left)
    }

    /// Checks that only revocations are left in `alive` while the queue is empty.
    fn check_leftovers(&self) -> Verdict {
        let is_empty = |view: &View| view.queue.is_empty() && view.pause.is_none();
        let has_others = |view: &View| view.alive.iter().any(|(_, score)| *score > REVOKED);
        let is_left = is_empty(self.after) && has_others(self.after);
        let is_old = is_empty(self.before) && has_others(self.before);
        check(!is_left || is_old || self.is_cut_short(), "a pause", || {
            self.describe("something is left")
        })
    }
}
