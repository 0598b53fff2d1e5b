//! The store in Redis, as its users see it, and how it sends what the core need not know of.

use super::{
    connect_error::{Checked, ConnectError, Risk},
    core::Settings,
    driver::{self, Driver, Session, Wire},
    error::{Error, after, by},
    protocol::{Owner, name},
    report::{Reports, given},
    transport::{Replies, Topology, confirmed, wait},
};
use crate::{
    observe::{Answered, Store::Redis as REDIS, called},
    semaphore::{Acquire, BoxFuture, Claims, Key, Policy, Semaphore, SemaphoreId},
    sync::Mutex,
};
use futures_util::future::WeakShared;
use redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};
use std::{
    fmt, io,
    sync::{Arc, OnceLock, atomic::AtomicU32},
    time::{Duration, Instant},
};
use tokio::{runtime::Id, time::sleep};

/// The pause before a request is sent again, as one whose keys are just moving.
const PAUSE: Duration = Duration::from_millis(20);

/// A store of semaphores in Redis: one for each policy and key. See the [module docs](super).
///
/// The store is a cheap handle to clone: layers, locks and background jobs share one. When the last
/// handle and the last permit are dropped, the keeper sends the releases that are pending, and ends.
///
/// # Panics
///
/// The future of [`acquire`](Semaphore::acquire) panics outside of a Tokio runtime with I/O and time
/// enabled.
///
/// # Examples
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_semaphore::{Claim, RedisSemaphore, Semaphore};
///
/// let semaphore = RedisSemaphore::connect("redis://127.0.0.1/").await?;
/// let permit = semaphore.acquire(Claim::new("account-42").with_limit(5)).await?;
/// # drop(permit); Ok(()) }
/// ```
#[derive(Clone)]
pub struct RedisSemaphore(pub(super) Arc<Store>);

impl RedisSemaphore {
    /// Checks what can be known before a claim needs it, for example in a health route: whether the
    /// server answers, is a primary, is recent enough, and permits each command, key and channel
    /// that the store needs. [`Builder::connect`](super::Builder::connect) checks the same.
    ///
    /// On a cluster each node is checked. What one of them refuses is an error; one that does not answer
    /// harms its own keys only, so that is an error if no node works.
    ///
    /// Returns what works but may fail later. Takes a second at most. Runs a few
    /// scripts, `INFO`, and a connection for Pub/Sub. Calls that come while one is running in their runtime share
    /// its answer, so a health route may call it as often as it is called.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::connect`](super::Builder::connect): [`ConnectError::Unavailable`] is what may pass.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run(semaphore: tower_semaphore::RedisSemaphore) {
    /// match semaphore.check().await {
    ///     Ok(risks) => risks.iter().for_each(|risk| eprintln!("warning: {risk}")),
    ///     Err(error) => eprintln!("unhealthy: {error}"),
    /// }
    /// # }
    /// ```
    pub async fn check(&self) -> Result<Vec<Risk>, ConnectError> {
        self.0.check().await
    }

    /// Refuses new claims, ends claims that wait, and releases all permits of this store. New and
    /// waiting claims fail with [`AcquireError::Closed`](crate::AcquireError::Closed).
    ///
    /// Returns the permits that could not be released within `bound`. Each of them is free when its
    /// lease ends.
    ///
    /// The permits of holders that still run are reported lost, so shut the store down after your
    /// server has drained. A claim whose answer has not arrived is refused and released too; its
    /// release is complete when none of its commands can still run, which takes a
    /// [`timeout`](super::Builder::timeout) at most.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the future can be dropped: the shutdown goes on, and only its answer is lost.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn run(semaphore: tower_semaphore::RedisSemaphore) {
    /// let unreleased = semaphore.shutdown(std::time::Duration::from_secs(5)).await;
    /// for permit in unreleased {
    ///     eprintln!("{} is held until its lease ends", permit.semaphore);
    /// }
    /// # }
    /// ```
    pub async fn shutdown(&self, bound: Duration) -> Vec<Unreleased> {
        let unreleased = self.0.driver.shutdown(after(bound)).await.into_iter();
        let unreleased = unreleased.map(|(name, token)| {
            let semaphore = name.to_string();
            let token = given(token);
            Unreleased { semaphore, token }
        });
        unreleased.collect()
    }
}

/// A permit that [`RedisSemaphore::shutdown`] could not release in time.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreleased {
    /// The permit's semaphore: `PREFIX{POLICY:KEY}`, which the names of its keys in Redis begin with.
    pub semaphore: String,
    /// The permit's token; `None` if the answer to its acquire never arrived.
    pub token: Option<u64>,
}

impl Semaphore for RedisSemaphore {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let acquire = match claims.check() {
            Ok(()) => Acquire::pending(Arc::clone(&self.0).acquire(claims.clone())),
            Err(error) => Acquire::ready(Err(error)),
        };
        acquire.counted(REDIS, claims.as_slice())
    }

    fn semaphore_id(&self, policy: &Policy, key: &Key) -> Option<SemaphoreId> {
        Some(self.0.semaphore_id(&self.0.name(policy, key)))
    }
}

impl fmt::Debug for RedisSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSemaphore")
            .field("prefix", &self.0.owner.prefix)
            .field("lease", &self.0.settings.lease)
            .finish_non_exhaustive()
    }
}

/// A permit of the driver.
pub(super) type Held = driver::Held<Wire>;

/// How a request is sent.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) deadline: Instant,
    /// How many replicas must have what it wrote.
    pub(super) replicas: u32,
    /// Whether it is sent again if it may have run, and has no answer.
    pub(super) may_repeat: bool,
}

