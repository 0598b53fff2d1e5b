//! Pauses: a key that is closed until an instant, for all processes that share its store.

use super::{Key, LimitInfo, Policy, StoreError};
use std::time::{Duration, SystemTime};

/// The longest pause: 31 days. A longer one is shortened to this.
pub const MAX_PAUSE: Duration = Duration::from_secs(31 * 24 * 60 * 60);

/// The pause of a key, as [`Usage`](super::Usage) and [`KeyCounts`](super::KeyCounts) report it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PauseInfo {
    /// When the key was paused, or the pause was last extended, by the store's clock.
    pub since: SystemTime,
    /// When the pause ends, by the store's clock.
    pub until: SystemTime,
    /// The reason or the author, as given when the key was paused.
    pub note: Option<String>,
}

impl PauseInfo {
    /// A pause without a note, for a custom store.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tower_semaphore::semaphore::PauseInfo;
    ///
    /// let now = SystemTime::now();
    /// let mut pause = PauseInfo::new(now, now + Duration::from_secs(30));
    /// pause.note = Some("429 from the upstream".to_owned());
    /// ```
    pub fn new(since: SystemTime, until: SystemTime) -> Self {
        Self {
            since,
            until,
            note: None,
        }
    }
}

/// A request to pause a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    /// At least 1 ms, and at most [`MAX_PAUSE`].
    pub(crate) time: Duration,
    pub(crate) note: Option<String>,
}

impl Pause {
    /// `None` for a time below 1 ms, which pauses nothing.
    pub(crate) fn new(time: Duration, note: &str) -> Option<Self> {
        let time = time.min(MAX_PAUSE);
        let note = LimitInfo::note_of(note);
        (time.as_millis() > 0).then_some(Self { time, note })
    }

    /// # Errors
    ///
    /// If the key is empty, because no claim has such a key, or if the policy is the policy of locks.
    pub(crate) fn check(policy: &Policy, key: &Key) -> Result<(), StoreError> {
        if *policy == Policy::LOCK {
            return Err(StoreError::new("a lock cannot be paused"));
        }
        match key.is_empty() {
            true => Err(StoreError::new("the key is empty")),
            false => Ok(()),
        }
    }
}
