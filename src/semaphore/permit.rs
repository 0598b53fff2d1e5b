//! A permit, and the grant of a store behind it: its levels, its weight, its loss, its end.

use super::{
    AcquireError, Charge, Claim, ClaimError, Few, Loss, MAX_WEIGHT, Policy, SemaphoreId,
    StoreError, Units,
};
use crate::{
    background::{Bounded, Countdown},
    observe::{LostBy, Outcome, PermitCounter, Store, events},
};
use parking_lot::Mutex;
use std::{
    any::Any,
    fmt,
    future::{Future, poll_fn},
    iter,
    ops::Deref,
    pin::Pin,
    sync::{
        Arc, Weak,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::Poll,
    time::Duration,
};

/// A boxed future, as [`Grant::release`] returns it: so that `Grant` needs no
/// type parameter for it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A boxed future of a grant that changes, as [`Grant::resize`] returns it.
pub type Resizing<'a> = Pin<Box<dyn Future<Output = Result<(), AcquireError>> + Send + 'a>>;

/// Units that a store has granted, of one limit or of [several](super::Claims). They are held until the last clone is
/// dropped.
///
/// Dropping a permit queues its release. The drop needs no runtime and never panics. It blocks only if the permit is
/// the last user of a store in Redis and is dropped outside of a running task: then it waits up to 10 ms for the
/// releases that are queued.
///
/// If a process ends before a queued release is sent, the permit stays held until its lease ends. To be sure, await
/// [`release`](Self::release), or `RedisSemaphore::shutdown` for all permits of a store.
///
/// A permit is one grant: all its limits are lost and released together. [`levels`](Self::levels) returns its part of
/// each limit. Its own token, limit, weight and remaining units are those of the narrowest limit.
///
/// A permit that a layer puts into a request's extensions also keeps the permits of the limits outside of that layer.
/// Such a permit is lost as soon as one of these is, and [`release`](Self::release) releases all of them. All other
/// values that it reports belong to its own layer.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::new();
/// let claim = Claim::new("account-42").with_limit(2);
///
/// let permit = semaphore.acquire(claim.clone()).await.unwrap();
/// assert_eq!((permit.limit(), permit.remaining()), (2, 1));
/// let later = semaphore.acquire(claim).await.unwrap();
/// assert!(permit.token() < later.token());
///
/// assert!(permit.release().await, "it was still held");
/// assert!(!permit.release().await, "it is not held any more");
/// # }
/// ```
#[derive(Clone)]
#[must_use = "dropping the permit releases it"]
pub struct Permit {
    own: GrantHandle,
    /// The grants of the limits outside, the nearest first.
    outer: Option<Arc<[GrantHandle]>>,
}

/// The store's side of a permit, with one level for each claim. Dropping the grant must release the permit.
///
/// A custom store implements this trait for the type that it passes to [`Permit::new`]. See
/// [`Acquire`](super::Acquire) for an example. A level is given by its number, from the narrowest limit, 0, to the
/// widest.
pub trait Grant: Send + Sync + 'static {
    /// The current state of a level.
    fn level(&self, level: usize) -> LevelState;

    /// The semaphore that a level counts in: the same id that the store's refusals have
    /// ([`AcquireError::by_semaphore`]). `None` if the store has no ids. Then a layer cannot notice that a limit
    /// outside of it counts in the same semaphore.
    fn semaphore(&self, level: usize) -> Option<SemaphoreId>;

    /// The place where the store reports the loss of this permit.
    fn loss(&self) -> &Loss;

    /// Changes the weight of all these levels, or of none. Added units are granted like a claim that does not wait,
    /// under the limit in force. [`level`](Self::level) returns the new weight before the future is ready. If the
    /// future fails or is dropped early, each level keeps its old weight or has the new one.
    ///
    /// Clones of a permit may change or release it at the same time.
    ///
    /// # Errors
    ///
    /// As [`Permit::resize`] lists them. A store that cannot change a weight fails with [`ClaimError::FixedWeight`].
    fn resize(&self, levels: Vec<Resize>) -> Resizing<'_>;

    /// Releases the permit now. The release is queued when this method returns; the future only
    /// reports whether the permit was still held. A later call reports `false`.
    fn release(&self) -> BoxFuture<bool>;

    /// [Pauses](super::Operate::pause) the key of a level for `time` from now on.
    ///
    /// # Errors
    ///
    /// The store's error if it failed, or if it has no pauses.
    fn pause(&self, level: usize, time: Duration, note: &str) -> BoxFuture<Result<(), StoreError>>;

    /// Reports how many units of a [budget](super::Claim::with_window) the permit has used, in total. Does not block,
    /// and does nothing after the release, or if the level is no budget.
    fn settle(&self, level: usize, used: u32);

    /// True if a response should wait up to 2 ms for the answer to the [release](Self::release) before its head is
    /// sent. A store whose releases cross a network returns true while other processes' claims may be refused until
    /// this release arrives. Other stores return false.
    ///
    /// The layer calls it once per response, which waits only if its body ends in its first frame and nothing
    /// else has a clone of the permit. To bound the wait, the response's future then needs a Tokio runtime with time.
    fn awaits_release(&self) -> bool;
}

