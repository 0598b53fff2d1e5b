//! Operations for operators of a store: who holds what, and under which limits.

use super::{
    BoxFuture, Key, LimitStream, PauseInfo, Policy, StoreError, StoredKey, limits::ReadyStream,
};
use futures_core::Stream;
use std::{
    env, fs,
    future::{poll_fn, ready},
    iter,
    path::Path,
    pin::Pin,
    process,
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime},
};
use tokio::time::timeout;

/// A boxed stream of keys, as [`Operate::keys`] returns it.
pub type KeyStream = Pin<Box<dyn Stream<Item = Result<StoredKey, StoreError>> + Send>>;

/// A store that reports who holds what, revokes permits, and has limits and pauses that operators set. Both stores of
/// this crate implement it, and so does a `Box` or an `Arc` of such a store.
///
/// Methods that are added later have a default, so a custom store that implements this trait still compiles.
///
/// A permit is identified by its policy, its key and its id. So a route for one account's operators cannot reach
/// another account's permits, whatever id it receives.
///
/// Any number of calls may be made at once. Over Redis, a store sends 32 of them at a time, and
/// the others wait for their turn, first come, first served. The time of a call begins with its turn, so calls do not
/// time out because of each other, and claims are not delayed for long. To bound the wait too, use a timeout:
/// dropping a call's future takes the call out of the queue. A call waits at most a second for other calls whose
/// futures are not polled. Over Redis, a call panics outside of a Tokio runtime.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::builder().holders(true).build();
/// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
///
/// let (policy, key) = (Policy::DEFAULT, "account-42".into());
/// let usage = semaphore.usage(&policy, &key).await.unwrap();
/// let id = &usage.held[0].id;
/// assert!(semaphore.revoke(&policy, &key, id).await.unwrap());
/// assert!(permit.is_lost());
/// assert!(!semaphore.revoke(&policy, &key, id).await.unwrap(), "it is not held any more");
/// # }
/// ```
pub trait Operate: Send + Sync + 'static {
    /// Returns the permits that hold units of the key under the policy now, and the claims that wait for them. Changes
    /// nothing. The call takes time in proportion to the units held and the claims that wait.
    ///
    /// Over Redis the answer is read in pages if it has more than 1,000 of either, so that no other call waits for
    /// long. Then it is no snapshot: a permit that is held for the whole call is in it once, and a permit that comes or
    /// goes may be missing.
    ///
    /// # Errors
    ///
    /// The store's error, if it failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the answer.
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>>;

    /// The keys that have permits or waiters under the policy, or are paused, in any order. A key that is in use for
    /// the whole listing is in it once; a key that comes or goes may be missing. Keys may also be missing if a server
    /// of the store fails over, or gives keys to another server, during the listing.
    ///
    /// # Errors
    ///
    /// An error of the store is the last item.
    fn keys(&self, policy: &Policy) -> KeyStream;

    /// Returns one page of the keys that [`keys`](Self::keys) would stream: the keys found within `time`, about 1,000
    /// at most. `cursor` is the [`next`](KeyPage::next) of the page before, or `None` for the first page. The store
    /// remembers nothing between two pages, so over Redis another process can continue. Returns `Ok(None)` if the
    /// cursor comes from no page of this store.
    ///
    /// A page may be empty although further pages follow. A key that is in use for the whole listing is on one of the
    /// pages, or on two of them.
    ///
    /// The stores of this crate look for keys for `time`, and at most for one call to Redis longer. The default
    /// implementation streams all keys again for each page and skips the keys of earlier pages. That is right for a
    /// store whose stream has a fixed order. A store with many keys should override it.
    ///
    /// # Errors
    ///
    /// The store's error, if it failed. The default implementation also fails if no further key came within `time`.
    ///
    /// # Panics
    ///
    /// The default implementation panics outside of a Tokio runtime with time enabled, and the store in Redis outside
    /// of any Tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the page.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
    ///
    /// let (mut keys, mut cursor) = (Vec::new(), None);
    /// loop {
    ///     let time = Duration::from_millis(250);
    ///     let page = semaphore.keys_page(&Policy::DEFAULT, cursor.as_deref(), time).await.unwrap();
    ///     let page = page.expect("the cursor comes from this store");
    ///     keys.extend(page.keys);
    ///     cursor = page.next;
    ///     if cursor.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(keys.len(), 1);
    /// # drop(permit);
    /// # }
    /// ```
    fn keys_page(
        &self,
        policy: &Policy,
        cursor: Option<&str>,
        time: Duration,
    ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
        let earlier = cursor.map_or(Ok(0), str::parse);
        let keys = self.keys(policy);
        Box::pin(async move {
            match earlier {
                Ok(earlier) => page(keys, earlier, time).await.map(Some),
                Err(_) => Ok(None),
            }
        })
    }

    /// Ends a permit permanently, in whichever process it is held. Its units go to the next waiters at once, and its
    /// holder is notified that it is [lost](super::Permit::lost), as if its lease had ended. [`OnLost`](crate::OnLost)
    /// decides what happens to its request. A claim that waits under this id leaves the queue, and fails with
    /// [`AcquireError::Revoked`](super::AcquireError::Revoked).
    ///
    /// If the permit has several limits, this frees the units of this limit. The units of the other limits are free
    /// when the holder gives up the permit. Over Redis the same applies to units that [`resize`](super::Permit::resize)
    /// has added.
    ///
    /// Returns false if the permit does not exist, also for a text that is no id.
    ///
    /// # Errors
    ///
    /// The store's error, if it failed. Then the permit may have been revoked.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the permit may be revoked although the future is dropped. Repeating the call is safe.
    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>>;

    /// Sets the limit of a key. If `key` is `None`, sets the limit of all keys of the policy that have no separate
    /// limit. It overrides the limits of claims in every process that shares the store, until it is set again. `None`
    /// as `limit` removes it. `note` describes the author or the reason; it may be empty, and its first 128 characters
    /// are kept.
    ///
    /// - The limit of a key takes precedence over the limit of its policy, and both take precedence over the claim's.
    ///   So a policy's limit makes all its keys equal, whatever limits an extractor sets.
    /// - A lower limit ends no permit: nothing is granted until the limit has room. A lost permit is granted again only
    ///   if the new limit has room for it. A higher limit grants to waiting claims at once.
    /// - When the future is ready, the limit is in force in this process. Over Redis other processes follow within a
    ///   third of their lease, and within 5 s, as long as the server answers them. A process that may not read the
    ///   limits, which `RedisSemaphore::check` reports, follows none, so the future does not wait for it.
    /// - A suspended process learns of a limit when it continues, and may grant a claim before that.
    /// - 0 closes a key: all claims, including waiting claims, are refused with
    ///   [`AcquireError::KeyClosed`](super::AcquireError::KeyClosed). A claim that is heavier than the limit is refused
    ///   as [full](super::AcquireError::Full), because it could only wait in vain.
    /// - Permits, refusals, RateLimit fields and [`usage`](Self::usage) show the limit in force.
    /// - A lock's limit is always 1, so no limit can be set for the policy `lock`.
    ///
    /// # Errors
    ///
    /// Returns the store's error if it failed. Then the limit may have been set, and may not be in force in this
    /// process yet. The default implementation returns an error, because the store has no such limits.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the limit may be set although the future is dropped. Repeating the call is safe.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Operate, Policy, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let (policy, key) = (Policy::DEFAULT, "account-42".into());
    /// semaphore.set_limit(&policy, Some(&key), Some(1), "ann: too many exports").await.unwrap();
    ///
    /// let claim = Claim::new("account-42").with_limit(5);
    /// let permit = semaphore.acquire(claim.clone()).await.unwrap();
    /// assert_eq!(permit.limit(), 1);
    /// let refused = semaphore.acquire(claim.clone()).await;
    /// assert!(matches!(refused, Err(AcquireError::Full { limit: 1, .. })));
    ///
    /// semaphore.set_limit(&policy, Some(&key), None, "").await.unwrap();
    /// assert!(semaphore.acquire(claim).await.is_ok());
    /// # }
    /// ```
    fn set_limit(
        &self,
        policy: &Policy,
        key: Option<&Key>,
        limit: Option<u32>,
        note: &str,
    ) -> BoxFuture<Result<(), StoreError>> {
        let _ = (policy, key, limit, note);
        unsupported("the store has no limits that operators set")
    }

    /// The limits that operators have [set](Self::set_limit), in any order. The default implementation returns none.
    ///
    /// # Errors
    ///
    /// An error of the store is the last item.
    fn limits(&self) -> LimitStream {
        Box::pin(ReadyStream(iter::empty()))
    }

    /// Pauses a key under a policy: for `time` from now on no claim of the key is granted, in any process that shares
    /// the store. Holders keep their permits. Claims that can wait join the queue and keep their order; when the pause
    /// ends, the first of them is granted. Other claims fail at once with
    /// [`AcquireError::Paused`](super::AcquireError::Paused), as do claims whose wait would end before the pause.
    ///
    /// - A pause is never shortened: if several overlap, the latest end counts. Only [`resume`](Self::resume) ends a
    ///   pause early.
    /// - A time below 1 ms changes nothing. A time above [`MAX_PAUSE`](super::MAX_PAUSE) is shortened to that.
    /// - `note` describes the author or the reason; its first 128 characters are stored. [`usage`](Self::usage) and
    ///   [`counts`](Self::counts) show the pause.
    /// - When the future is ready, no further claim is granted until the pause ends. While Redis is unavailable, only
    ///   the process that has set the pause observes it, under the policies that admit claims without Redis. A Redis
    ///   that loses its data loses its pauses.
    ///
    /// # Errors
    ///
    /// Returns the store's error if it failed. Then the key may be paused. The default implementation returns an error,
    /// because the store has no pauses.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the key may be paused although the future is dropped. Repeating the call is safe.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Operate, Policy, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let (policy, key) = (Policy::DEFAULT, "upstream-7".into());
    /// semaphore.pause(&policy, &key, Duration::from_secs(30), "429 from the upstream").await.unwrap();
    ///
    /// let claim = Claim::new("upstream-7").with_limit(5);
    /// let refused = semaphore.acquire(claim.clone()).await.unwrap_err();
    /// assert!(matches!(refused, AcquireError::Paused { .. }));
    /// assert_eq!(refused.retry_after(), Some(Duration::from_secs(30)));
    ///
    /// assert!(semaphore.resume(&policy, &key).await.unwrap());
    /// assert!(semaphore.acquire(claim).await.is_ok());
    /// # }
    /// ```
    fn pause(
        &self,
        policy: &Policy,
        key: &Key,
        time: Duration,
        note: &str,
    ) -> BoxFuture<Result<(), StoreError>> {
        let _ = (policy, key, time, note);
        unsupported("the store has no pauses")
    }

    /// Ends a [pause](Self::pause) early, and grants to the waiters that fit. Returns false if the key was not paused.
    ///
    /// # Errors
    ///
    /// Returns the store's error if it failed. Then the pause may have ended. The default implementation returns an
    /// error, because the store has no pauses.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the pause may end although the future is dropped. Repeating the call is safe.
    fn resume(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<bool, StoreError>> {
        let _ = (policy, key);
        unsupported("the store has no pauses")
    }

    /// Returns how many units of each of these keys are held, and how many claims wait, in the order of the keys. These
    /// are the counts of [`usage`](Self::usage) for many keys, without the permits. They are no snapshot, because each
    /// key is read separately.
    ///
    /// # Errors
    ///
    /// The store's error, if it failed. The default implementation returns an error, because the store counts nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore, semaphore::StoredKey};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("ann").with_limit(3).with_weight(2)).await.unwrap();
    ///
    /// let keys = ["ann", "bob"].map(StoredKey::whole);
    /// let counts = semaphore.counts(&Policy::DEFAULT, &keys).await.unwrap();
    /// assert_eq!((counts[0].units, counts[0].waiting), (2, 0));
    /// assert_eq!(counts[1].units, 0);
    /// # drop(permit);
    /// # }
    /// ```
    fn counts(
        &self,
        policy: &Policy,
        keys: &[StoredKey],
    ) -> BoxFuture<Result<Vec<KeyCounts>, StoreError>> {
        let _ = (policy, keys);
        unsupported("the store counts nothing")
    }

    /// Returns the processes that share the store and are alive, in any order. If a process has not described itself,
    /// only its id is known. A process that dies is listed for up to a lease.
    ///
    /// # Errors
    ///
    /// The store's error, if it failed. The default implementation returns an error, because the store does not know
    /// the processes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the answer.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{MemorySemaphore, Operate};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let processes = MemorySemaphore::new().processes().await.unwrap();
    /// assert_eq!(processes[0].pid, Some(std::process::id()));
    /// # }
    /// ```
    fn processes(&self) -> BoxFuture<Result<Vec<Process>, StoreError>> {
        unsupported("the store does not know its processes")
    }
}

