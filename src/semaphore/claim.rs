//! What one request claims of a store.

use super::{Key, Policy};
use std::{borrow::Cow, sync::Arc, time::Duration};

/// How many claims may wait for a key at a time unless a claim or a layer sets another number.
pub const DEFAULT_MAX_WAITING: u32 = 1_000;

/// With more than a year no queue is in another order.
const MAX_HEAD_START: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A label in a claim: few have one, so it takes the place of a pointer.
pub(crate) type Label = Arc<Cow<'static, str>>;

/// What one request claims: units of a key, under a policy and a limit.
///
/// The weight is 1 unless set. For the policy, the limit, the wait and the length of the queue, a
/// layer's settings apply where a [`KeyExtractor`](crate::KeyExtractor) returns a claim that does
/// not set them. Without a layer a claim needs a limit, and the other defaults are named below.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tower_semaphore::Claim;
///
/// let export = Claim::new("account-42")
///     .with_limit(20)
///     .with_weight(3)
///     .with_policy("export")
///     .with_wait(Duration::from_secs(2))
///     .with_max_waiting(100);
/// assert_eq!((export.limit(), export.weight()), (Some(20), 3));
///
/// let of_another_account = export.clone().with_key("account-43");
/// assert_ne!(export, of_another_account);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Claim {
    key: Key,
    policy: Option<Policy>,
    limit: Option<u32>,
    weight: u32,
    pub(super) wait: Option<Duration>,
    pub(super) max_waiting: Option<u32>,
    pub(super) head_start: Duration,
    pub(super) strict: bool,
    pub(super) is_trial: bool,
    /// Which of several extractors has found it, unless it was the first: part of the policy's name.
    alternative: u16,
    pub(crate) label: Option<Label>,
}

/// A larger claim is not moved in registers, but by a call of `memcpy`: a pair of acquire and release in memory
/// takes a fifth longer then.
const _: () = assert!(size_of::<Claim>() <= 128);

impl Claim {
    /// A claim of weight 1 for `key`, without a limit yet. See [`Claim`] for an example.
    pub fn new(key: impl Into<Key>) -> Self {
        Self {
            key: key.into(),
            policy: None,
            limit: None,
            weight: 1,
            wait: None,
            max_waiting: None,
            head_start: Duration::ZERO,
            strict: false,
            is_trial: false,
            alternative: 0,
            label: None,
        }
    }

    /// Replaces the key. See [`Claim`] for an example.
    pub fn with_key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }

    /// Sets how many units the key's permits may hold together. A limit of 0 refuses every claim.
    /// See [`Claim`] for an example.
    ///
    /// Claims for one key may have different limits: each is granted under its own.
    #[inline]
    pub fn with_limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets how many units this claim takes: 1 unless set, [`MAX_WEIGHT`](super::MAX_WEIGHT) at most. See [`Claim`]
    /// for an example.
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// Sets how long this claim may wait in the queue when there is no room: not at all unless
    /// set. See [`Claim`] for an example.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Sets how many claims may wait for the key up to this one: [`DEFAULT_MAX_WAITING`] unless set.
    /// When as many wait before it already, the claim is refused with
    /// [`AcquireError::QueueFull`](super::AcquireError::QueueFull). Claims that it passes because of
    /// its [head start](Self::with_head_start) do not count. See [`Claim`] for an example.
    pub fn with_max_waiting(mut self, max_waiting: u32) -> Self {
        self.max_waiting = Some(max_waiting);
        self
    }

    /// Sets how much earlier than it arrived this claim counts as arrived in the queue: not at all
    /// unless set, and a year at most.
    ///
    /// Among claims of equal head starts the queue is first come, first served, and nothing starves.
    /// For example, interactive requests get 30 s and batch jobs none: an interactive request passes
    /// all batch jobs that arrived in the last 30 s, and a batch job that has waited for 30 s is
    /// passed by nobody.
    ///
    /// A head start passes waiters, not holders. Of [several claims](super::Claims) a job that waits at
    /// a wide limit holds its units of the narrower ones meanwhile, and nobody passes it there. So give
    /// batch jobs a lower limit than interactive requests where both use one key:
    ///
    /// ```
    /// # use {std::time::Duration, tower_semaphore::Claim};
    /// let wait = Duration::from_secs(2);
    /// let batch = Claim::new("model-1").with_limit(6).with_wait(wait);
    /// let interactive = Claim::new("model-1").with_limit(8).with_wait(wait);
    /// # drop((batch, interactive.with_head_start(Duration::from_secs(30))));
    /// ```
    ///
    /// # Examples
    ///
    /// ```
    /// # use {std::time::Duration, tower_semaphore::Claim};
    /// let batch = Claim::new("model-1").with_wait(Duration::from_secs(600));
    /// drop(batch.with_head_start(Duration::from_secs(30)));
    /// ```
    pub fn with_head_start(mut self, head_start: Duration) -> Self {
        self.head_start = head_start.min(MAX_HEAD_START);
        self
    }

    /// Sets the policy under which the claim counts: [`Policy::DEFAULT`] unless set. One key under
    /// two policies is two semaphores. See [`Claim`] for an example.
    pub fn with_policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// The claim of the extractor at this place, from 0 on, among four at most. Extractors may be nested, so
    /// that each has a number of its own. A claim that names its policy needs none.
    pub(crate) fn of_alternative(mut self, place: u16) -> Self {
        if self.policy.is_none() {
            self.alternative = self.alternative.wrapping_mul(4).wrapping_add(place);
        }
        self
    }

    /// The claim, with defaults for each value that it does not set.
    #[inline]
    pub(crate) fn or(
        mut self,
        policy: &Policy,
        limit: u32,
        wait: Duration,
        max_waiting: u32,
    ) -> Self {
        let alternative = self.alternative;
        self.policy.get_or_insert_with(|| match alternative {
            0 => policy.clone(),
            place => policy.alternative(place),
        });
        self.limit.get_or_insert(limit);
        self.wait.get_or_insert(wait);
        self.max_waiting.get_or_insert(max_waiting);
        self
    }

    /// The key that the claim is for.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{Claim, Policy};
    ///
    /// let claim = Claim::new("account-42");
    /// assert_eq!((claim.key().as_bytes(), claim.policy()), (&b"account-42"[..], &Policy::DEFAULT));
    /// assert_eq!((claim.limit(), claim.weight(), claim.wait()), (None, 1, None));
    /// ```
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The policy under which the claim counts. See [`key`](Self::key) for an example.
    #[inline]
    pub fn policy(&self) -> &Policy {
        self.policy.as_ref().unwrap_or(&Policy::DEFAULT)
    }

    /// The key's limit in units, if the claim sets it. See [`key`](Self::key) for an example.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// How many units the claim takes. See [`key`](Self::key) for an example.
    pub fn weight(&self) -> u32 {
        self.weight
    }
}

impl<K: Into<Key>> From<K> for Claim {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}
