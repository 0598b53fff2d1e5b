//! Operators' questions: they end in time, are answered where nothing stands in the way, and run once if a second run would
//! answer otherwise.

use super::{Verdict, check};
use proto::{core::Failure, verbs::Fault};
use std::{collections::BTreeMap, time::Duration};

/// Questions that have no final outcome.
#[derive(Debug, Default)]
pub struct Questions(BTreeMap<u64, Open>);

#[derive(Debug)]
struct Open {
    /// Since when nothing has stood in its way.
    well_since: Duration,
    /// True if a second run does the same.
    may_repeat: bool,
    runs: usize,
}

impl Questions {
    /// A process asks.
    pub fn asked(&mut self, number: u64, now: Duration, may_repeat: bool) {
        let open = Open {
            well_since: now,
            may_repeat,
            runs: 0,
        };
        self.0.insert(number, open);
    }

    /// Something stands in its way.
    pub fn troubled(&mut self, number: u64, now: Duration) {
        if let Some(open) = self.0.get_mut(&number) {
            open.well_since = now;
        }
    }

    /// A server runs it.
    ///
    /// # Errors
    ///
    /// If it has run before and must not run twice.
    pub fn ran(&mut self, number: u64) -> Verdict {
        let Some(open) = self.0.get_mut(&number) else {
            return Ok(());
        };
        open.runs += 1;
        check(open.runs == 1 || open.may_repeat, "a question", || {
            format!("{number} runs again")
        })
    }

    /// It is over, with its outcome. `bound`: how long it may take where nothing stands in its way.
    ///
    /// # Errors
    ///
    /// If it is late, or has failed for no reason.
    pub fn over(
        &mut self,
        number: u64,
        outcome: Result<Option<Fault>, Failure>,
        (now, deadline, bound): (Duration, Duration, Duration),
    ) -> Verdict {
        let Some(open) = self.0.remove(&number) else {
            return Ok(());
        };
        let time_left = deadline.saturating_sub(now);
        let is_unanswered = matches!(outcome, Err(Failure::Broken | Failure::TimedOut));
        let could = now.saturating_sub(open.well_since) > bound;
        let is_right = outcome == Ok(None) || is_unanswered || !could;
        check(is_right, "a question", || {
            format!("{number} has failed with {outcome:?} though its servers are well")
        })?;
        let may_pass = match outcome {
            Ok(Some(Fault::Moved(_) | Fault::Ask(_) | Fault::Again | Fault::Unserved)) => true,
            Ok(Some(Fault::Interrupted)) => open.may_repeat,
            _ => is_unanswered && open.may_repeat,
        };
        let gives_up = may_pass && time_left > bound;
        check(!gives_up, "a question", || {
            format!("{number} is given up {time_left:?} before its time: {outcome:?}")
        })
    }
}
