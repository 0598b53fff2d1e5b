//! The two names of a semaphore: whom the limit is for, and under which policy.

use bytes::Bytes;
use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

/// Whom a limit is for: an account, a host, a route.
///
/// Bytes of any length. Two keys are the same when their bytes are: `A` and `a` differ, and so do
/// two Unicode spellings of one letter.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Bytes);

impl Key {
    /// The key's bytes, as they came.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is nothing in it. No store grants a claim for an empty key: it would be
    /// shared by everybody who forgot to name theirs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?})", self.0)
    }
}

impl From<&'static str> for Key {
    fn from(key: &'static str) -> Self {
        Self(Bytes::from_static(key.as_bytes()))
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        Self(key.into())
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        Self(key.into())
    }
}

impl From<&[u8]> for Key {
    fn from(key: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(key))
    }
}

impl From<Bytes> for Key {
    fn from(key: Bytes) -> Self {
        Self(key)
    }
}

impl From<u64> for Key {
    fn from(key: u64) -> Self {
        key.to_string().into()
    }
}

/// The name of a rule under which permits are counted.
///
/// Two layers of one policy share a key's permits, two policies do not. It is also the name that
/// clients read in the RateLimit fields.
#[derive(Clone)]
pub struct Policy(Text);

#[derive(Clone)]
enum Text {
    Static(&'static str),
    Shared(Arc<str>),
}

impl Policy {
    /// The policy of a claim that names none: `concurrency`.
    pub const DEFAULT: Self = Self(Text::Static("concurrency"));
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Deref for Policy {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            Text::Static(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl PartialEq for Policy {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Policy {}

impl Hash for Policy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl From<&'static str> for Policy {
    fn from(name: &'static str) -> Self {
        Self(Text::Static(name))
    }
}

impl From<String> for Policy {
    fn from(name: String) -> Self {
        Self(Text::Shared(name.into()))
    }
}
