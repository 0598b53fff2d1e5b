//! Where a question is sent, and when again. A question is a command of operators or of a check, which belongs to no lease.
//!
//! A question changes no lease. Its failure does not make its server unavailable, and it is sent also to a server that is
//! unavailable. So it is a separate machine beside the [core](crate::core), from which it needs only the map of slots. Its
//! carrier sends each [`Attempt`], and passes the outcome to
//! [`Question::retry_delay_after`].

use crate::{core::Failure, verbs::Fault};
use std::time::Duration;

/// The delay before a question is sent again: its keys are moving, or its connection broke and was not replaced yet.
pub const RETRY_DELAY: Duration = Duration::from_millis(20);

/// The recipient of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipient {
    Server(usize),
    /// The server of a slot, wherever that has moved.
    Slot(u16),
}

/// When a question is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Also if it may have run, because a second run does the same.
    Always,
    /// Only after a refusal, because then it has not run.
    IfNotRun,
}

/// One sending of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    pub server: usize,
    /// True if each command is sent behind an `ASKING`, because its slot is moving to the server.
    pub sends_asking: bool,
}

/// A question that has no final answer yet.
#[derive(Debug, Clone)]
pub struct Question {
    recipient: Recipient,
    repeat: Repeat,
    /// The attempt that the last outcome has redirected to.
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

    /// The next attempt. `server_of` is the server that is last known to have a slot.
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

    /// Takes the outcome of an attempt: the fault of each command that has one, or the failure of all. Returns the delay
    /// of the next attempt, or `None` if the outcome is final.
    pub fn retry_delay_after(
        &mut self,
        outcome: Result<impl IntoIterator<Item = Fault>, Failure>,
    ) -> Option<Duration> {
        self.redirect = None;
        let is_repeated = match outcome {
            Ok(faults) => faults.into_iter().any(|fault| self.note_fault(fault)),
            Err(Failure::NotConnected) => false,
            Err(_) => self.repeat == Repeat::Always,
        };
        is_repeated.then_some(RETRY_DELAY)
    }

    /// Returns true if a question with this fault is sent again, and stores where a redirect leads. A question to a
    /// fixed server follows no redirect.
    fn note_fault(&mut self, fault: Fault) -> bool {
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
            Fault::Moved(server) => self.redirect = redirect(server, false),
            Fault::Ask(server) => self.redirect = redirect(server, true),
            Fault::Again | Fault::Unserved => {}
            Fault::Interrupted => return self.repeat == Repeat::Always,
            Fault::Unavailable | Fault::Mistake => return false,
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

    /// The attempt that follows a fault. The map says that server 1 has the slot.
    fn next(question: &mut Question, fault: Fault) -> Option<Attempt> {
        let delay = question.retry_delay_after(Ok([fault]));
        delay.map(|_| question.attempt(|slot| usize::from(slot) - 6))
    }

    #[test]
    fn a_question_goes_where_its_slot_is() {
        let mut question = question(Repeat::IfNotRun);
        assert_eq!(question.attempt(|_| 3), attempt(3, false));
        assert_eq!(
            next(&mut question, Fault::Moved(2)),
            Some(attempt(2, false))
        );
        assert_eq!(next(&mut question, Fault::Ask(4)), Some(attempt(4, true)));
        // The slot may not be there after all, so the map counts again.
        for fault in [Fault::Again, Fault::Unserved] {
            assert_eq!(next(&mut question, fault), Some(attempt(1, false)));
        }
    }

    #[test]
    fn what_may_have_run_is_sent_again_only_if_a_second_run_does_the_same() {
        let unanswered = [Failure::Broken, Failure::TimedOut];
        for (repeat, is_sent) in [(Repeat::Always, true), (Repeat::IfNotRun, false)] {
            let mut question = question(repeat);
            for failure in unanswered {
                let delay = question.retry_delay_after(Err::<[Fault; 0], _>(failure));
                assert_eq!(delay.is_some(), is_sent, "{failure:?}");
            }
            assert_eq!(next(&mut question, Fault::Interrupted).is_some(), is_sent);
        }
    }

    #[test]
    fn an_answer_is_final() {
        for repeat in [Repeat::Always, Repeat::IfNotRun] {
            let mut question = question(repeat);
            assert_eq!(question.retry_delay_after(Ok([])), None);
            for fault in [Fault::Unavailable, Fault::Mistake] {
                assert_eq!(next(&mut question, fault), None);
            }
            let unsent = question.retry_delay_after(Err::<[Fault; 0], _>(Failure::NotConnected));
            assert_eq!(unsent, None);
        }
    }

    #[test]
    fn a_question_to_a_server_follows_no_slot() {
        let mut question = Question::new(Recipient::Server(5), Repeat::Always);
        assert_eq!(next(&mut question, Fault::Moved(2)), None);
        let delay = question.retry_delay_after(Err::<[Fault; 0], _>(Failure::Broken));
        assert_eq!(delay, Some(RETRY_DELAY));
        assert_eq!(question.attempt(|_| 1), attempt(5, false));
    }
}
