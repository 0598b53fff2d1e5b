//! Operators' questions (`usage`, `revoke`, `pause`): they are answered if nothing prevents it, are not given up early,
//! and run once if a second run would answer differently. The simulation itself enforces their deadlines, so the checks
//! of deadlines cover only the simulation.

use super::{Verdict, check};
use proto::{core::CallFailure, verbs::CommandFault};
use std::{collections::BTreeMap, time::Duration};

/// Questions without a final outcome.
#[derive(Debug, Default)]
pub struct Questions(BTreeMap<u64, OpenQuestion>);

#[derive(Debug)]
struct OpenQuestion {
    /// When something last prevented an answer, or when the question was asked.
    well_since: Duration,
    deadline: Duration,
    /// True if a second run gives the same answer.
    may_repeat: bool,
    runs: usize,
}

impl Questions {
    /// A process asks at `now`.
    pub fn asked(&mut self, number: u64, (now, deadline): (Duration, Duration), may_repeat: bool) {
        let open = OpenQuestion {
            well_since: now,
            deadline,
            may_repeat,
            runs: 0,
        };
        self.0.insert(number, open);
    }

    /// Something prevents an answer until `then`.
    pub fn troubled(&mut self, number: u64, then: Duration) {
        if let Some(open) = self.0.get_mut(&number) {
            open.well_since = then;
        }
    }

    /// The process is suspended until `then`, so it cannot end its question before.
    pub fn delayed(&mut self, number: u64, then: Duration) {
        if let Some(open) = self.0.get_mut(&number) {
            open.deadline = open.deadline.max(then);
            open.well_since = then;
        }
    }

    /// The asking process has died.
    pub fn forget(&mut self, number: u64) {
        self.0.remove(&number);
    }

    /// A server runs the question.
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

    /// The outcome is final. `bound` is the longest that a question may take if nothing prevents an answer.
    ///
    /// # Errors
    ///
    /// If the question ends late, has failed although it could be answered, or was given up too early.
    pub fn finish(
        &mut self,
        number: u64,
        outcome: Result<Option<CommandFault>, CallFailure>,
        (now, bound): (Duration, Duration),
    ) -> Verdict {
        let Some(open) = self.0.remove(&number) else {
            return Ok(());
        };
        check(now <= open.deadline, "a question", || {
            format!(
                "{number} ends at {now:?}, after its deadline {:?}",
                open.deadline
            )
        })?;
        let could_be_answered = now.saturating_sub(open.well_since) > bound;
        check(
            outcome == Ok(None) || !could_be_answered,
            "a question",
            || format!("{number} failed with {outcome:?} although nothing prevented an answer"),
        )?;
        let is_transient = match outcome {
            Ok(Some(
                CommandFault::Moved(_)
                | CommandFault::Ask(_)
                | CommandFault::Again
                | CommandFault::Unserved,
            )) => true,
            Ok(Some(CommandFault::Interrupted))
            | Err(CallFailure::Broken | CallFailure::TimedOut) => open.may_repeat,
            _ => false,
        };
        let time_left = open.deadline.saturating_sub(now);
        check(!is_transient || time_left <= bound, "a question", || {
            format!("{number} was given up {time_left:?} before its deadline: {outcome:?}")
        })
    }

    /// The simulation is over.
    ///
    /// # Errors
    ///
    /// If a question should have ended.
    pub fn end(&self, now: Duration) -> Verdict {
        let mut late = self.0.iter().filter(|(_, open)| open.deadline < now);
        late.next().map_or(Ok(()), |(number, open)| {
            check(false, "a question", || {
                format!("{number} has not ended by its deadline {:?}", open.deadline)
            })
        })
    }
}
