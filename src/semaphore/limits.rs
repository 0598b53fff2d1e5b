//! Limits that operators set: in force for every claim of a key, or of all keys of a policy, whatever limits the
//! claims have.

use super::{Key, Policy, StoreError, StoredKey};
use futures_core::Stream;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::SystemTime,
};

/// A boxed stream of limits, as [`Operate::limits`](super::Operate::limits) returns it.
pub type LimitStream = Pin<Box<dyn Stream<Item = Result<LimitInfo, StoreError>> + Send>>;

/// A limit that an operator has set. [`Operate::limits`](super::Operate::limits) streams them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitInfo {
    /// The policy. In Redis a name of more than 64 characters is kept as `#` and its hash.
    pub policy: Policy,
    /// The key. `None` for the limit of all keys of the policy that have no separate limit.
    pub key: Option<StoredKey>,
    /// The limit, in units. 0 closes the key.
    pub limit: u32,
    /// The note with which it was set.
    pub note: Option<String>,
    /// When it was set, by the store's clock.
    pub since: SystemTime,
}

impl LimitInfo {
    /// The most characters of a note.
    const MAX_NOTE: usize = 128;

    /// A limit without a note, for a custom store.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_semaphore::{Policy, semaphore::{LimitInfo, StoredKey}};
    ///
    /// let key = StoredKey::whole("account-42");
    /// let mut limit = LimitInfo::new(Policy::DEFAULT, Some(key), 3, SystemTime::now());
    /// limit.note = Some("ann: too many exports".to_owned());
    /// ```
    pub fn new(policy: Policy, key: Option<StoredKey>, limit: u32, since: SystemTime) -> Self {
        Self {
            policy,
            key,
            limit,
            note: None,
            since,
        }
    }

    /// The part of a note that is kept: its first characters, or `None` for an empty note.
    pub(crate) fn note_of(note: &str) -> Option<String> {
        let kept: String = note.chars().take(Self::MAX_NOTE).collect();
        Some(kept).filter(|kept| !kept.is_empty())
    }

    /// Returns an error if the limit cannot be set: the limit of a lock is always 1, and no claim has an empty key.
    pub(crate) fn check(policy: &Policy, key: Option<&Key>) -> Result<(), StoreError> {
        match key {
            _ if *policy == Policy::LOCK => Err(StoreError::new("a lock's limit cannot be set")),
            Some(key) if key.is_empty() => Err(StoreError::new("the key is empty")),
            _ => Ok(()),
        }
    }
}

/// A stream of items that are ready.
pub(crate) struct ReadyStream<I>(pub(crate) I);

impl<I: Iterator + Unpin> Stream for ReadyStream<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}
