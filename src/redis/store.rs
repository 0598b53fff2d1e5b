//! The store in Redis, as its users see it.

use super::{
    driver::{self, Driver, Wire},
    error::{CallError, deadline_after},
    fault::{ConnectError, Origin},
    protocol::semaphore_name,
    report::{Reports, known_token},
    risk::{Checked, Risk},
    transport::Topology,
    turns::Turns,
};
use crate::{
    observe::Store::Redis as REDIS,
    semaphore::{
        Acquire, AcquireError, BoxFuture, Claim, Claims, Key, Policy, Semaphore, SemaphoreId,
        StoreError,
    },
    sync::Mutex,
};
use futures_util::future::WeakShared;
use proto::{core::CoreSettings, verbs::Owner};
use std::{
    fmt, ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tokio::runtime::Id;

/// A store of semaphores in Redis: one for each policy and key. See the [module docs](super).
///
/// The store is a cheap handle to clone: layers, locks and background jobs share one. When the last
/// handle and the last permit are dropped, the keeper sends the releases that are pending, and ends.
///
/// The keeper's thread ends with the process. So the drop of the last handle or permit waits up to 10 ms until all
/// releases are sent. In a task of a running runtime it does not wait. If a process keeps its handles in a `static` or
/// calls `std::process::exit`, they are never dropped. Then await [`Permit::release`](crate::Permit::release) or
/// [`shutdown`](Self::shutdown) before the process ends.
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
    /// Checks the servers before a claim needs them, for example in a health route: whether the server answers, is a
    /// primary, is recent enough, and permits each command, key and channel that the store needs.
    /// [`Builder::connect`](super::Builder::connect) checks the same.
    ///
    /// On a cluster each node is checked. A refusal by any node is an error. A node that does not answer affects only
    /// its own keys, so that is an error only if no node works.
    ///
    /// Returns the problems that may make the store fail later. Takes a second at most. Runs a few scripts and `INFO`,
    /// and opens a connection for Pub/Sub. Calls during a running check of the same runtime share its answer, so a
    /// health route may call this method for each of its requests.
    ///
    /// # Errors
    ///
    /// Those of [`Builder::connect`](super::Builder::connect). The kind is
    /// [`Kind::Unavailable`](super::Kind::Unavailable) if the cause may pass.
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
    /// The permits of holders that still run are reported lost, so shut the store down after your server has drained. A
    /// claim whose answer has not arrived is refused and released too. Its release is complete when none of its
    /// commands can still run, which takes a [`timeout`](super::Builder::timeout) at most.
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
        let unreleased = self.0.driver.shutdown(deadline_after(bound)).await;
        let unreleased = unreleased.into_iter().map(|(name, token)| {
            let semaphore = name.to_string();
            let token = known_token(token);
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
    /// The permit's token. `None` if no grant of these units is known: the answer to the acquire has not arrived, or
    /// the units were given up while the permit went on.
    pub token: Option<u64>,
}

impl Semaphore for RedisSemaphore {
    fn acquire_all(&self, claims: Claims) -> Acquire {
        let acquire = match claims.check_with_budgets() {
            Ok(()) if !self.0.settings.claims => Acquire::ready(Err(AcquireError::Closed)),
            Ok(()) => Acquire::pending(Arc::clone(&self.0).acquire(claims.clone())),
            Err(error) => Acquire::ready(Err(error)),
        };
        acquire.counted(REDIS, claims.as_slice())
    }
}

impl fmt::Debug for RedisSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSemaphore")
            .field("prefix", &self.0.owner.configured_prefix())
            .field("lease", &self.0.settings.lease)
            .finish_non_exhaustive()
    }
}

/// A permit of the driver.
pub(super) type RedisPermit = driver::HeldPermit<Wire>;

/// A running check: its runtime, the time until which it may be joined, and its future.
type RunningCheck = (Id, Instant, WeakShared<BoxFuture<Checked>>);

/// The state that all handles and permits of a store share.
pub(super) struct Store {
    pub(super) owner: Arc<Owner>,
    pub(super) settings: CoreSettings,
    pub(super) topology: Arc<dyn Topology>,
    pub(super) driver: Driver<Wire>,
    pub(super) reports: Arc<Reports>,
    pub(super) running_check: Mutex<Option<RunningCheck>>,
    pub(super) database: i64,
    /// The setting that has the user and the password.
    pub(super) login: &'static str,
    /// The `run_id` or the address of the home server, from the first check that learned it. Two handles with the same
    /// value, database and prefix are one store.
    pub(super) server: OnceLock<String>,
    /// How many claims of limits in force may wait. The same number of claims of limits in shadow may wait too.
    pub(super) max_waiting: u32,
    /// How many claims wait: those of limits in force, and those of limits in shadow.
    pub(super) waiting: [AtomicU32; 2],
    pub(super) turns: Turns,
    /// The longest window of its claims so far, in ms.
    pub(super) longest_window_ms: AtomicU32,
}

impl Store {
    /// The origin of this store's failures.
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin {
            role: self.topology.role(),
            login: self.login,
            prefix: self.owner.configured_prefix(),
        }
    }

    /// A failure as users see it.
    pub(super) fn failure(&self, error: &CallError) -> StoreError {
        StoreError::new(self.origin().error(error))
    }

    /// The name of a semaphore. The names of the key's budgets begin with it.
    pub(super) fn name(&self, policy: &Policy, key: &Key) -> Arc<str> {
        semaphore_name(&self.owner.prefix, policy, key)
    }

    /// The name of the semaphore or the budget of a claim.
    pub(super) fn name_of(&self, claim: &Claim) -> Arc<str> {
        let name = self.name(claim.policy(), claim.key());
        match claim.checked_units().budget {
            Some(budget) => format!("{name}{}", budget.window.time().as_millis()).into(),
            None => name,
        }
    }

    pub(super) fn longest_window(&self) -> Duration {
        Duration::from_millis(self.longest_window_ms.load(Relaxed).into())
    }

    /// The id of a semaphore, by its name.
    pub(super) fn semaphore_id(&self, name: &str) -> SemaphoreId {
        match self.server.get() {
            Some(server) => SemaphoreId::new((server, self.database, name)),
            None => SemaphoreId::new((ptr::from_ref(self).addr(), name)),
        }
    }
}
