//! Why a claim is granted no permit.

use super::{Policy, SemaphoreId};
use crate::observe::Outcome;
use std::{error::Error, fmt, io, sync::Arc, time::Duration};

/// An error of any type, as the layers of tower box it.
pub(crate) type BoxError = Box<dyn Error + Send + Sync>;

/// Why a claim was granted no permit.
///
/// A refusal, a mistake in the claim and a failure of the store are distinct variants; see
/// [`is_refusal`](Self::is_refusal). The layers put a copy into the extensions of the response
/// with which they refuse a request.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{AcquireError, Claim, MemorySemaphore, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let closed = Claim::new("account-42").with_limit(0);
/// let error = MemorySemaphore::new().acquire(closed).await.unwrap_err();
/// assert!(error.is_refusal());
/// assert_eq!(error.to_string(), "limit reached: 0 of 0 units are held");
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AcquireError {
    /// The limit has no room, or other claims wait in the key's queue: a claim that does not wait never passes them. In
    /// the second case `held` may be lower than `limit`. A custom store refuses with [`AcquireError::full`].
    #[non_exhaustive]
    Full {
        /// The policy whose limit has no room.
        policy: Policy,
        /// The key's limit in force, in units.
        limit: u32,
        /// The number of units that were held when the store decided; of a budget, those that were spent or reserved.
        /// It equals `limit` if the store does not know: after a wait or with a full queue, for a request with several
        /// claims.
        held: u32,
        /// The window of the budget that refused. `None` for a limit of concurrency.
        window: Option<Duration>,
        /// How long it takes until time has returned the units of a budget. `None` if the limit is no budget, if other
        /// claims wait, or if only the ends of permits or their settlements can make room.
        retry_after: Option<Duration>,
        /// The semaphore that refused. `None` if its store has no ids.
        semaphore: Option<SemaphoreId>,
    },
    /// The wait ended before the claim was granted. A custom store refuses with [`AcquireError::timed_out`].
    #[non_exhaustive]
    TimedOut {
        /// The policy whose limit had no room.
        policy: Policy,
        /// The key's limit in force, in units.
        limit: u32,
        /// The window of the budget that refused. `None` for a limit of concurrency.
        window: Option<Duration>,
        /// The semaphore that refused. `None` if its store has no ids.
        semaphore: Option<SemaphoreId>,
    },
    /// An operator has closed the key: its limit, or that of its policy, is [set](super::Operate::set_limit) to 0.
    /// Retries fail until an operator opens the key.
    #[non_exhaustive]
    KeyClosed {
        /// The policy under which it is closed.
        policy: Policy,
    },
    /// The number of claims that wait for the key before this one has reached its
    /// [`with_max_waiting`](super::Claim::with_max_waiting). A custom store refuses with [`AcquireError::queue_full`].
    #[non_exhaustive]
    QueueFull {
        /// The policy under which the queue is full.
        policy: Policy,
        /// The key's limit in force, in units.
        limit: u32,
        /// The window of the budget that refused. `None` for a limit of concurrency.
        window: Option<Duration>,
        /// The semaphore that refused. `None` if its store has no ids.
        semaphore: Option<SemaphoreId>,
    },
    /// The key is [paused](super::Operate::pause) under one policy, and the claim does not wait until the pause ends:
    /// it does not wait at all, or its wait would end before. A custom store refuses with [`AcquireError::paused`].
    #[non_exhaustive]
    Paused {
        /// The policy under which the key is paused.
        policy: Policy,
        /// The key's limit in force, in units.
        limit: u32,
        /// The window of the budget that refused. `None` for a limit of concurrency.
        window: Option<Duration>,
        /// How long the pause lasts from now on.
        retry_after: Duration,
        /// The semaphore that refused. `None` if its store has no ids.
        semaphore: Option<SemaphoreId>,
    },
    /// The number of claims of this process that wait in the store, over all keys, has reached the store's
    /// `max_waiting_total`.
    Overloaded,
    /// An operator has [revoked](super::Operate::revoke) the claim while it waited.
    Revoked,
    /// No store can grant the claim.
    #[non_exhaustive]
    Invalid {
        /// The mistake in the claim.
        source: ClaimError,
    },
    /// The store failed, so it is unknown whether the limit had room.
    #[non_exhaustive]
    Store {
        /// The store's failure.
        source: StoreError,
    },
    /// The store is shutting down and admits no claim.
    Closed,
}

