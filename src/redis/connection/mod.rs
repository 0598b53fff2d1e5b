//! How a command gets to Redis and back in bounded time.

mod handed;
mod own;

use super::error::Error;
use crate::semaphore::BoxFuture;
pub(super) use handed::Handed;
pub(super) use own::Own;
use redis::{Cmd, Value};
use std::time::Duration;
use tokio::time::timeout;

/// Commands that are sent together. The server answers others between two batches, and is done
/// with one well within a timeout.
const BATCH: usize = 256;

/// One way to a server: a connection of our own, or one that was handed in.
pub(super) trait Link: Send + Sync + 'static {
    /// Sends one command.
    fn call(&self, command: Cmd) -> BoxFuture<Result<Value, Error>>;

    /// Sends many. As many results, in their order.
    fn batch(&self, commands: Vec<Cmd>) -> BoxFuture<Vec<Result<Value, Error>>>;

    /// A command had no answer in time: perhaps the connection is dead and does not know it.
    fn timed_out(&self) {}
}

/// A link whose every call ends within our own timeout, whatever the client library does.
pub(super) struct Connection {
    link: Box<dyn Link>,
    timeout: Duration,
}

impl Connection {
    pub(super) fn new(link: impl Link, timeout: Duration) -> Self {
        Self {
            link: Box::new(link),
            timeout,
        }
    }

    /// How long one call may take.
    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Sends one command, with `bound` instead of the timeout if that is shorter.
    pub(super) async fn call(&self, command: Cmd, bound: Duration) -> Result<Value, Error> {
        let bound = bound.min(self.timeout);
        match timeout(bound, self.link.call(command)).await {
            Ok(answer) => answer.and_then(checked),
            Err(_) => {
                self.link.timed_out();
                Err(Error::Timeout(bound))
            }
        }
    }

    /// Sends many commands, some at a time, each time within the timeout. As many results, in
    /// their order. When one batch has no answer, those after it are not sent.
    pub(super) async fn batch(&self, commands: Vec<Cmd>) -> Vec<Result<Value, Error>> {
        let count = commands.len();
        let mut answers = Vec::with_capacity(count);
        let mut commands = commands.into_iter().peekable();
        while commands.peek().is_some() {
            let batch = commands.by_ref().take(BATCH).collect();
            let Ok(batch) = timeout(self.timeout, self.link.batch(batch)).await else {
                self.link.timed_out();
                answers.resize(count, Err(Error::Timeout(self.timeout)));
                return answers;
            };
            answers.extend(batch.into_iter().map(|answer| answer.and_then(checked)));
        }
        answers
    }
}

/// An error that the server sent is an error, not a value.
fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(Error::Redis(error.into())),
        value => Ok(value),
    }
}