/// The state of a level of a permit at one moment. [`Grant::level`] returns it.
///
/// # Examples
///
/// ```
/// use tower_semaphore::semaphore::LevelState;
///
/// let mut level = LevelState::new(3);
/// level.token = Some(17);
/// assert!(!level.is_lost && !level.is_degraded);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelState {
    /// The number of units that the permit holds, 0 after its release. For a lost permit, the number of units that the
    /// store would grant it again.
    pub weight: u32,
    /// The fencing token: greater than that of every earlier permit of the key. `None` if the store has given it no
    /// token, or not yet.
    pub token: Option<u64>,
    /// True if the lease has ended, also before the store has reported the loss in [`Grant::loss`].
    pub is_lost: bool,
    /// True if the permit goes on without its store, which is unavailable. See [`Permit::is_degraded`].
    pub is_degraded: bool,
}

impl LevelState {
    /// A level of this weight, without a token, and neither lost nor degraded. See [`LevelState`] for an example.
    #[inline]
    pub fn new(weight: u32) -> Self {
        Self {
            weight,
            token: None,
            is_lost: false,
            is_degraded: false,
        }
    }
}

/// A new weight for a level of a permit: the argument of [`Grant::resize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resize {
    /// The number of the level.
    pub level: usize,
    /// The number of units that the permit should hold of it, from 1 to [`MAX_WEIGHT`].
    pub weight: u32,
}

/// One grant, which all clones of a permit share.
type GrantHandle = Arc<SharedGrant<dyn Grant>>;

struct SharedGrant<G: ?Sized> {
    terms: Few<LevelTerms>,
    is_shadow: bool,
    attached: Mutex<Option<Box<Attached>>>,
    /// True once a holder has called [`Permit::release`].
    is_released: AtomicBool,
    /// True once the layer that acquired it for a request has dropped its [`LayerPermit`].
    has_left_layer: AtomicBool,
    /// See [`Permit::waited`]. In nanoseconds.
    waited: AtomicU64,
    grant: G,
}

/// How a level was granted.
struct LevelTerms {
    policy: Policy,
    units: Units,
    /// The units of the key that were held at the grant, including this permit's.
    held: u32,
    counter: PermitCounter,
}

/// Boxed, because few permits have a time bound or a kept value.
#[derive(Default)]
struct Attached {
    max_hold: Option<Countdown>,
    kept: Option<Box<dyn Any + Send + Sync>>,
}

impl LevelTerms {
    #[inline]
    fn new(claim: &Claim, held: u32, counter: PermitCounter) -> Self {
        Self {
            policy: claim.policy().clone(),
            units: claim.checked_units(),
            held,
            counter,
        }
    }
}

