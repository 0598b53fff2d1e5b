//! Tells operators that claims fail: once when that begins, and once when it is over.
//!
//! | claims fail because | it begins with |
//! |---|---|
//! | of one key: its type, a right to it | the first |
//! | the server is silent, away or cannot work now | several failures in a row, longer than a stall, or the breaker that opens |
//! | nobody but a person can mend it: credentials, rights, a paused clock | the first |
//!
//! It is over with a claim that is answered once none has failed for a lease: so calls that fail by turns with
//! others that succeed are one time, not many. The breaker that closes tells sooner that what may pass has
//! passed. While claims fail, a cause that stands further down in the table is told too: it needs another remedy.
//! What the server answers to others than claims is no end: claims may travel over another connection, with
//! other credentials.

use super::cause::MAX_FAILURES;
use crate::{
    observe::events,
    redis::{clock::Times, error::Error},
};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Of one server, or of all that are one as far as is known.
#[derive(Default)]
pub(in crate::redis) struct Alert {
    /// Whether an answer to a claim is news.
    is_begun: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    told: Told,
    /// When a claim has failed last, unless a breaker has closed since.
    failed: Option<Instant>,
    /// How many breakers are open. Those that open and close at once may be noted in either order.
    open: i32,
    /// How many claims in a row have failed for reasons that may pass, and since when.
    failures: u32,
    since: Option<Instant>,
}

/// What was told, in the order of the module's table.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    #[default]
    Nothing,
    OfKey,
    Passing,
    Mistake,
}

impl State {
    fn is_idle(&self) -> bool {
        self.told == Told::Nothing && self.failures == 0
    }

    /// A claim has failed. Returns whether that is to be told.
    fn failed(&mut self, error: &Error, now: Instant, times: &Times) -> bool {
        let may_pass = error.may_pass();
        if may_pass {
            let since = *self.since.get_or_insert(now);
            self.failures += 1;
            if self.failures < MAX_FAILURES || now - since < times.timeout {
                return false;
            }
        }
        self.failed = Some(now);
        self.tell(match error.is_of_one_key() {
            true => Told::OfKey,
            false if may_pass => Told::Passing,
            false => Told::Mistake,
        })
    }

    /// A claim was answered. Returns whether it is told that claims succeed again.
    fn worked(&mut self, now: Instant, quiet: Duration) -> bool {
        (self.failures, self.since) = (0, None);
        let is_quiet = self.failed.is_none_or(|failed| now - failed >= quiet);
        self.open == 0 && is_quiet && self.end()
    }

    /// A breaker opens. Returns whether that is to be told.
    fn opens(&mut self) -> bool {
        self.open += 1;
        self.open > 0 && self.tell(Told::Passing)
    }

    /// A breaker closes, and the server may have done what it was asked for. Returns whether that is to be told.
    fn closes(&mut self, has_worked: bool) -> bool {
        self.open -= 1;
        let has_passed = self.open == 0 && self.told == Told::Passing;
        if has_passed {
            self.failed = None;
        }
        has_passed && has_worked && self.end()
    }

    /// Returns whether it was not told already.
    fn tell(&mut self, told: Told) -> bool {
        let is_news = told > self.told;
        self.told = self.told.max(told);
        is_news
    }

    /// Returns whether anything was told.
    fn end(&mut self) -> bool {
        let was_told = self.told != Told::Nothing;
        *self = Self::default();
        was_told
    }
}

impl Alert {
    /// Claims are decided without the server. Returns whether that is news.
    pub(in crate::redis) fn begins(&self) -> bool {
        self.change(State::opens)
    }

    /// The server answers again. Returns whether claims are known to succeed, and that is news.
    pub(in crate::redis) fn ends(&self, works: bool) -> bool {
        self.change(|state| state.closes(works))
    }

    pub(in crate::redis) fn claim_failed(&self, error: &Error, times: &Times) {
        let now = Instant::now();
        if self.change(|state| state.failed(error, now, times)) {
            events::fails(error);
        }
    }

    /// Whether an answer to a claim is news.
    pub(in crate::redis) fn is_begun(&self) -> bool {
        self.is_begun.load(Relaxed)
    }

    pub(in crate::redis) fn claim_worked(&self, times: &Times) {
        let now = Instant::now();
        if self.change(|state| state.worked(now, times.lease)) {
            events::works();
        }
    }

    /// Changes the state. Returns what `change` does.
    fn change(&self, change: impl FnOnce(&mut State) -> bool) -> bool {
        let mut state = self.state.lock();
        let is_news = change(&mut state);
        self.is_begun.store(!state.is_idle(), Relaxed);
        is_news
    }
}

#[cfg(test)]
mod tests;