impl AcquireError {
    /// True if the store worked and refused the claim: [`Full`](Self::Full), [`TimedOut`](Self::TimedOut),
    /// [`QueueFull`](Self::QueueFull), [`Paused`](Self::Paused) or [`Revoked`](Self::Revoked). The layers answer these
    /// with status 429, and a client may try again. [`KeyClosed`](Self::KeyClosed) is none of these.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::AcquireError;
    ///
    /// assert!(AcquireError::Revoked.is_refusal());
    /// assert!(!AcquireError::Closed.is_refusal());
    /// ```
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Full { .. }
                | Self::TimedOut { .. }
                | Self::QueueFull { .. }
                | Self::Paused { .. }
                | Self::Revoked
        )
    }

    /// The time after which another attempt may succeed, in whole seconds. `None` if the claim has to change first, or
    /// an operator has [closed the key](Self::KeyClosed).
    ///
    /// It is the rest of a [pause](Self::Paused), or the time until a [budget](super::Claim::with_window) has room,
    /// rounded up. Otherwise it is 1 s today, because a store does not know how long permits are held. The layers do:
    /// their [`Rejection::retry_after`](crate::Rejection::retry_after) gives each client a later slot of a schedule.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::{AcquireError, semaphore::ClaimError};
    ///
    /// assert_eq!(AcquireError::Overloaded.retry_after(), Some(Duration::from_secs(1)));
    /// assert_eq!(AcquireError::from(ClaimError::EmptyKey).retry_after(), None);
    /// ```
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Invalid { .. } | Self::KeyClosed { .. } => None,
            Self::Paused { retry_after, .. }
            | Self::Full {
                retry_after: Some(retry_after),
                ..
            } => Some(whole_seconds(*retry_after)),
            _ => Some(Duration::from_secs(1)),
        }
    }

    /// Adds the semaphore's id to a refusal. Other errors stay unchanged. See
    /// [`full`](Self::full) for an example.
    #[must_use]
    pub fn by_semaphore(mut self, id: SemaphoreId) -> Self {
        if let Self::Full { semaphore, .. }
        | Self::TimedOut { semaphore, .. }
        | Self::QueueFull { semaphore, .. }
        | Self::Paused { semaphore, .. } = &mut self
        {
            *semaphore = Some(id);
        }
        self
    }

    /// Adds the window of a budget to a [`Full`](Self::Full). Other errors stay unchanged.
    pub(crate) fn of_window(mut self, time: Option<Duration>) -> Self {
        if let Self::Full { window, .. } = &mut self {
            *window = time;
        }
        self
    }

    /// The policy and the limit in force of a refusal, and its semaphore if that is known.
    fn refusing(&self) -> Option<(&Policy, u32, Option<SemaphoreId>)> {
        match self {
            Self::Full {
                policy,
                limit,
                semaphore,
                ..
            }
            | Self::TimedOut {
                policy,
                limit,
                semaphore,
                ..
            }
            | Self::QueueFull {
                policy,
                limit,
                semaphore,
                ..
            }
            | Self::Paused {
                policy,
                limit,
                semaphore,
                ..
            } => Some((policy, *limit, *semaphore)),
            Self::KeyClosed { policy } => Some((policy, 0, None)),
            _ => None,
        }
    }

    /// The semaphore that refused. `None` if its store has no ids, and for an error that no single semaphore decides.
    /// See [`full`](Self::full) for an example.
    pub fn semaphore(&self) -> Option<SemaphoreId> {
        self.refusing().and_then(|(.., semaphore)| semaphore)
    }

    /// The first error of this type in an error's chain of [`source`](Error::source)s, however many layers have wrapped
    /// it: for the callers of a [`LimitLayer`](crate::LimitLayer).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{error::Error, io};
    /// use tower_semaphore::AcquireError;
    ///
    /// let wrapped = io::Error::other(AcquireError::Overloaded);
    /// let found = AcquireError::find_in(&wrapped).unwrap();
    /// assert!(matches!(found, AcquireError::Overloaded));
    /// assert!(AcquireError::find_in(&io::Error::other("broken")).is_none());
    /// ```
    pub fn find_in<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref() {
                return Some(found);
            }
            // Some errors show what they wrap only in this way.
            let io = error.downcast_ref::<io::Error>();
            let shared = error.downcast_ref::<Arc<dyn Error + Send + Sync>>();
            next = match (io.and_then(io::Error::get_ref), shared) {
                (Some(inner), _) => Some(inner),
                (None, Some(shared)) => Some(&**shared),
                (None, None) => error.source(),
            };
        }
        None
    }

    /// The limit in force that refused the claim, in units. `None` if the error has no limit. See
    /// [`policy`](Self::policy).
    pub fn limit(&self) -> Option<u32> {
        self.refusing().map(|(_, limit, _)| limit)
    }

    /// The window of the budget that refused the claim. `None` if none did.
    pub fn window(&self) -> Option<Duration> {
        match self {
            Self::Full { window, .. }
            | Self::TimedOut { window, .. }
            | Self::QueueFull { window, .. }
            | Self::Paused { window, .. } => *window,
            _ => None,
        }
    }

    /// The policy that refused the claim. `None` if the error has no policy.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{AcquireError, Claim};
    ///
    /// let refused = AcquireError::full(&Claim::new("ann").with_policy("export").with_limit(5), 5);
    /// assert_eq!(refused.policy().unwrap().as_str(), "export");
    /// assert_eq!(refused.limit(), Some(5));
    /// ```
    pub fn policy(&self) -> Option<&Policy> {
        self.refusing().map(|(policy, ..)| policy)
    }

    /// A refusal by a store of this crate. A limit of 0 means a closed key, because a claim whose own limit is 0 is
    /// refused earlier.
    #[cold]
    pub(crate) fn under(policy: &Policy, limit: u32, held: u32, semaphore: SemaphoreId) -> Self {
        let (policy, semaphore) = (policy.clone(), Some(semaphore));
        match limit {
            0 => Self::KeyClosed { policy },
            _ => Self::Full {
                policy,
                limit,
                held,
                window: None,
                retry_after: None,
                semaphore,
            },
        }
    }

    /// The outcome that metrics count.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Self::Full { .. } => Outcome::Full,
            Self::KeyClosed { .. } => Outcome::KeyClosed,
            Self::TimedOut { .. } => Outcome::TimedOut,
            Self::QueueFull { .. } => Outcome::QueueFull,
            Self::Paused { .. } => Outcome::Paused,
            Self::Overloaded => Outcome::Overloaded,
            Self::Invalid { .. } => Outcome::Invalid,
            Self::Store { .. } => Outcome::Unavailable,
            Self::Closed => Outcome::Closed,
            Self::Revoked => Outcome::Revoked,
        }
    }
}

