//! Policies: names of rules under which permits are counted; and names of the semaphores that count them.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ptr,
    sync::Arc,
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
pub struct Policy(Text);

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Policy {
    /// The policy of a claim or layer that sets none: `concurrency`.
    pub const DEFAULT: Self = Self(Text::Static("concurrency"));

    /// The policy under which locks are counted, so that a lock and a limit of one key are separate.
    pub(crate) const LOCK: Self = Self(Text::Static("lock"));

    /// A policy whose name is known at compile time. Needs no allocation. See [`Policy`] for an
    /// example.
    pub const fn from_static(name: &'static str) -> Self {
        Self(Text::Static(name))
    }

    /// The policy of a key that another extractor than the first has found. Few layers have several.
    #[cold]
    pub(super) fn alternative(&self, place: u16) -> Self {
        format!("{self}-{}", place + 1).into()
    }

    /// The name. See [`Policy`] for an example.
    #[inline]
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Shared(text) => text,
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
                Self(Text::Shared(name.into()))
            }
        }
    )* };
}

from_texts!(&str String Arc<str>);

/// Names one semaphore among those of all stores. `Semaphore::semaphore_id` returns it.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Policy, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let (store, other) = (MemorySemaphore::new(), MemorySemaphore::new());
/// let claim = Claim::new("account-42").with_limit(5);
/// let permits = [store.acquire(claim.clone()).await, other.acquire(claim).await];
///
/// let id = |store: &MemorySemaphore| store.semaphore_id(&Policy::DEFAULT, &"account-42".into());
/// assert_eq!(id(&store), id(&store.clone()));
/// assert_ne!(id(&store), id(&other));
/// # drop(permits);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SemaphoreId(Vec<u8>);

impl SemaphoreId {
    /// The name of a semaphore, which must differ for each two stores, policies and keys.
    pub fn new(name: impl Into<Vec<u8>>) -> Self {
        Self(name.into())
    }
}
