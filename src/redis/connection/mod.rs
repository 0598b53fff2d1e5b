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

/// One way to a server: a connection of our own, or one that was handed in.
pub(super) trait Link: Send + Sync + 'static {
    /// Sends commands. As many results, in their order.
    fn send(&self, commands: Vec<Cmd>) -> BoxFuture<Vec<Result<Value, Error>>>;

    /// Whether all keys live on one server for sure.
    fn is_one_server(&self) -> bool;

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

    /// Whether all keys live on one server for sure.
    pub(super) fn is_one_server(&self) -> bool {
        self.link.is_one_server()
    }

    /// Sends commands together. As many results, in their order, or none if they did not all come
    /// in time.
    pub(super) async fn send(
        &self,
        commands: Vec<Cmd>,
    ) -> Result<Vec<Result<Value, Error>>, Error> {
        match timeout(self.timeout, self.link.send(commands)).await {
            Ok(answers) => {
                let checked = answers.into_iter().map(|answer| answer.and_then(checked));
                Ok(checked.collect())
            }
            Err(_) => {
                self.link.timed_out();
                Err(Error::Timeout(self.timeout))
            }
        }
    }
}

/// An error that the server sent is an error, not a value.
fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(Error::Redis(error.into())),
        value => Ok(value),
    }
}