fn unsupported<T: Send + 'static>(reason: &'static str) -> BoxFuture<Result<T, StoreError>> {
    Box::pin(ready(Err(StoreError::new(reason))))
}

/// How many units of a key are held, and how many claims wait for it. [`Operate::counts`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyCounts {
    /// The key.
    pub key: StoredKey,
    /// How many units are held.
    pub units: u32,
    /// How many claims wait.
    pub waiting: u32,
    /// The pause of the key, if it is paused.
    pub pause: Option<PauseInfo>,
}

impl KeyCounts {
    /// The counts of a key, for a custom store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::{KeyCounts, StoredKey};
    ///
    /// assert_eq!(KeyCounts::new(StoredKey::whole("ann"), 5, 2).waiting, 2);
    /// ```
    pub fn new(key: StoredKey, units: u32, waiting: u32) -> Self {
        Self {
            key,
            units,
            waiting,
            pause: None,
        }
    }
}

/// Some of the keys of a policy. [`Operate::keys_page`] returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyPage {
    /// The keys, in any order.
    pub keys: Vec<StoredKey>,
    /// The cursor of the next page: text that only the store can read. `None` on the last page.
    pub next: Option<String>,
}

impl KeyPage {
    /// The most keys of a page, approximately.
    pub(crate) const MOST: usize = 1_000;