impl Permit {
    /// A permit for a store's grant. `claims` has each claim, from the narrowest limit to the widest. With each it has
    /// the number of units of the key that were held at the grant, including the permit's own. See
    /// [`Acquire`](super::Acquire) for an example.
    ///
    /// # Panics
    ///
    /// Without a claim.
    pub fn new<'a>(grant: impl Grant, claims: impl IntoIterator<Item = (&'a Claim, u32)>) -> Self {
        let terms = claims.into_iter().map(|(claim, held)| {
            let counter = PermitCounter::begin(Store::Custom, claim.policy().as_str());
            LevelTerms::new(claim, held, counter)
        });
        Self::from_terms(grant, terms.collect(), false)
    }

    /// Like [`new`](Self::new), for a store of this crate. `held_and_limit` returns the units of a level's key that are
    /// held, and its limit in force. Metrics count the permit from now on.
    #[inline(always)]
    pub(crate) fn granted<G: Grant>(
        grant: G,
        store: Store,
        claims: &[Claim],
        held_and_limit: impl Fn(&G, usize) -> (u32, u32),
    ) -> Self {
        let terms = Few::from_fn(claims.len(), |at| {
            let (held, limit) = held_and_limit(&grant, at);
            let counter = PermitCounter::begin(store, claims[at].policy().as_str());
            let mut terms = LevelTerms::new(&claims[at], held, counter);
            terms.units.limit = limit;
            terms
        });
        Self::from_terms(grant, terms, false)
    }

    /// A permit of limits in shadow, which is not counted. No unit is known to be left.
    pub(crate) fn in_shadow(grant: impl Grant, claims: &[Claim]) -> Self {
        let terms = claims.iter().map(|claim| {
            let held = claim.limit().unwrap_or_default();
            LevelTerms::new(claim, held, PermitCounter::default())
        });
        Self::from_terms(grant, terms.collect(), true)
    }

    #[inline(always)]
    fn from_terms(grant: impl Grant, terms: Few<LevelTerms>, is_shadow: bool) -> Self {
        assert!(!terms.is_empty(), "a permit has a level");
        Self {
            own: Arc::new(SharedGrant {
                terms,
                is_shadow,
                attached: Mutex::new(None),
                is_released: AtomicBool::new(false),
                has_left_layer: AtomicBool::new(false),
                waited: AtomicU64::new(0),
                grant,
            }),
            outer: None,
        }
    }

    /// This permit, which also keeps `outer` until the last clone is dropped: it is lost when one of the two is, and
    /// releasing it releases both. All other values that it reports are its own.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let (store, other) = (MemorySemaphore::new(), MemorySemaphore::new());
    /// let claim = Claim::new("account-42").with_limit(1);
    /// let outer = other.acquire(claim.clone()).await.unwrap();
    /// let both = store.acquire(claim).await.unwrap().with_outer(&outer);
    /// drop(outer);
    /// drop(both);
    /// assert_eq!(other.busy_keys(), 0);
    /// # }
    /// ```
    pub fn with_outer(self, outer: &Self) -> Self {
        let is_new = |grant: &&Arc<_>| !self.grants().any(|known| Arc::ptr_eq(known, grant));
        let kept = self.grants().skip(1);
        let all: Vec<_> = kept.chain(outer.grants().filter(is_new)).cloned().collect();
        let outer = Some(all.into());
        let own = self.own;
        Self { own, outer }
    }

    /// This permit without the grants whose [layers](LayerPermit) are done with the request. `None` if none is left.
    pub(crate) fn in_layers(&self) -> Option<Self> {
        let is_in_layer = |shared: &&GrantHandle| !shared.has_left_layer.load(Relaxed);
        let mut grants = self.grants().filter(is_in_layer).cloned();
        let own = grants.next()?;
        let outer: Arc<[_]> = grants.collect();
        let outer = Some(outer).filter(|outer| !outer.is_empty());
        Some(Self { own, outer })
    }

    /// Its own grant, and the grants that it keeps.
    fn grants(&self) -> impl Iterator<Item = &GrantHandle> {
        let outer = self.outer.iter().flat_map(|outer| outer.iter());
        iter::once(&self.own).chain(outer)
    }

    pub(crate) fn level(&self, number: usize) -> Level<'_> {
        self.own.level(number)
    }

    /// The levels of this permit and of the permits that it keeps.
    pub(crate) fn all_levels(&self) -> impl Iterator<Item = Level<'_>> {
        self.grants().flat_map(|shared| shared.all_levels())
    }

    /// The part of the permit under each limit, from the narrowest to the widest.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let account = Claim::new("account-42").with_limit(5);
    /// let fleet = Claim::new("all").with_policy("fleet").with_limit(1_000).with_weight(3);
    /// let permit = MemorySemaphore::new().acquire_all([account, fleet].into()).await.unwrap();
    /// for level in permit.levels() {
    ///     println!("{}: {} of {}, as {:?}", level.policy(), level.weight(), level.limit(), level.token());
    /// }
    /// assert_eq!(permit.levels().map(|level| level.weight()).collect::<Vec<_>>(), [1, 3]);
    /// # }
    /// ```
    pub fn levels(&self) -> impl ExactSizeIterator<Item = Level<'_>> {
        self.own.all_levels()
    }

    /// The time that its claim waited for the grant, from the call of the acquire: zero if the store granted it at
    /// once. Over Redis this includes the round trip.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration; use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let claim = Claim::new("account-42").with_limit(1).with_wait(Duration::from_secs(2));
    /// let first = semaphore.acquire(claim.clone()).await.unwrap();
    /// assert_eq!(first.waited(), Duration::ZERO);
    ///
    /// let waiting = tokio::spawn(semaphore.acquire(claim));
    /// tokio::time::sleep(Duration::from_millis(20)).await;
    /// drop(first);
    /// assert!(waiting.await.unwrap().unwrap().waited() > Duration::ZERO);
    /// # }
    /// ```
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.own.waited.load(Relaxed))
    }

    pub(super) fn set_waited(&self, waited: Duration) {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.own.waited.store(nanos, Relaxed);
    }

    /// The fencing token: a number that grows with every permit granted for the key. A resource
    /// that refuses a lower token than it has seen is safe from a holder that was paused for
    /// longer than its lease.
    ///
    /// A lost permit that is granted again has a new token, unless it lost only units gained by
    /// [`resize`](Self::resize). Returns `None` if the store was unavailable at admission, or if the limit is in
    /// shadow. See [`Permit`] for an example.
    pub fn token(&self) -> Option<u64> {
        self.level(0).token()
    }

    /// The policy of its narrowest limit.
    pub fn policy(&self) -> &Policy {
        &self.own.terms[0].policy
    }

    /// The limit under which the permit was granted, in units. See [`Permit`] for an example.
    pub fn limit(&self) -> u32 {
        self.level(0).limit()
    }

    /// How many units of the key were free when the permit was granted, its own not counted. See
    /// [`Permit`] for an example.
    ///
    /// The number stays as it was at that moment. For a permit that waited, that is the moment of
    /// the grant from the queue.
    pub fn remaining(&self) -> u32 {
        self.level(0).remaining()
    }

    /// The number of units that the permit holds, of its narrowest limit. For a lost permit, the number of units that
    /// the store would grant it again. For a released permit, 0.
    pub fn weight(&self) -> u32 {
        self.level(0).weight()
    }

    /// True if the store was unavailable when the permit was admitted or should have been refreshed, and has not
    /// recorded it since. A store in Redis admits such permits if its `when_unavailable` allows it. With nested limits,
    /// true if one of them is degraded.
    ///
    /// A degraded permit claims its place when the store is back. Then it has a token. Until then its
    /// [`token`](Self::token) is `None`, or the token of the lease that has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
    /// assert!(!permit.is_degraded(), "the memory of this process is always available");
    /// # }
    /// ```
    pub fn is_degraded(&self) -> bool {
        self.all_levels().any(|level| level.state().is_degraded)
    }

    /// True if the permit belongs to a layer [in shadow](crate::ConcurrencyLimitLayer::with_shadow), which admits a
    /// request even if the limit has no room. Such a permit is never lost, and its token is `None` unless its claim was
    /// granted. With several layers, true if all of them are in shadow.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
    /// assert!(!permit.is_shadow(), "no layer has admitted it");
    /// # }
    /// ```
    pub fn is_shadow(&self) -> bool {
        self.grants().all(|shared| shared.is_shadow)
    }

    /// How an admission with this permit is counted.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.is_degraded() {
            true => Outcome::Degraded,
            false => Outcome::Admitted,
        }
    }

    /// Counts the outcome of each level's claim.
    #[inline]
    pub(super) fn count_claims(&self) {
        let outcome = self.outcome();
        let terms = self.own.terms.iter();
        terms.for_each(|terms| terms.counter.count_claim(outcome));
    }

    /// Keeps a value until the permit is released, for all its clones. Only the first call counts.
    pub(crate) fn keep(&self, kept: impl Any + Send + Sync) {
        let mut attached = self.own.attached.lock();
        let kept_before = &mut attached.get_or_insert_default().kept;
        kept_before.get_or_insert_with(|| Box::new(kept));
    }

    /// Changes how many units the permit holds: for work whose cost is known only while it runs,
    /// such as the tokens of an answer that is being streamed.
    ///
    /// Budgets stay as they are: see [`settle`](Self::settle).
    ///
    /// A smaller weight is always granted, and lets the next waiters in. When the future is ready, other processes can
    /// acquire the freed units. A lost permit also gets the smaller weight if the store grants it again. A greater
    /// weight needs room and an empty queue; otherwise the permit stays as it is. Several limits change together, all
    /// or none; [`resize_at`](Self::resize_at) changes one. The permits of the layers outside change too, one after the
    /// other: if one refuses, those before it are changed back.
    ///
    /// The cost of a permit in Redis is bounded, however often it grows. From 16 growths on, the next growth replaces
    /// the two smallest: it also acquires their units, and releases the old ones a moment later. For that moment these
    /// units count twice, so other claims may be refused. If the limit has no room for both, up to 32 growths stay
    /// separate. Beyond that a greater weight is refused until the limit has room for both.
    ///
    /// Changes of one permit are made one after the other; a release waits for none of them. While the store cannot be
    /// reached, its answer to a smaller weight may take as long as the permit's lease; after that time the units are
    /// free anyway. A caller that does not need that answer may drop the future after its first poll.
    ///
    /// # Errors
    ///
    /// - [`AcquireError::Invalid`] for a weight of 0 or above [`MAX_WEIGHT`], for a greater weight above the limit, and
    ///   for a store that cannot change the weight of a permit.
    /// - [`AcquireError::Full`] if the limit has no room for a greater weight.
    /// - [`AcquireError::Closed`] for a greater weight after a shutdown of the store.
    /// - [`AcquireError::Store`] if the store failed with a greater weight, or with
    ///   [`PermitLost`](super::PermitLost) as its source if the permit is released, or is lost and should
    ///   become heavier.
    ///
    /// After an error the permit has the weight that it had.
    ///
    /// # Panics
    ///
    /// For a greater weight, as [`Semaphore::acquire_all`](super::Semaphore::acquire_all) does: the store in
    /// Redis needs a Tokio runtime. A smaller weight needs none.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the permit has its old weight or the new one, at all limits of its layer, and
    /// [`weight`](Self::weight) returns the current one. A smaller weight that waits for no other change counts from
    /// the first poll on.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let claim = Claim::new("account-42").with_limit(5);
    /// let permit = semaphore.acquire(claim.clone().with_weight(5)).await.unwrap();
    ///
    /// permit.resize(3).await.unwrap();
    /// let other = semaphore.acquire(claim.with_weight(2)).await.unwrap();
    /// assert!(permit.resize(4).await.is_err());
    /// assert_eq!(permit.weight(), 3);
    /// # drop(other);
    /// # }
    /// ```
    pub async fn resize(&self, weight: u32) -> Result<(), AcquireError> {
        self.change(weight, |_| true).await
    }

    /// Changes how many units the permit holds under this policy, as [`resize`](Self::resize) does under all.
    ///
    /// # Errors
    ///
    /// Those of [`resize`](Self::resize), and [`AcquireError::Invalid`] with [`ClaimError::NoLevel`] if the permit is
    /// not held under the policy, or only has a [budget](super::Claim::with_window) there.
    ///
    /// # Cancel safety
    ///
    /// As [`resize`](Self::resize).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let account = Claim::new("account-42").with_limit(5);
    /// let fleet = Claim::new("all").with_policy("fleet").with_limit(1_000);
    /// let permit = MemorySemaphore::new().acquire_all([account, fleet].into()).await.unwrap();
    /// permit.resize_at(&"fleet".into(), 30).await.unwrap();
    /// assert_eq!(permit.levels().map(|level| level.weight()).collect::<Vec<_>>(), [1, 30]);
    /// # }
    /// ```
    pub async fn resize_at(&self, policy: &Policy, weight: u32) -> Result<(), AcquireError> {
        self.change(weight, |level| level.policy() == policy).await
    }

    /// Reports how many units of a [budget](super::Claim::with_window) the request has used so far, in total: these
    /// become spent, and time returns them. Call it as often as you like, for example for each piece of an answer. A
    /// total never shrinks, so a smaller one changes nothing.
    ///
    /// The end of the permit frees what is left of its [estimate](super::Claim::with_estimate). Without a settlement
    /// the whole estimate counts as used; a permit that was settled with 0 has used nothing. Use beyond the estimate is
    /// spent too, and delays later claims. After the end of the permit nothing is settled any more.
    ///
    /// Returns true if the permit has an estimate under the policy, also after its end; otherwise the call does
    /// nothing. If the permit has several estimates under the policy, for several keys or layers, each is settled with
    /// the whole total. The call does no I/O, and needs no runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let store = MemorySemaphore::new();
    /// let tokens = Claim::new("key-42").with_policy("tokens").with_limit(1_000);
    /// let tokens = tokens.with_window(Duration::from_secs(3600)).with_estimate(600);
    ///
    /// let permit = store.acquire(tokens.clone()).await.unwrap();
    /// assert!(store.acquire(tokens.clone()).await.is_err(), "600 are reserved");
    /// assert!(permit.settle("tokens", 150));
    /// drop(permit);
    /// assert!(store.acquire(tokens).await.is_ok(), "150 are spent");
    /// # }
    /// ```
    pub fn settle(&self, policy: impl Into<Policy>, used: u32) -> bool {
        let policy = policy.into();
        let mut has_estimate = false;
        for level in self.all_levels() {
            if *level.policy() == policy && level.has_estimate() {
                level.settle(used);
                has_estimate = true;
            }
        }
        has_estimate
    }

    /// Pauses the permit's key under this policy for `time` from now on, in all processes that share the store. See
    /// [`Operate::pause`](super::Operate::pause) for the rules. The permit itself stays held.
    ///
    /// Call this when an upstream asks its clients to wait: every process stops at once, and waiters keep their order.
    /// [`with_cooldown`](crate::ConcurrencyLimitLayer::with_cooldown) does so for `Retry-After`.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] with [`ClaimError::NoLevel`] if the permit is not held under the policy, and
    /// [`AcquireError::Store`] if the store failed or has no pauses. If the store failed, the key may be paused.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the key may be paused although the future is dropped. Repeating the call is safe.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let claim = Claim::new("upstream-7").with_limit(5);
    /// let permit = semaphore.acquire(claim.clone()).await.unwrap();
    ///
    /// permit.pause("concurrency", Duration::from_secs(30), "429 from the upstream").await.unwrap();
    /// let refused = semaphore.acquire(claim).await;
    /// assert!(matches!(refused, Err(AcquireError::Paused { .. })));
    /// # }
    /// ```
    pub async fn pause(
        &self,
        policy: impl Into<Policy>,
        time: Duration,
        note: &str,
    ) -> Result<(), AcquireError> {
        let policy = policy.into();
        let mut levels = self.all_levels();
        let level = levels.find(|level| *level.policy() == policy);
        let paused = level.ok_or(ClaimError::NoLevel)?.pause(time, note);
        Ok(paused.await?)
    }

    async fn change(
        &self,
        weight: u32,
        is_meant: impl Fn(Level<'_>) -> bool,
    ) -> Result<(), AcquireError> {
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(ClaimError::Weight { weight }.into());
        }
        let (mut growing, mut shrinking) = (Vec::new(), Vec::new());
        for shared in self.grants() {
            let meant = shared.all_levels().filter(|level| is_meant(*level));
            let meant = meant.filter(|level| level.window().is_none());
            let (more, less): (Vec<_>, Vec<_>) = meant.partition(|level| level.weight() < weight);
            growing.extend((!more.is_empty()).then_some((shared, more)));
            shrinking.extend((!less.is_empty()).then_some((shared, less)));
        }
        if growing.is_empty() && shrinking.is_empty() {
            return Err(ClaimError::NoLevel.into());
        }
        // Growths come first: only a growth can be refused, and added units can always be returned.
        let mut grown: Vec<(&GrantHandle, _)> = Vec::new();
        for (shared, levels) in growing {
            let before = levels.iter().map(|level| level.resize(level.weight()));
            let before: Vec<_> = before.collect();
            let levels = levels.iter().map(|level| level.resize(weight));
            if let Err(error) = shared.grant.resize(levels.collect()).await {
                for (shared, before) in grown {
                    // An error is ignored: a released permit has no units to return.
                    let _ = shared.grant.resize(before).await;
                }
                return Err(error);
            }
            grown.push((shared, before));
        }
        for (shared, levels) in shrinking {
            let levels = levels.iter().map(|level| level.resize(weight));
            shared.grant.resize(levels.collect()).await?;
        }
        Ok(())
    }

    /// True if the lease has ended while this permit was still in use, so that another holder may have its units. See
    /// [`lost`](Self::lost) for an example.
    ///
    /// False again once the store has granted a lost permit again.
    pub fn is_lost(&self) -> bool {
        self.grants().any(|shared| shared.is_lost())
    }

    /// Waits until the permit is lost. A release does not complete the future.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tower_semaphore::Permit;
    /// async fn export(permit: Permit) -> Result<(), &'static str> {
    ///     tokio::select! {
    ///         () = write_rows() => Ok(()),
    ///         () = permit.lost() => Err("the permit was lost"),
    ///     }
    /// }
    /// # async fn write_rows() {}
    /// # drop(export);
    /// ```
    pub async fn lost(&self) {
        if self.outer.is_none() {
            return self.own.grant.loss().wait().await;
        }
        let losses = self
            .grants()
            .map(|shared| Box::pin(shared.grant.loss().wait()));
        let mut losses: Vec<_> = losses.collect();
        poll_fn(|cx| {
            let mut polled = losses.iter_mut().map(|loss| loss.as_mut().poll(cx));
            match polled.any(|loss| loss.is_ready()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// Ends the permit `max_hold` from now, whatever its holder does then: the permit is released
    /// and reported lost. Only the first call counts.
    ///
    /// The time is counted in the current runtime and, after that has ended, on a thread of this
    /// crate. While the runtime is not driven, or all its workers are blocked, the permit ends late.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration; use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let claim = Claim::new("account-42").with_limit(1);
    /// let permit = MemorySemaphore::new().acquire(claim).await.unwrap();
    /// permit.end_after(Duration::from_millis(10));
    /// permit.lost().await;
    /// assert!(!permit.release().await);
    /// # }
    /// ```
    pub fn end_after(&self, max_hold: Duration) {
        for shared in self.grants() {
            let start = || Countdown::start(Arc::downgrade(shared), max_hold);
            let mut attached = shared.attached.lock();
            let countdown = &mut attached.get_or_insert_default().max_hold;
            countdown.get_or_insert_with(start);
        }
    }

    /// Releases the permit for all its clones and reports it lost.
    pub(crate) fn end(&self, by: LostBy) {
        self.grants().for_each(|shared| shared.end_by(by));
    }

    /// Releases the permit for all its clones, and reports whether it was still held. See
    /// [`Permit`] for an example.
    ///
    /// Returns `false` if its lease had ended, or if it was released before. Dropping the last clone also releases the
    /// permit. Await this method if you need the answer, or if the process may end right after.
    ///
    /// The answer comes from the store. While the store cannot be reached, or while the permit's slot moves in a
    /// cluster, the answer may take as long as the permit's lease. After that time the permit has ended anyway, and the
    /// answer is `false`, whether it was held until then or not.
    ///
    /// # Cancel safety
    ///
    /// The call queues the release before the first poll; dropping the future loses only the
    /// answer.
    pub fn release(&self) -> impl Future<Output = bool> + Send + use<> {
        // Queues all releases before it awaits the first.
        let releases: Vec<_> = self.grants().map(|shared| shared.release()).collect();
        async move {
            let mut was_held = true;
            for release in releases {
                was_held &= release.await;
            }
            was_held
        }
    }

    /// True if the permit has only this many clones, and the grant is neither released nor lost.
    pub(crate) fn is_held_by(&self, clones: usize) -> bool {
        Arc::strong_count(&self.own) == clones && self.weight() > 0 && !self.own.is_lost()
    }

    /// True if a response should wait for the answer to the release. A permit that keeps others would release them too.
    pub(crate) fn awaits_release(&self) -> bool {
        self.outer.is_none() && self.own.grant.awaits_release()
    }

    /// A weak reference, which does not hold the permit. It does not include the limits outside.
    pub(crate) fn downgrade(&self) -> WeakPermit {
        WeakPermit(Arc::downgrade(&self.own))
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("token", &self.token())
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// The clone of a permit that its layer holds, from the grant to the end of the response. The request is under the
/// layer's limit for that time only: clones in its extensions may outlive it, and so may clones of its handler.
pub(crate) struct LayerPermit(Permit);

impl LayerPermit {
    pub(crate) fn new(permit: Permit) -> Self {
        Self(permit)
    }
}

impl Deref for LayerPermit {
    type Target = Permit;

    fn deref(&self) -> &Permit {
        &self.0
    }
}

impl Drop for LayerPermit {
    fn drop(&mut self) {
        self.0.own.has_left_layer.store(true, Relaxed);
    }
}

/// A permit, if it still exists.
pub(crate) struct WeakPermit(Weak<SharedGrant<dyn Grant>>);

impl WeakPermit {
    pub(crate) fn upgrade(&self) -> Option<Permit> {
        let own = self.0.upgrade()?;
        Some(Permit { own, outer: None })
    }
}

/// The part of a permit under one limit. [`Permit::levels`] returns it, and has an example.
#[derive(Clone, Copy)]
pub struct Level<'a> {
    shared: &'a SharedGrant<dyn Grant>,
    number: usize,
}

impl<'a> Level<'a> {
    fn terms(self) -> &'a LevelTerms {
        &self.shared.terms[self.number]
    }

    /// The policy under which this part was granted.
    pub fn policy(self) -> &'a Policy {
        &self.terms().policy
    }

    fn state(self) -> LevelState {
        self.shared.grant.level(self.number)
    }

    fn resize(self, weight: u32) -> Resize {
        let level = self.number;
        Resize { level, weight }
    }

    fn has_estimate(self) -> bool {
        let budget = self.terms().units.budget;
        budget.is_some_and(|budget| budget.charge == Charge::Settlement)
    }

    pub(crate) fn settle(self, used: u32) {
        self.shared.grant.settle(self.number, used);
    }

    pub(crate) fn pause(self, time: Duration, note: &str) -> BoxFuture<Result<(), StoreError>> {
        self.terms().counter.paused();
        self.shared.grant.pause(self.number, time, note)
    }

    /// As [`Permit::limit`].
    pub fn limit(self) -> u32 {
        self.terms().units.limit
    }

    /// The window of the budget. `None` for a limit of concurrency. See
    /// [`Claim::with_window`](super::Claim::with_window).
    pub fn window(self) -> Option<Duration> {
        let budget = self.terms().units.budget;
        budget.map(|budget| budget.window.time())
    }

    /// As [`Permit::weight`]. Of a budget, the number of units that were spent or reserved at the grant.
    pub fn weight(self) -> u32 {
        self.state().weight
    }

    /// As [`Permit::remaining`].
    pub fn remaining(self) -> u32 {
        self.limit().saturating_sub(self.terms().held)
    }

    /// As [`Permit::token`].
    pub fn token(self) -> Option<u64> {
        self.state().token
    }

    /// The semaphore that it counts in, if its store has ids.
    pub(crate) fn semaphore(self) -> Option<SemaphoreId> {
        self.shared.grant.semaphore(self.number)
    }

    /// True if its limit is in shadow.
    pub(crate) fn is_shadow(self) -> bool {
        self.shared.is_shadow
    }

    /// True until it is released.
    pub(crate) fn is_held(self) -> bool {
        self.weight() > 0
    }

    /// Ends this level after an operator's revocation. The end is counted once: an earlier loss, or a concurrent end
    /// that came first, takes precedence.
    pub(crate) fn revoked(self) {
        self.shared.drop_kept();
        self.count_end(LostBy::Revoked, self.shared.is_lost());
        self.shared.report_lost();
    }

    /// Counts the end of the level, once. Also counts a loss, unless the units were lost before (`is_gone`).
    fn count_end(self, by: LostBy, is_gone: bool) {
        let terms = self.terms();
        if let Some(store) = terms.counter.end().filter(|_| !is_gone) {
            terms.counter.lost(by);
            events::lost(store, terms.policy.as_str(), by, self.token());
        }
    }
}

impl fmt::Debug for Level<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Level")
            .field("policy", self.policy())
            .field("limit", &self.limit())
            .field("weight", &self.weight())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// Ends a permit that has been held for its longest time.
impl Bounded for SharedGrant<dyn Grant> {
    fn left(&self) -> Duration {
        Duration::ZERO
    }

    fn end(&self) {
        self.end_by(LostBy::Bound);
    }
}

impl SharedGrant<dyn Grant> {
    fn level(&self, number: usize) -> Level<'_> {
        Level {
            shared: self,
            number,
        }
    }

    fn all_levels(&self) -> impl ExactSizeIterator<Item = Level<'_>> {
        (0..self.terms.len()).map(|number| self.level(number))
    }

    fn is_lost(&self) -> bool {
        self.grant.loss().is_set() || self.all_levels().any(|level| level.state().is_lost)
    }

    fn release(&self) -> BoxFuture<bool> {
        for terms in self.terms.iter() {
            terms.counter.end();
        }
        self.drop_kept();
        self.is_released.store(true, Release);
        self.grant.release()
    }

    /// Does nothing if a holder has released the permit, because such a holder loses nothing.
    ///
    /// Reports the loss again after the release: between the two reports the store may have granted
    /// the permit again.
    fn end_by(&self, by: LostBy) {
        if self.is_released.load(Acquire) {
            return;
        }
        self.drop_kept();
        let is_lost = self.is_lost();
        for level in self.all_levels() {
            level.count_end(by, is_lost || !level.is_held());
        }
        self.report_lost();
        drop(self.grant.release());
        self.report_lost();
    }

    /// Does nothing in shadow, because a limit in shadow must not affect the request.
    fn report_lost(&self) {
        if !self.is_shadow {
            self.grant.loss().set();
        }
    }

    fn drop_kept(&self) {
        let take = |attached: &mut Box<Attached>| attached.kept.take();
        let kept = self.attached.lock().as_mut().and_then(take);
        // Dropped without the lock, because its `Drop` runs other code.
        drop(kept);
    }
}
