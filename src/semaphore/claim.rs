//! A request's claim on a store.

use super::{AcquireError, ClaimError, Key, MAX_WEIGHT, Policy};
use std::time::Duration;

/// How many claims may wait for a key unless a claim sets another number.
pub const DEFAULT_MAX_WAITING: usize = 1_000;

/// A key, the key's limit, a weight (1), and how long the claim may wait (not at all).
///
/// In a layer, a claim gets from the layer what it leaves open: limit, policy, wait, and the
/// length of the queue.
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
/// let same_for_bob = export.clone().with_key("account-43");
/// assert_ne!(export, same_for_bob);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Claim {
    key: Key,
    policy: Option<Policy>,
    limit: Option<u32>,
    weight: u32,
    wait: Option<Duration>,
    max_waiting: Option<usize>,
}

impl Claim {
    /// A claim of weight 1 for `key`, without a limit yet.
    pub fn new(key: impl Into<Key>) -> Self {
        Self {
            key: key.into(),
            policy: None,
            limit: None,
            weight: 1,
            wait: None,
            max_waiting: None,
        }
    }

    /// Whom the claim is for.
    pub fn with_key(mut self, key: impl Into<Key>) -> Self {
        self.key = key.into();
        self
    }

    /// How many units the key's permits may hold together.
    #[inline]
    pub fn with_limit(mut self, limit: u32) -> Self {
        self.limit = Some(limit);
        self
    }

    /// How many units this claim takes, 1 to [`MAX_WEIGHT`].
    pub fn with_weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }

    /// How long this claim may wait in the queue when there is no room: not at all unless set.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How many claims may wait for the key, this one included: [`DEFAULT_MAX_WAITING`] unless
    /// set. When as many wait already, the claim is refused with [`AcquireError::QueueFull`].
    pub fn with_max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = Some(max_waiting);
        self
    }

    /// The policy whose permits are counted: one key under two policies is two semaphores.
    /// [`Policy::DEFAULT`] unless set.
    pub fn with_policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// The same claim, with defaults for what it leaves open.
    pub(crate) fn or(
        mut self,
        policy: &Policy,
        limit: u32,
        wait: Duration,
        max_waiting: usize,
    ) -> Self {
        self.policy.get_or_insert_with(|| policy.clone());
        self.limit.get_or_insert(limit);
        self.wait.get_or_insert(wait);
        self.max_waiting.get_or_insert(max_waiting);
        self
    }

    /// Whom the claim is for.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The policy under which the claim counts.
    #[inline]
    pub fn policy(&self) -> &Policy {
        self.policy.as_ref().unwrap_or(&Policy::DEFAULT)
    }

    /// The key's limit, if the claim has one yet.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// How many units the claim takes.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How the claim waits; `None` if it does not.
    #[inline]
    pub fn wait(&self) -> Option<Wait> {
        let time = self.wait.filter(|wait| !wait.is_zero())?;
        let max_waiting = self.max_waiting.unwrap_or(DEFAULT_MAX_WAITING);
        let max_waiting = u32::try_from(max_waiting).unwrap_or(u32::MAX);
        Some(Wait { time, max_waiting })
    }

    /// What a store has to count. A store calls this first: it checks the claim.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] for an empty key, a missing limit, a weight out of range, or a
    /// weight above the limit; [`AcquireError::Full`] for a limit of 0, which refuses every claim.
    #[inline]
    pub fn units(&self) -> Result<Units, AcquireError> {
        let limit = self.limit.ok_or(ClaimError::NoLimit)?;
        let weight = self.weight;
        if self.key.is_empty() {
            return Err(ClaimError::EmptyKey.into());
        }
        if weight == 0 || weight > MAX_WEIGHT {
            return Err(ClaimError::Weight(weight).into());
        }
        match limit {
            0 => Err(AcquireError::full(self, 0)),
            _ if weight > limit => Err(ClaimError::TooHeavy { weight, limit }.into()),
            _ => Ok(Units { limit, weight }),
        }
    }
}

impl AcquireError {
    /// A refusal of `claim` because its limit is reached: `held` units are in use.
    #[cold]
    pub fn full(claim: &Claim, held: u32) -> Self {
        Self::Full {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or_default(),
            held,
        }
    }
}

impl<K: Into<Key>> From<K> for Claim {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}

/// The numbers of a claim that a store could grant: 1 ≤ weight ≤ limit. Made by [`Claim::units`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Units {
    pub(crate) limit: u32,
    pub(crate) weight: u32,
}

impl Units {
    /// How many units the key's permits may hold together.
    pub fn limit(self) -> u32 {
        self.limit
    }

    /// How many of them the claim takes.
    pub fn weight(self) -> u32 {
        self.weight
    }
}

/// How a claim waits. Made by [`Claim::wait`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Wait {
    /// How long.
    pub time: Duration,
    /// How many claims may wait for the key, this one included.
    pub max_waiting: u32,
}