    /// A page of keys, for a custom store.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::{KeyPage, StoredKey};
    ///
    /// let page = KeyPage::new(vec![StoredKey::whole("ann")], Some("ann".to_owned()));
    /// assert!(page.next.is_some());
    /// ```
    pub fn new(keys: Vec<StoredKey>, next: Option<String>) -> Self {
        Self { keys, next }
    }
}

/// The page that follows the first `earlier` keys of a stream.
async fn page(mut keys: KeyStream, earlier: usize, time: Duration) -> Result<KeyPage, StoreError> {
    let mut page = KeyPage::default();
    let next = |count: usize| Some((earlier + count).to_string());
    let all = async {
        let mut position = 0;
        while let Some(key) = poll_fn(|cx| keys.as_mut().poll_next(cx)).await {
            let key = key?;
            if page.keys.len() == KeyPage::MOST {
                page.next = next(KeyPage::MOST);
                break;
            }
            if position >= earlier {
                page.keys.push(key);
            }
            position += 1;
        }
        Ok(())
    };
    match timeout(time, all).await {
        Ok(done) => done?,
        Err(_) if page.keys.is_empty() => return Err(StoreError::new("no key was listed in time")),
        Err(_) => page.next = next(page.keys.len()),
    }
    Ok(page)
}

macro_rules! through_pointers {
    ($($pointer:ident)*) => { $(
        impl<S: Operate + ?Sized> Operate for $pointer<S> {
            fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
                (**self).usage(policy, key)
            }

            fn keys(&self, policy: &Policy) -> KeyStream {
                (**self).keys(policy)
            }

            fn keys_page(
                &self,
                policy: &Policy,
                cursor: Option<&str>,
                time: Duration,
            ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
                (**self).keys_page(policy, cursor, time)
            }

            fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
                (**self).revoke(policy, key, id)
            }

            fn set_limit(
                &self,
                policy: &Policy,
                key: Option<&Key>,
                limit: Option<u32>,
                note: &str,
            ) -> BoxFuture<Result<(), StoreError>> {
                (**self).set_limit(policy, key, limit, note)
            }

            fn limits(&self) -> LimitStream {
                (**self).limits()
            }

            fn pause(
                &self,
                policy: &Policy,
                key: &Key,
                time: Duration,
                note: &str,
            ) -> BoxFuture<Result<(), StoreError>> {
                (**self).pause(policy, key, time, note)
            }

            fn resume(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<bool, StoreError>> {
                (**self).resume(policy, key)
            }

            fn counts(
                &self,
                policy: &Policy,
                keys: &[StoredKey],
            ) -> BoxFuture<Result<Vec<KeyCounts>, StoreError>> {
                (**self).counts(policy, keys)
            }

            fn processes(&self) -> BoxFuture<Result<Vec<Process>, StoreError>> {
                (**self).processes()
            }
        }
    )* };
}

