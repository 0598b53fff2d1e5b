//! Routing and retries of questions. A question is an operator's call or a part of a check. It belongs to no lease.
//!
//! The core tracks no question: a failure does not make the server unavailable, and an unavailable server is tried too.
//! So this is a separate machine beside the [core](crate::core), and needs only its map of slots. The caller sends each
//! [`Attempt`], and passes the outcome to [`Question::retry_delay_after`].

use crate::{core::CallFailure, verbs::CommandFault};
use std::time::Duration;

/// The delay before the next attempt. Moving slots and broken connections recover within a few of these.
pub const RETRY_DELAY: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    Server(usize),
    /// The current server of a slot. Redirects are followed.
    Slot(u16),
}

/// Decides if a question that may have run is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It is sent again even if it may have run, because a second run has the same result.
    EvenIfRun,
    /// It is sent again only after a refusal, which proves that it has not run.
    IfNotRun,
}

/// One attempt to send a question: the server, and the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub server: usize,
    /// True if `ASKING` precedes each command, because the slot is moving to this server.
    pub sends_asking: bool,
}

/// A question that has no final answer yet.
#[derive(Debug, Clone)]
pub struct Question {
    recipient: Recipient,
    repeat: Repeat,
    /// The next attempt, if the last outcome was a redirect.
    redirect: Option<Attempt>,
}

impl Question {
    pub fn new(recipient: Recipient, repeat: Repeat) -> Self {
        Self {
            recipient,
            repeat,
            redirect: None,
        }
    }

    /// Returns the next attempt. `server_of` returns the server last known to own a slot.
    pub fn attempt(&self, server_of: impl FnOnce(u16) -> usize) -> Attempt {
        let direct = |server| Attempt {
            server,
            sends_asking: false,
        };
        match (self.redirect, self.recipient) {
            (Some(redirect), _) => redirect,
            (None, Recipient::Server(server)) => direct(server),
            (None, Recipient::Slot(slot)) => direct(server_of(slot)),
        }
    }

    /// Handles the outcome of an attempt: the faults of single commands, or one failure of all. Returns the delay
    /// before the next attempt, or `None` if the outcome is final.
    pub fn retry_delay_after(
        &mut self,
        outcome: Result<impl IntoIterator<Item = CommandFault>, CallFailure>,
    ) -> Option<Duration> {
        self.redirect = None;
        let is_repeated = match outcome {
            Ok(faults) => faults.into_iter().any(|fault| self.note_fault(fault)),
            Err(CallFailure::NotConnected) => false,
            Err(_) => self.repeat == Repeat::EvenIfRun,
        };
        is_repeated.then_some(RETRY_DELAY)
    }

    /// Returns true if the question is sent again after this fault, and stores the target of a redirect. Every fault is
    /// final for a question to a fixed server.
    fn note_fault(&mut self, fault: CommandFault) -> bool {
        if matches!(self.recipient, Recipient::Server(_)) {
            return false;
        }
        let redirect = |server, sends_asking| {
            Some(Attempt {
                server,
                sends_asking,
            })
        };
        match fault {
            CommandFault::Moved(server) => self.redirect = redirect(server, false),
            CommandFault::Ask(server) => self.redirect = redirect(server, true),
            CommandFault::Again | CommandFault::Unserved => {}
            CommandFault::Interrupted => return self.repeat == Repeat::EvenIfRun,
            CommandFault::Unavailable | CommandFault::Mistake => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(repeat: Repeat) -> Question {
        Question::new(Recipient::Slot(7), repeat)
    }

    fn attempt(server: usize, sends_asking: bool) -> Attempt {
        Attempt {
            server,
            sends_asking,
        }
    }

    /// The attempt after a fault. In the map, server 1 owns slot 7.
    fn next(question: &mut Question, fault: CommandFault) -> Option<Attempt> {
        let delay = question.retry_delay_after(Ok([fault]));
        delay.map(|_| question.attempt(|slot| if slot == 7 { 1 } else { 99 }))
    }

    #[test]
    fn a_question_follows_redirects_of_its_slot() {
        let mut question = question(Repeat::IfNotRun);
        assert_eq!(question.attempt(|_| 3), attempt(3, false));
        assert_eq!(
            next(&mut question, CommandFault::Moved(2)),
            Some(attempt(2, false))
        );
        assert_eq!(
            next(&mut question, CommandFault::Ask(4)),
            Some(attempt(4, true))
        );
        // These faults drop the redirect, so the map decides again.
        for fault in [CommandFault::Again, CommandFault::Unserved] {
            assert_eq!(next(&mut question, fault), Some(attempt(1, false)));
        }
    }

    #[test]
    fn a_question_that_may_have_run_is_sent_again_only_if_it_may_run_twice() {
        let unanswered = [CallFailure::Broken, CallFailure::TimedOut];
        for (repeat, is_sent) in [(Repeat::EvenIfRun, true), (Repeat::IfNotRun, false)] {
            let mut question = question(repeat);
            for failure in unanswered {
                let delay = question.retry_delay_after(Err::<[CommandFault; 0], _>(failure));
                assert_eq!(delay.is_some(), is_sent, "{failure:?}");
            }
            assert_eq!(
                next(&mut question, CommandFault::Interrupted).is_some(),
                is_sent
            );
        }
    }

    #[test]
    fn an_answer_or_a_missing_connection_is_final() {
        for repeat in [Repeat::EvenIfRun, Repeat::IfNotRun] {
            let mut question = question(repeat);
            assert_eq!(question.retry_delay_after(Ok([])), None);
            for fault in [CommandFault::Unavailable, CommandFault::Mistake] {
                assert_eq!(next(&mut question, fault), None);
            }
            let unsent =
                question.retry_delay_after(Err::<[CommandFault; 0], _>(CallFailure::NotConnected));
            assert_eq!(unsent, None);
        }
    }

    #[test]
    fn every_fault_is_final_for_a_question_to_a_fixed_server() {
        let mut question = Question::new(Recipient::Server(5), Repeat::EvenIfRun);
        let moving = [
            CommandFault::Moved(2),
            CommandFault::Ask(2),
            CommandFault::Again,
        ];
        for fault in moving
            .into_iter()
            .chain([CommandFault::Unserved, CommandFault::Interrupted])
        {
            assert_eq!(next(&mut question, fault), None, "{fault:?}");
        }
        let delay = question.retry_delay_after(Err::<[CommandFault; 0], _>(CallFailure::Broken));
        assert_eq!(delay, Some(RETRY_DELAY));
        assert_eq!(question.attempt(|_| 1), attempt(5, false));
    }
}