impl Terms {
    /// Of one that changes nothing.
    pub(super) fn read(deadline: Instant) -> Self {
        Self {
            deadline,
            replicas: 0,
            may_repeat: true,
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

/// A check, in which runtime it runs, and until when it may be joined.
type RunningCheck = (Id, Instant, WeakShared<BoxFuture<Checked>>);

/// What all handles and permits of a store share.
pub(super) struct Store {
    pub(super) owner: Arc<Owner>,
    pub(super) settings: Settings,
    pub(super) topology: Arc<dyn Topology>,
    pub(super) driver: Driver<Wire>,
    pub(super) reports: Arc<Reports>,
    pub(super) running_check: Mutex<Option<RunningCheck>>,
    pub(super) database: i64,
    /// What the server calls itself, once a check has seen it: two stores with other addresses of one server
    /// find out that they are one.
    pub(super) server: OnceLock<String>,
    /// How many claims may wait, and how many do: those in force, and those on trial.
    pub(super) max_waiting: u32,
    pub(super) waiting: [AtomicU32; 2],
}

impl Store {
    /// The name of a semaphore.
    pub(super) fn name(&self, policy: &Policy, key: &Key) -> Arc<str> {
        name(&self.owner.prefix, policy, key)
    }

    /// The id of a semaphore, by its name.
    pub(super) fn semaphore_id(&self, name: &str) -> SemaphoreId {
        match self.server.get() {
            Some(server) => SemaphoreId::new(format!("{server}/{} {name}", self.database)),
            None => SemaphoreId::new(format!("{self:p} {name}")),
        }
    }

    /// How an operator's question is sent.
    pub(super) fn terms(&self) -> Terms {
        Terms::read(Instant::now() + self.settings.budget())
    }

    /// The number of the server that is believed to have a key.
    pub(super) fn server_of(&self, key: &str) -> usize {
        self.driver.server_at(self.topology.slot(key))
    }

    /// Why a server was of no use, if that is known.
    pub(super) fn error(&self, server: usize) -> Option<Error> {
        self.driver.error(server)?.downcast_ref().cloned()
    }

    /// This runtime's connection to a server.
    pub(super) async fn connection(
        &self,
        server: usize,
        until: Instant,
    ) -> Result<Arc<Session>, Error> {
        let connection = self.driver.connection(server, until).await;
        let unknown = || Error::unconnected(io::Error::from(io::ErrorKind::NotConnected));
        connection.ok_or_else(|| self.error(server).unwrap_or_else(unknown))
    }

    /// Sends commands to a server. As many replies.
    pub(super) async fn call(
        &self,
        server: usize,
        commands: Vec<Cmd>,
        terms: Terms,
    ) -> Result<Replies, Error> {
        loop {
            let replies = self.send(server, commands.clone(), terms).await;
            let is_unanswered = replies.as_ref().is_err_and(Error::is_unanswered);
            if !(is_unanswered && terms.may_repeat && terms.left() > PAUSE) {
                return replies;
            }
            // Until its end is noticed a connection that is broken takes what is sent.
            sleep(PAUSE).await;
        }
    }

    async fn send(
        &self,
        server: usize,
        mut commands: Vec<Cmd>,
        terms: Terms,
    ) -> Result<Replies, Error> {
        let connection = self.connection(server, terms.deadline).await?;
        let left = terms.left().min(self.settings.timeout);
        commands.extend(wait(terms.replicas, left / 2));
        let replies = connection.request(commands);
        let replies = by(after(left), Error::Timeout(left), replies).await?;
        Ok(confirmed(replies, terms.replicas))
    }

    /// Sends a command to a server, and reads the reply.
    pub(super) async fn ask<T: FromRedisValue>(
        &self,
        server: usize,
        question: Cmd,
        terms: Terms,
    ) -> Result<T, Error> {
        let mut replies = self.call(server, vec![question], terms).await?;
        let reply = replies.pop().ok_or(Error::Reply)??;
        from_redis_value(reply).map_err(|_| Error::Reply)
    }

    /// Sends a command to the server of a key, and counts that.
    pub(super) async fn request(
        &self,
        verb: &'static str,
        (key, command): (&str, Cmd),
        terms: Terms,
    ) -> Result<Value, Error> {
        let sent = Instant::now();
        let reply = self.follow(key, command, terms).await;
        let answered = match &reply {
            Ok(_) => Answered::Ok,
            Err(Error::Timeout(_)) => Answered::Timeout,
            Err(_) => Answered::Error,
        };
        called(REDIS, verb, 1, sent.elapsed(), answered);
        reply
    }

    /// Sends a command to the server of a key, wherever that has moved.
    async fn follow(&self, key: &str, command: Cmd, terms: Terms) -> Result<Value, Error> {
        let (mut server, mut asking) = (self.server_of(key), None);
        loop {
            let commands = asking.into_iter().chain([command.clone()]).collect();
            let mut replies = self.call(server, commands, terms).await?;
            let error = match replies.pop().ok_or(Error::Reply)? {
                Err(error) if error.is_moving() && terms.left() > PAUSE => error,
                reply => return reply,
            };
            let redirect = error.redirect();
            let next = redirect.and_then(|(address, _)| self.topology.server_at(address, server));
            asking = redirect.and_then(|(_, is_moving)| is_moving.then(|| cmd("ASKING")));
            server = next.unwrap_or(server);
            sleep(PAUSE).await;
        }
    }
}
