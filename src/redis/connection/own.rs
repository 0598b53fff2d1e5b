//! A connection of our own, which comes back by itself.
//!
//! redis-rs has one that reconnects too. It waits for that outside of its timeout, keeps a stale
//! error after its last try, and does not reconnect after timeouts or when a primary has become a
//! replica. This one is driven by those who call: one attempt at a time, in a task that outlives
//! the caller who started it; while it runs, callers wait for it, and for a moment after it has
//! failed they are refused at once.

use super::Link;
use crate::{redis::error::Error, semaphore::BoxFuture};
use redis::{
    AsyncConnectionConfig, Client, Cmd, Pipeline, RedisError, Value, aio::MultiplexedConnection,
};
use std::{
    io,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Mutex, task::JoinHandle};

/// How long an attempt to connect may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// How long callers are refused after an attempt has failed.
const PAUSE: Duration = Duration::from_millis(100);

/// As many calls without an answer, and none with one in between, make a connection dead: behind
/// a gateway that swallows packets nothing else tells.
const STRIKES: u32 = 4;

/// See the module docs.
pub(in crate::redis) struct Own(Arc<Shared>);

struct Shared {
    client: Client,
    live: RwLock<Option<Live>>,
    attempt: Mutex<Attempt>,
    strikes: AtomicU32,
}

/// A connection and its number, so that a late failure does not end its successor.
#[derive(Clone)]
struct Live {
    connection: MultiplexedConnection,
    number: u64,
}

#[derive(Default)]
struct Attempt {
    running: Option<JoinHandle<Result<MultiplexedConnection, RedisError>>>,
    failed: Option<(Instant, RedisError)>,
    number: u64,
}

impl Own {
    /// Connects once, so that a wrong address is found at the start.
    pub(in crate::redis) async fn connect(client: Client) -> Result<Self, Error> {
        let shared = Shared {
            client,
            live: RwLock::default(),
            attempt: Mutex::default(),
            strikes: AtomicU32::new(0),
        };
        shared.connection().await?;
        Ok(Self(Arc::new(shared)))
    }
}

impl Link for Own {
    fn send(&self, commands: Vec<Cmd>) -> BoxFuture<Vec<Result<Value, Error>>> {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let count = commands.len();
            match shared.pipeline(commands).await {
                Ok(values) => values.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); count],
            }
        })
    }

    fn is_one_server(&self) -> bool {
        true
    }

    fn timed_out(&self) {
        if self.0.strikes.fetch_add(1, Ordering::Relaxed) + 1 >= STRIKES {
            *self.0.write() = None;
        }
    }
}

impl Shared {
    async fn pipeline(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        let mut live = self.connection().await?;
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let answer = live
            .connection
            .send_packed_commands(&pipeline, 0, count)
            .await;
        self.judge(answer.map_err(Error::Redis), live.number)
    }

    /// The connection there is, or the outcome of the attempt to make one.
    async fn connection(&self) -> Result<Live, Error> {
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let mut attempt = self.attempt.lock().await;
        if let Some(live) = self.live() {
            return Ok(live);
        }
        let connection = attempt
            .finish(&self.client)
            .await
            .map_err(Error::Unavailable)?;
        attempt.number += 1;
        let live = Live {
            connection,
            number: attempt.number,
        };
        self.strikes.store(0, Ordering::Relaxed);
        *self.write() = Some(live.clone());
        Ok(live)
    }

    /// Drops a connection that has shown itself to be broken, or to lead to a replica.
    fn judge<T>(&self, answer: Result<T, Error>, number: u64) -> Result<T, Error> {
        match &answer {
            Err(error) if error.is_disconnect() || error.is_read_only() => {
                let mut live = self.write();
                if live.as_ref().is_some_and(|live| live.number == number) {
                    *live = None;
                }
            }
            _ => self.strikes.store(0, Ordering::Relaxed),
        }
        answer
    }

    fn live(&self) -> Option<Live> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Option<Live>> {
        self.live.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt {
    /// Starts an attempt unless one runs, and waits for its end.
    async fn finish(&mut self, client: &Client) -> Result<MultiplexedConnection, RedisError> {
        if let Some((at, error)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let running = self
            .running
            .get_or_insert_with(|| tokio::spawn(connect(client.clone())));
        let outcome = running
            .await
            .unwrap_or_else(|ended| Err(io::Error::other(ended).into()));
        self.running = None;
        self.failed = outcome
            .as_ref()
            .err()
            .map(|error| (Instant::now(), error.clone()));
        outcome
    }
}

async fn connect(client: Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ATTEMPT))
        .set_response_timeout(None);
    let attempt = client.get_multiplexed_async_connection_with_config(&config);
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
    tokio::time::timeout(ATTEMPT, attempt)
        .await
        .unwrap_or_else(late)
}
