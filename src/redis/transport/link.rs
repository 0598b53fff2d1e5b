//! A connection that reconnects by itself.
//!
//! redis-rs has one that reconnects too. It waits for that outside of its timeout, keeps a stale
//! error after its last try, and does not reconnect after timeouts or when a primary has become a
//! replica. This one is driven by its callers: one attempt at a time, in a task that outlives the
//! caller that started it; while it runs, callers wait for it, and for a moment after it has
//! failed they are refused at once. No caller holds anything that others wait for.

use super::contract::{Replies, checked};
use crate::redis::error::Error;
use parking_lot::Mutex;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, aio::MultiplexedConnection};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, time::timeout_at};

/// How long an attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// How long callers are refused after an attempt has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// As many calls in a row without an answer, each within a whole timeout, make a connection dead:
/// behind a gateway that swallows packets nothing else shows it.
const MAX_TIMEOUTS: u32 = 4;

/// See the module docs.
pub(super) struct Link {
    client: Client,
    timeout: Duration,
    state: Mutex<State>,
    /// How many connections there were, so that a late failure does not end a successor.
    connected: AtomicU32,
    /// Notified at the end of an attempt.
    attempted: Notify,
    consecutive_timeouts: AtomicU32,
}

enum State {
    Idle,
    Connecting,
    Connected(Connection),
    Failed(Instant, RedisError),
}

#[derive(Clone)]
pub(super) struct Connection {
    connection: MultiplexedConnection,
    number: u32,
}

impl Link {
    pub(super) fn new(client: Client, timeout: Duration) -> Self {
        Self {
            client,
            timeout,
            state: Mutex::new(State::Idle),
            connected: AtomicU32::new(0),
            attempted: Notify::new(),
            consecutive_timeouts: AtomicU32::new(0),
        }
    }

    /// Sends commands. As many replies, in their order.
    pub(super) async fn send(
        self: &Arc<Self>,
        commands: Vec<Cmd>,
        deadline: Instant,
    ) -> Result<Replies, Error> {
        // Nothing was asked, so this says nothing of the connection.
        if commands.is_empty() {
            return Ok(Replies::new());
        }
        let Connection {
            mut connection,
            number,
        } = self.connected(deadline).await?;
        // Counted from here: connecting may have used up some of the time.
        let sent = Instant::now();
        let timeout = sent + self.timeout;
        let deadline = deadline.min(timeout);
        let Ok(replies) = timeout_at(deadline.into(), call(&mut connection, commands)).await else {
            if deadline == timeout {
                self.timed_out(number);
            }
            return Err(Error::Timeout(sent.elapsed()));
        };
        self.consecutive_timeouts.store(0, Ordering::Relaxed);
        // One such error means that the connection is useless for every command.
        let is_useless = |error: &&Error| error.is_disconnect() || error.is_read_only();
        let mut errors = replies.iter().filter_map(|reply| reply.as_ref().err());
        if let Some(error) = errors.find(is_useless) {
            self.disconnect(number, error);
        }
        Ok(replies)
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(*self.state.lock(), State::Connected(_))
    }

    /// The connection there is, or the outcome of the attempt to make one.
    pub(super) async fn connected(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        loop {
            // Registered before the state is read, so that no end of an attempt is missed.
            let attempted = self.attempted.notified();
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            if timeout_at(deadline.into(), attempted).await.is_err() {
                return Err(Error::Unavailable(timed_out()));
            }
        }
    }

    /// The connection, or why there is none; `None` while an attempt runs.
    fn outcome(self: &Arc<Self>) -> Option<Result<Connection, Error>> {
        let mut state = self.state.lock();
        match &*state {
            State::Connected(connection) => return Some(Ok(connection.clone())),
            State::Failed(at, error) if at.elapsed() < PAUSE => {
                return Some(Err(Error::Unavailable(error.clone())));
            }
            State::Connecting => return None,
            State::Idle | State::Failed(..) => {}
        }
        *state = State::Connecting;
        tokio::spawn(Arc::clone(self).attempt());
        None
    }

    async fn attempt(self: Arc<Self>) {
        let outcome = connect(&self.client).await;
        let number = self.connected.fetch_add(1, Ordering::Relaxed) + 1;
        self.consecutive_timeouts.store(0, Ordering::Relaxed);
        *self.state.lock() = match outcome {
            Ok(connection) => State::Connected(Connection { connection, number }),
            Err(error) => State::Failed(Instant::now(), error),
        };
        self.attempted.notify_waiters();
    }

    /// A call had no answer in time: perhaps the connection is dead and does not know it.
    fn timed_out(&self, number: u32) {
        if self.connected.load(Ordering::Relaxed) == number
            && self.consecutive_timeouts.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_TIMEOUTS
        {
            self.end(number, State::Idle);
        }
    }

    /// A connection is of no use. To a server that is a replica by now the next attempt is delayed:
    /// it would accept any number of connections, and answer the same to all.
    fn disconnect(&self, number: u32, error: &Error) {
        let next = match error {
            Error::Redis(cause) if error.is_read_only() => {
                State::Failed(Instant::now(), cause.clone())
            }
            _ => State::Idle,
        };
        self.end(number, next);
    }

    fn end(&self, number: u32, next: State) {
        let mut state = self.state.lock();
        if matches!(&*state, State::Connected(connection) if connection.number == number) {
            *state = next;
        }
    }
}

async fn call(connection: &mut MultiplexedConnection, commands: Vec<Cmd>) -> Replies {
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

async fn connect(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ATTEMPT))
        .set_response_timeout(None);
    let attempt = client.get_multiplexed_async_connection_with_config(&config);
    let late = |_| Err(timed_out());
    tokio::time::timeout(ATTEMPT, attempt)
        .await
        .unwrap_or_else(late)
}

fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}
