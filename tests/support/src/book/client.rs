//! A client of the programs in this folder (*Redis in Action*, chapter 6), with connections and a separate clock.

use crate::bench::link::{self, MultiplexedConnection};
use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// A wall clock that may be wrong.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock {
    /// How much it is ahead, in seconds.
    pub ahead: f64,
}

impl Clock {
    /// Seconds since 1970, as this clock sees it.
    pub fn now(self) -> f64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        now.expect("it is after 1970").as_secs_f64() + self.ahead
    }
}

/// How a client sleeps between two attempts.
#[derive(Debug, Clone, Copy)]
pub enum Pause {
    /// As one task among others. Tokio's timer rounds a millisecond up to the next.
    Task,
    /// As a thread with no other work.
    Thread,
}

/// A client. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Client {
    pub clock: Clock,
    pub shared: MultiplexedConnection,
    pause: Pause,
    spare: Arc<Spare>,
}

/// Idle connections for one task each, and the client that opens more.
struct Spare {
    client: redis::Client,
    connections: Mutex<Vec<MultiplexedConnection>>,
}

impl Client {
    pub async fn connect(url: &str, clock: Clock, pause: Pause) -> Self {
        let client = link::client(url);
        let shared = link::connect(&client).await;
        let connections = Mutex::default();
        let spare = Arc::new(Spare {
            client,
            connections,
        });
        Self {
            clock,
            shared,
            pause,
            spare,
        }
    }

    /// A connection for one task alone, as `WATCH` needs it. Watched keys belong to the connection, so another task's
    /// transaction on it would end the watch.
    pub async fn alone(&self) -> Alone<'_> {
        let spare = self.spare.lock().pop();
        let connection = match spare {
            Some(connection) => connection,
            None => link::connect(&self.spare.client).await,
        };
        Alone {
            connection: Some(connection),
            spare: &self.spare,
        }
    }

    /// Sleeps for the chapter's pause between two attempts at a lock: a millisecond.
    pub async fn pause(&self) {
        const PAUSE: Duration = Duration::from_millis(1);
        match self.pause {
            Pause::Task => tokio::time::sleep(PAUSE).await,
            Pause::Thread => std::thread::sleep(PAUSE),
        }
    }
}

impl Spare {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<MultiplexedConnection>> {
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that returns to its client when it is dropped.
pub struct Alone<'a> {
    connection: Option<MultiplexedConnection>,
    spare: &'a Spare,
}

const GONE: &str = "it is there until the drop";

impl Deref for Alone<'_> {
    type Target = MultiplexedConnection;

    fn deref(&self) -> &MultiplexedConnection {
        self.connection.as_ref().expect(GONE)
    }
}

impl DerefMut for Alone<'_> {
    fn deref_mut(&mut self) -> &mut MultiplexedConnection {
        self.connection.as_mut().expect(GONE)
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.spare.lock().extend(self.connection.take());
    }
}