through_pointers!(Arc Box);

/// The permits and waiters of one key, at one instant unless it has [very many](super::Operate::usage).
/// [`Operate::usage`](super::Operate::usage) returns it.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::builder().holders(true).build();
/// let claim = Claim::new("account-42").with_limit(5).with_label("GET /market/export");
/// let permit = semaphore.acquire(claim).await.unwrap();
///
/// let usage = semaphore.usage(&Policy::DEFAULT, &"account-42".into()).await.unwrap();
/// assert_eq!((usage.limit, usage.units), (Some(5), 1));
/// assert_eq!(usage.held[0].label.as_deref(), Some("GET /market/export"));
/// assert_eq!(usage.held[0].process.pid, Some(std::process::id()));
/// # drop(permit);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Usage {
    /// The time of the answer. Like all times here, it is by the store's clock.
    pub now: SystemTime,
    /// The limit that an operator has [set](super::Operate::set_limit), or else the limit of the latest claim that
    /// holds or waits. `None` if the store knows no limit.
    pub limit: Option<u32>,
    /// True if an operator has set the limit, as far as the process that answers knows.
    pub is_limit_set: bool,
    /// How many units are in use: held, or spent or reserved of a budget.
    pub units: u32,
    /// The budgets of the key, one for each [window](super::Claim::with_window).
    pub budgets: Vec<BudgetUsage>,
    /// The permits that hold these units, the oldest claim first. A permit that has changed its weight is listed once.
    pub held: Vec<PermitInfo>,
    /// The claims that wait, in the order in which they will be served unless others come.
    pub waiting: Vec<PermitInfo>,
    /// The pause of the key, if it is paused.
    pub pause: Option<PauseInfo>,
}

