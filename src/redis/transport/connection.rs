//! One connection, and whether it is alive.
//!
//! Behind a gateway that swallows packets nothing but silence shows that a connection is dead. So
//! a call that ends without an answer, however soon its caller gave up, is followed by a `PING`.
//! If no answer of any call comes for a whole timeout from then on, the connection is dead.

use super::secret::without_password;
use crate::{
    redis::error::Error,
    semaphore::{
        BoxFuture,
        timer::{Elapsed, timeout},
    },
};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection,
};
use std::{
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// The server's reply to each command, in their order.
pub(in crate::redis) type Replies = Vec<Result<Value, Error>>;

/// See the module docs.
pub(super) struct Connection {
    multiplexed: MultiplexedConnection,
    /// Whether an answer has come since the last look at this.
    answered: AtomicBool,
    /// Whether the server has ever answered on it.
    is_proven: AtomicBool,
}

impl Connection {
    /// Makes a connection. Why there is none is explained by an [attempt](super::attempt) only.
    pub(super) async fn open(client: &Client) -> Result<Self, RedisError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let multiplexed = client
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| without_password(error, client))?;
        Ok(Self {
            multiplexed,
            answered: AtomicBool::new(false),
            is_proven: AtomicBool::new(false),
        })
    }

    /// Sends commands together. As many replies, in their order.
    pub(super) async fn call(&self, commands: Vec<Cmd>) -> Replies {
        let replies = send(self.multiplexed.clone(), commands).await;
        self.answered.store(true, Ordering::Relaxed);
        let is_answer = |reply: &Result<_, Error>| !reply.as_ref().is_err_and(Error::is_disconnect);
        if !self.is_proven() && replies.iter().any(is_answer) {
            self.is_proven.store(true, Ordering::Relaxed);
        }
        replies
    }

    /// Whether the server has ever answered a call on it.
    pub(super) fn is_proven(&self) -> bool {
        self.is_proven.load(Ordering::Relaxed)
    }

    /// Whether an answer has come since this was last asked.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.swap(false, Ordering::Relaxed)
    }

    /// Sends a `PING`. Its replies, or `None` if the connection is dead.
    pub(super) async fn probe(&self, time: Duration) -> Option<Replies> {
        let mut ping = pin!(self.call(vec![redis::cmd("PING")]));
        loop {
            self.answered.store(false, Ordering::Relaxed);
            match timeout(time, &mut ping).await {
                Ok(replies) => break Some(replies),
                Err(_) if self.answered.load(Ordering::Relaxed) => {}
                Err(_) => break None,
            }
        }
    }
}

async fn send(mut connection: MultiplexedConnection, commands: Vec<Cmd>) -> Replies {
    let count = commands.len();
    if let [command] = &commands[..] {
        let reply = connection.send_packed_command(command).await;
        return vec![reply.map_err(Error::Redis).and_then(checked)];
    }
    let mut pipeline = Pipeline::with_capacity(count);
    for command in commands {
        pipeline.add_command(command);
    }
    match connection.send_packed_commands(&pipeline, 0, count).await {
        Ok(values) => values.into_iter().map(checked).collect(),
        Err(error) => vec![Err(Error::Redis(error)); count],
    }
}

/// An error that the server sent is an error, not a value.
pub(super) fn checked(value: Value) -> Result<Value, Error> {
    match value {
        Value::ServerError(error) => Err(Error::Redis(error.into())),
        value => Ok(value),
    }
}

/// The time of a part of connecting is over.
pub(super) fn too_late(late: Elapsed) -> Error {
    late.or(timed_out())
}

pub(super) fn timed_out() -> Error {
    Error::unconnected(io::Error::from(io::ErrorKind::TimedOut))
}