/// Rounds up to whole seconds, 1 at least.
fn whole_seconds(time: Duration) -> Duration {
    let more = u64::from(time.subsec_nanos() > 0);
    Duration::from_secs((time.as_secs() + more).max(1))
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full {
                limit,
                held,
                window,
                ..
            } => {
                let are = match window {
                    None => "held",
                    Some(_) => "spent or reserved",
                };
                write!(f, "limit reached: {held} of {limit} units are {are}")
            }
            Self::KeyClosed { .. } => f.write_str("an operator has closed the key"),
            Self::TimedOut { .. } => f.write_str("the wait for a permit is over"),
            Self::QueueFull { .. } => f.write_str("the queue is full"),
            Self::Paused { retry_after, .. } => {
                let seconds = whole_seconds(*retry_after).as_secs();
                write!(f, "the key is paused for {seconds} s more")
            }
            Self::Overloaded => f.write_str("too many claims wait in this process"),
            Self::Revoked => f.write_str("an operator has revoked the claim"),
            Self::Invalid { .. } => f.write_str("the claim is not valid"),
            Self::Store { .. } => f.write_str("the semaphore's store failed"),
            Self::Closed => f.write_str("the semaphore is shut down"),
        }
    }
}

impl Error for AcquireError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Invalid { source } => Some(source),
            Self::Store { source } => Some(&*source.0),
            _ => None,
        }
    }
}

