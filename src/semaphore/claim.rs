//! What one request asks for.

use super::{AcquireError, ClaimError, Key, Policy};
use std::time::Duration;

/// How many claims may wait for a key unless a claim says otherwise.
pub const DEFAULT_LINE: usize = 1_000;

/// The largest weight of a claim. A permit of weight *w* is *w* members of a set, and a store
/// must be able to write them in one short step.
pub const MAX_WEIGHT: u32 = 1_000;

/// A key, the key's limit, and a weight.
///
/// In a layer, a claim without a limit or a policy gets the layer's.
///
/// ```
/// use tower_semaphore::Claim;
///
/// let heavy = Claim::new("account-42").with_limit(20).with_weight(3);
/// assert_eq!((heavy.limit(), heavy.weight()), (Some(20), 3));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    key: Key,
    policy: Option<Policy>,
    limit: Option<u32>,
    weight: u32,
    wait: Option<Duration>,
    max_waiting: Option<usize>,
}

impl Claim {
    /// A claim of weight 1 for `key`, under no limit yet.
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

    /// How long this claim may wait for its permit, first come first served, when there is no
    /// room: not at all unless set.
    pub fn with_wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How many claims may wait for the key, this one included: [`DEFAULT_LINE`] unless set. When
    /// as many do, it is refused with [`AcquireError::LineFull`].
    pub fn with_max_waiting(mut self, max_waiting: usize) -> Self {
        self.max_waiting = Some(max_waiting);
        self
    }

    /// The policy whose permits are counted: the same key under two policies is two semaphores.
    /// [`Policy::DEFAULT`] unless said.
    pub fn with_policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// The same claim, with what it left open filled in.
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

    /// Whom it is for.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The policy under which it counts.
    #[inline]
    pub fn policy(&self) -> &Policy {
        self.policy.as_ref().unwrap_or(&Policy::DEFAULT)
    }

    /// Its limit, if it has one yet.
    pub fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// How many units it takes.
    pub fn weight(&self) -> u32 {
        self.weight
    }

    /// How it waits, if it does.
    #[inline]
    pub fn wait(&self) -> Option<Wait> {
        let time = self.wait.filter(|wait| !wait.is_zero())?;
        let line = self.max_waiting.unwrap_or(DEFAULT_LINE);
        let line = u32::try_from(line).unwrap_or(u32::MAX);
        Some(Wait { time, line })
    }

    /// What a store has to count, once the claim is one that it could ever grant.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] for an empty key, a missing limit or a weight out of range;
    /// [`AcquireError::Full`] for a claim that is heavier than its limit. So a limit of 0 refuses
    /// without asking a store.
    #[inline]
    pub fn units(&self) -> Result<Units, AcquireError> {
        let limit = self.limit.ok_or(ClaimError::NoLimit)?;
        if self.key.is_empty() {
            return Err(ClaimError::EmptyKey.into());
        }
        if self.weight == 0 || self.weight > MAX_WEIGHT {
            return Err(ClaimError::Weight(self.weight).into());
        }
        if self.weight > limit {
            return Err(AcquireError::Full { limit, held: 0 });
        }
        Ok(Units {
            limit,
            weight: self.weight,
        })
    }
}

impl<K: Into<Key>> From<K> for Claim {
    fn from(key: K) -> Self {
        Self::new(key)
    }
}

/// The numbers of a claim that could be granted: `1 <= weight <= limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Units {
    /// How many units the key's permits may hold together.
    pub limit: u32,
    /// How many of them this claim takes.
    pub weight: u32,
}

/// How a claim waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// How long.
    pub time: Duration,
    /// How many may wait for the key, this one included.
    pub line: u32,
}
