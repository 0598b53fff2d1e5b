//! The two names of a semaphore: whom the limit is for, and under which policy.

use bytes::Bytes;
use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::Deref,
    ptr,
    sync::Arc,
};

/// Whom a limit is for: an account, a host, a route.
///
/// Bytes of any length. Two keys are the same when their bytes are: `A` and `a` differ, and so do
/// two Unicode spellings of one letter.
#[derive(Clone)]
pub struct Key(Repr);

/// The longest key that lies in the value itself, so that a claim allocates nothing: a UUID's
/// text is.
const SHORT: usize = 38;

#[derive(Clone)]
enum Repr {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Bytes),
}

impl Key {
    /// The key's bytes, as they came.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Long(bytes) => bytes,
        }
    }

    /// Whether there is nothing in it. No store grants a claim for an empty key: it would be
    /// shared by everybody who forgot to name theirs.
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    #[inline]
    fn new(key: &[u8], long: impl FnOnce() -> Bytes) -> Self {
        if key.len() > SHORT {
            return Self(Repr::Long(long()));
        }
        let mut bytes = [0; SHORT];
        bytes[..key.len()].copy_from_slice(key);
        let length = key.len() as u8;
        Self(Repr::Short { length, bytes })
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            // Arrays of a known size are compared in a few steps and without a call.
            (
                Repr::Short { length, bytes },
                Repr::Short {
                    length: other_length,
                    bytes: other_bytes,
                },
            ) => length == other_length && bytes == other_bytes,
            _ => self.as_bytes() == other.as_bytes(),
        }
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(b\"{}\")", self.as_bytes().escape_ascii())
    }
}

impl From<&'static str> for Key {
    fn from(key: &'static str) -> Self {
        Bytes::from_static(key.as_bytes()).into()
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        key.into_bytes().into()
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        Bytes::from(key).into()
    }
}

impl From<&[u8]> for Key {
    #[inline]
    fn from(key: &[u8]) -> Self {
        Self::new(key, || Bytes::copy_from_slice(key))
    }
}

impl From<Bytes> for Key {
    fn from(key: Bytes) -> Self {
        Self::new(&key, || key.clone())
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
        // Nearly always it is the very same text.
        ptr::eq(&raw const **self, &raw const **other) || **self == **other
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