/// The units of one budget that are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUsage {
    /// The [window](super::Claim::with_window) of the budget.
    pub window: Duration,
    /// The units that were used and that time has not returned yet, rounded up.
    pub spent: u32,
    /// The units that running requests may still use.
    pub reserved: u32,
}

impl BudgetUsage {
    /// The usage of a budget: for a custom store.
    pub fn new(window: Duration, spent: u32, reserved: u32) -> Self {
        Self {
            window,
            spent,
            reserved,
        }
    }
}

/// A permit that is held, or a claim that waits for one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PermitInfo {
    /// The store's id of the permit, unique for its key, from the claim to the release. In Redis a permit of several
    /// units that is lost and granted again then has another id. [`Operate::revoke`](super::Operate::revoke) takes this
    /// id.
    pub id: String,
    /// The process that holds the permit, or waits for it.
    pub process: Process,
    /// How many units it holds, or waits for.
    pub weight: u32,
    /// The limit in force when it was claimed, in units. A waiting claim is granted under the limit then in force.
    pub limit: u32,
    /// The [label](super::Claim::with_label) of its claim.
    pub label: Option<String>,
    /// Its [flow](super::Claim::with_flow), if its claim has one.
    pub flow: Option<StoredKey>,
    /// The window of its [budget](super::Claim::with_window). `None` for a limit of concurrency.
    pub window: Option<Duration>,
    /// The units of a budget that it has [settled](super::Permit::settle). `None` if it counts as having used its
    /// estimate.
    pub settled: Option<u32>,
    /// When it was claimed. It may have waited since.
    pub since: SystemTime,
    /// When its lease ends unless it is refreshed. For a waiter, the end of the time for which it counts as alive.
    /// `None` in a store without leases.
    pub ends: Option<SystemTime>,
}

