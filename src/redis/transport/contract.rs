//! What every transport does.

use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::{Cmd, Value};
use std::time::Instant;

/// The server's reply to each command, in their order.
pub(in crate::redis) type Replies = Vec<Result<Value, Error>>;

/// A way to a server: connections of our own, or one that was supplied.
pub(in crate::redis) trait Transport: Send + Sync + 'static {
    /// Waits for a connection; `None` if there is one. So that the time of a call begins when it can
    /// be sent.
    fn ready(&self, deadline: Instant) -> Option<BoxFuture<Result<(), Error>>>;

    /// Sends commands together. As many replies, in their order. Each comes within a timeout of
    /// the sending, and by the deadline, or is an error.
    fn send(&self, commands: Vec<Cmd>, deadline: Instant) -> BoxFuture<Result<Replies, Error>>;

    /// Whether all keys live on one server for sure.
    fn is_one_server(&self) -> bool;
}

/// An error that the server sent is an error, not a value.
pub(super) fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(Error::Redis(error.into())),
        value => Ok(value),
    }
}
