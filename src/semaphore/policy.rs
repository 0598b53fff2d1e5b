//! Policies: names of rules under which permits are counted; and ids of the semaphores that count them.

use std::{
    fmt,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    num::NonZeroU64,
    ptr,
    sync::{Arc, LazyLock},
};

/// The name of a rule under which permits are counted.
///
/// Two layers over one store that have the same policy share a key's permits; layers of different
/// policies do not. Clients read the name in the RateLimit fields.
///
/// # Examples
///
/// ```
/// use tower_semaphore::Policy;
///
/// const EXPORT: Policy = Policy::from_static("export");
/// assert_eq!(EXPORT, Policy::from("export"));
/// assert_eq!(Policy::default().as_str(), "concurrency");
/// ```
#[derive(Clone)]
pub struct Policy(PolicyName);

#[derive(Clone)]
enum PolicyName {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Policy {
    /// The policy of a claim or layer that sets none: `concurrency`.
    pub const DEFAULT: Self = Self(PolicyName::Static("concurrency"));

    /// The policy under which locks are counted, so that a lock and a limit of one key are separate.
    pub(crate) const LOCK: Self = Self(PolicyName::Static("lock"));

    /// A policy whose name is known at compile time. Needs no allocation. See [`Policy`] for an
    /// example.
    pub const fn from_static(name: &'static str) -> Self {
        Self(PolicyName::Static(name))
    }

    /// The policy of a key that was not found by the first extractor. Cold, because few layers have several extractors.
    #[cold]
    pub(super) fn alternative(&self, place: u16) -> Self {
        format!("{self}-{}", place + 1).into()
    }

    /// The name. See [`Policy`] for an example.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            PolicyName::Static(text) => text,
            PolicyName::Shared(text) => text,
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl AsRef<str> for Policy {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq for Policy {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        // Nearly always the two are clones, whose text need not be read.
        ptr::eq(self.as_str(), other.as_str()) || self.as_str() == other.as_str()
    }
}

impl Eq for Policy {}

impl PartialEq<str> for Policy {
    fn eq(&self, name: &str) -> bool {
        self.as_str() == name
    }
}

impl PartialEq<&str> for Policy {
    fn eq(&self, name: &&str) -> bool {
        self.as_str() == *name
    }
}

impl Hash for Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

macro_rules! from_texts {
    ($($text:ty)*) => { $(
        impl From<$text> for Policy {
            fn from(name: $text) -> Self {
                Self(PolicyName::Shared(name.into()))
            }
        }
    )* };
}

from_texts!(&str String Arc<str>);

/// Identifies one counting semaphore in this process: the semaphore of a store, a policy and a key.
///
/// A store puts the id into its permits and refusals, so a wrapper of a store has nothing to forward. A layer compares
/// the ids to notice that an outer limit counts its requests in the same semaphore. With
/// [`Claim::is_within`](crate::Claim::is_within) a store notices it before a claim waits.
///
/// # Examples
///
/// ```
/// use tower_semaphore::semaphore::SemaphoreId;
///
/// let id = |store: u32, key: &str| SemaphoreId::new((store, "concurrency", key));
/// assert_eq!(id(1, "account-42"), id(1, "account-42"));
/// assert_ne!(id(1, "account-42"), id(2, "account-42"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SemaphoreId(NonZeroU64);

impl SemaphoreId {
    /// The id of the semaphore of this name. The name must differ for any two stores, policies and keys, and be the
    /// same for all handles to a store.
    ///
    /// The id is a hash of 64 bits, with a random seed for each process. Two names get the same id by chance once in
    /// 10¹⁹ comparisons. See [`SemaphoreId`] for an example.
    pub fn new(name: impl Hash) -> Self {
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self::numbered(SEED.hash_one(name))
    }

    /// The id of the semaphore of this number, which no other semaphore in the memory of this process has.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MAX))
    }
}