impl Usage {
    /// The usage of a key with `units` held units. Its limit is the limit of the latest claim. See [`PermitInfo::new`]
    /// for an example.
    pub fn new(
        now: SystemTime,
        units: u32,
        mut held: Vec<PermitInfo>,
        waiting: Vec<PermitInfo>,
    ) -> Self {
        held.sort_by_key(|info| info.since);
        let last = held.iter().chain(&waiting).max_by_key(|info| info.since);
        Self {
            now,
            limit: last.map(|info| info.limit),
            is_limit_set: false,
            units,
            budgets: Vec::new(),
            held,
            waiting,
            pause: None,
        }
    }

    /// The same usage under the limit that an operator has set, if any.
    pub(crate) fn under(self, set: Option<u32>) -> Self {
        Self {
            limit: set.or(self.limit),
            is_limit_set: set.is_some(),
            ..self
        }
    }
}

impl PermitInfo {
    /// A permit without further details, for a custom store.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_semaphore::semaphore::{PermitInfo, Process, Usage};
    ///
    /// let now = SystemTime::now();
    /// let mut permit = PermitInfo::new("17", Process::current(), 1, 5, now);
    /// permit.label = Some("nightly".to_owned());
    /// assert_eq!(Usage::new(now, 1, vec![permit], vec![]).limit, Some(5));
    /// ```
    pub fn new(
        id: impl Into<String>,
        process: Process,
        weight: u32,
        limit: u32,
        since: SystemTime,
    ) -> Self {
        Self {
            id: id.into(),
            process,
            weight,
            limit,
            label: None,
            flow: None,
            window: None,
            settled: None,
            since,
            ends: None,
        }
    }
}

/// A process that holds permits of a store, or waits for them.
///
/// A field is `None` if the store does not know it: another process may not have described itself, or too long ago.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Process {
    /// The store's id of the process, unique among all processes that share the store. A process that has opened a
    /// store twice counts as two.
    pub id: String,
    /// The name of the machine.
    pub host: Option<String>,
    /// The number of the process on that machine, or in its container.
    pub pid: Option<u32>,
    /// The name of its program.
    pub name: Option<String>,
    /// The version of this crate that the process uses.
    pub version: Option<String>,
}

static CURRENT: LazyLock<Process> = LazyLock::new(|| Process {
    id: process::id().to_string(),
    host: host(),
    pid: Some(process::id()),
    name: program(),
    version: Some(env!("CARGO_PKG_VERSION").to_owned()),
});

impl Process {
    /// A process with only an id.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::Process;
    ///
    /// assert_eq!(Process::new("web-1").pid, None);
    /// ```
    pub fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            host: None,
            pid: None,
            name: None,
            version: None,
        }
    }

    /// This process. Its id is its number.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::Process;
    ///
    /// assert_eq!(Process::current().pid, Some(std::process::id()));
    /// ```
    pub fn current() -> Self {
        CURRENT.clone()
    }
}

/// The machine's name, from Linux or else from the environment.
fn host() -> Option<String> {
    let file = fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let name = file.map(|text| text.trim().to_owned());
    let name = name.filter(|name| !name.is_empty());
    let variables = ["HOSTNAME", "COMPUTERNAME"].into_iter();
    name.or_else(|| variables.filter_map(|name| env::var(name).ok()).next())
}

fn program() -> Option<String> {
    let path = env::args_os().next()?;
    let name = Path::new(&path).file_stem()?;
    Some(name.to_string_lossy().into_owned())
}