impl From<ClaimError> for AcquireError {
    fn from(source: ClaimError) -> Self {
        Self::Invalid { source }
    }
}

impl From<StoreError> for AcquireError {
    fn from(source: StoreError) -> Self {
        Self::Store { source }
    }
}

/// The largest weight of a claim. In Redis a permit of weight *w* is *w* members of a set. A script must write them
/// quickly, because it blocks the server while it runs.
pub const MAX_WEIGHT: u32 = 1_000;

/// The largest share of a flow. Up to here a share is exact to one percent: that of a budget, if its limit allows at
/// most 10,000 claims per second.
pub const MAX_SHARE: u32 = 100;

/// The most claims of one request. One call to Redis serves this number of semaphores.
pub const MAX_CLAIMS: usize = 64;

/// The most units of one request, over all its claims. One call to Redis grants them, and blocks the server for a few
/// milliseconds at most. A call that names each unit and the keys of 64 claims stays within the argument limit of
/// managed services.
pub const MAX_UNITS: u32 = 3_600;

/// Why no store can grant a claim.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{AcquireError, Claim, semaphore::ClaimError};
///
/// let heavy = Claim::new("account-42").with_limit(5).with_weight(6);
/// let Err(AcquireError::Invalid { source, .. }) = heavy.units() else {
///     panic!("it is heavier than its limit");
/// };
/// assert!(matches!(source, ClaimError::TooHeavy { weight: 6, limit: 5, .. }));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// The key is empty.
    EmptyKey,
    /// A request has no claim.
    None,
    /// A request has more claims than [`MAX_CLAIMS`].
    #[non_exhaustive]
    TooMany {
        /// How many it has.
        claims: usize,
    },
    /// The claims of a request take more units in total than [`MAX_UNITS`].
    #[non_exhaustive]
    TooManyUnits {
        /// The total of their units.
        units: u32,
    },
    /// Two claims of one request are for the same key under the same policy.
    Duplicate,
    /// The claim has no limit, and no layer gave it one.
    NoLimit,
    /// The weight is 0, or above [`MAX_WEIGHT`] and the limit is no budget.
    #[non_exhaustive]
    Weight {
        /// The claim's weight, in units.
        weight: u32,
    },
    /// The flow is empty.
    EmptyFlow,
    /// The share is 0 or above [`MAX_SHARE`].
    #[non_exhaustive]
    Share {
        /// The claim's share.
        share: u32,
    },
    /// The claim has a flow and a head start. Use a flow with a share for each class instead of head starts.
    FlowWithHeadStart,
    /// The store takes one claim of a request, and it has several.
    #[non_exhaustive]
    Several {
        /// How many it has.
        claims: usize,
    },
    /// An outer limit counts the same request in the same semaphore, so the request would wait for its own permit. Only
    /// a layer finds this. Use a separate policy for each of the two limits, with `with_policy`.
    Nested,
    /// The window is shorter than 1 ms or longer than [`MAX_WINDOW`](super::MAX_WINDOW).
    #[non_exhaustive]
    Window {
        /// The claim's window.
        window: Duration,
    },
    /// The claim has an estimate and no window, so it has no budget.
    EstimateWithoutWindow,
    /// The claim has an estimate and a weight. A claim has one of the two.
    EstimateWithWeight,
    /// The estimate is 0.
    EmptyEstimate,
    /// A claim without a window comes after a budget, or a budget after one of a shorter window.
    BudgetOrder,
    /// On a cluster, the claim may wait behind a budget on another node for longer than the budget's window. The units
    /// that it reserves there while it waits would be missing for whole windows.
    #[non_exhaustive]
    LongWait {
        /// How long the claim may wait.
        wait: Duration,
        /// The window of the budget.
        window: Duration,
    },
    /// The store has no budgets, and the claim has a window.
    NoBudgets,
    /// The store cannot change the weight of a permit.
    FixedWeight,
    /// The permit has no level under the policy given to [`resize_at`](super::Permit::resize_at).
    NoLevel,
    /// The claim is heavier than its limit, so there will never be room.
    #[non_exhaustive]
    TooHeavy {
        /// The claim's weight, in units.
        weight: u32,
        /// The key's limit, in units.
        limit: u32,
    },
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyKey => f.write_str("key: it is empty"),
            Self::None => f.write_str("claims: there is none"),
            Self::TooMany { claims } => write!(f, "claims: {claims} are more than {MAX_CLAIMS}"),
            Self::TooManyUnits { units } => {
                write!(f, "claims: {units} units are more than {MAX_UNITS}")
            }
            Self::Duplicate => f.write_str("claims: two have the same key and policy"),
            Self::NoLimit => f.write_str("limit: the claim has none"),
            Self::Weight { weight } => {
                write!(f, "weight: {weight} is not within 1 to {MAX_WEIGHT}")
            }
            Self::EmptyFlow => f.write_str("flow: it is empty"),
            Self::Share { share } => write!(f, "share: {share} is not within 1 to {MAX_SHARE}"),
            Self::FlowWithHeadStart => f.write_str("flow: a claim of a flow has no head start"),
            Self::Several { claims } => {
                write!(f, "claims: {claims}, and the store takes one at a time")
            }
            Self::Nested => {
                f.write_str("policy: a limit outside counts the request in the same semaphore")
            }
            Self::Window { window } => {
                write!(f, "window: {window:?} is not within 1 ms to 31 days")
            }
            Self::EstimateWithoutWindow => f.write_str("estimate: the claim has no window"),
            Self::EstimateWithWeight => {
                f.write_str("estimate: the claim also has a weight, and may have one of the two")
            }
            Self::EmptyEstimate => f.write_str("estimate: it is 0"),
            Self::BudgetOrder => {
                f.write_str("claims: budgets come last, and a longer window before a shorter one")
            }
            Self::LongWait { wait, window } => write!(
                f,
                "wait: {wait:?} behind a budget of another slot is longer than its window of {window:?}"
            ),
            Self::NoBudgets => f.write_str("window: the store has no budgets"),
            Self::NoLevel => f.write_str("policy: the permit is not held under it"),
            Self::FixedWeight => f.write_str("weight: the store cannot change it"),
            Self::TooHeavy { weight, limit } => {
                write!(f, "weight: {weight} is more than the limit of {limit}")
            }
        }
    }
}

impl Error for ClaimError {}

/// A failure of a store, as that store reports it.
///
/// [`source`](Error::source) is the store's own error: for a `RedisSemaphore`, a `redis::Error`. It
/// is shared, so that a clone can go into a response's extensions.
#[derive(Debug, Clone)]
pub struct StoreError(Arc<dyn Error + Send + Sync>);

impl StoreError {
    /// Wraps a store's own error.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::{AcquireError, StoreError};
    ///
    /// let error = AcquireError::from(StoreError::new("the database is gone"));
    /// assert!(!error.is_refusal());
    /// ```
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the semaphore's store failed")
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}
