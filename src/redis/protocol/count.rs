//! Counts calls.

use super::share::Share;
use crate::{
    observe::{Answered, Store::Redis as REDIS, called},
    redis::error::Error,
};
use redis::Value;
use std::time::Instant;

/// Counts the commands that were sent together.
pub(super) fn count<P: Share>(
    verb: &'static str,
    sent: Instant,
    batches: &[&[P]],
    answers: &Result<Vec<Result<Value, Error>>, Error>,
) {
    let sizes = batches
        .iter()
        .map(|shares| shares.iter().map(P::size).sum());
    let answered = (0..batches.len()).map(|at| match answers {
        Ok(answers) => answers.get(at).map_or(Answered::Error, |answer| {
            answer.as_ref().err().map_or(Answered::Ok, Error::answered)
        }),
        Err(error) => error.answered(),
    });
    called(REDIS, verb, sent.elapsed(), sizes.zip(answered));
}

impl Error {
    fn answered(&self) -> Answered {
        match self {
            // The server does not have the script yet.
            _ if self.is_no_script() => Answered::Ok,
            Self::Timeout(_) => Answered::Timeout,
            _ => Answered::Error,
        }
    }
}
