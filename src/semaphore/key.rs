//! Keys: the subjects of limits.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::{
    borrow::Cow,
    fmt,
    fmt::Write as _,
    hash::{Hash, Hasher},
    io::Write,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::Arc,
};

/// The subject of a limit: an account, a host, a route.
///
/// A key is bytes of any length. Two keys are equal when their bytes are equal: `A` and `a` differ,
/// and so do two Unicode spellings of one letter.
///
/// A number becomes its decimal text, and an IP address its usual text; an IPv4 address that is
/// mapped into IPv6 becomes the IPv4 address. With the feature `uuid`, a `Uuid` becomes its hyphenated text. A key of
/// up to 38 bytes, such as the text of a UUID, needs no allocation.
///
/// # Examples
///
/// ```
/// use tower_semaphore::Key;
///
/// assert_eq!(Key::from(42).as_bytes(), b"42");
/// assert_eq!(Key::from("account-42"), Key::from(b"account-42".to_vec()));
/// assert_eq!(Key::from([0x61; 3]), Key::from("aaa"));
/// ```
#[derive(Clone)]
pub struct Key(Repr);

/// The longest key that is stored in the value itself, so that a claim allocates nothing. It
/// leaves room for a UUID's text, and for the length in the same 40 bytes.
const SHORT: usize = 38;

/// The longest text of a number or an address: an IPv6 address with an IPv4 tail has 45 bytes.
const LONGEST_TEXT: usize = 48;

/// The longest key that a store keeps whole.
const MAX_WHOLE: usize = 64;

/// The SHA-256 of a key. No client can find two keys with the same digest.
type Digest = [u8; 32];

#[derive(Clone)]
enum Repr {
    Short {
        length: u8,
        bytes: [u8; SHORT],
    },
    Long(Bytes),
    /// Longer than [`MAX_WHOLE`].
    Huge(Arc<HugeKey>),
}

struct HugeKey {
    bytes: Box<[u8]>,
    digest: Digest,
}

impl Key {
    /// The key's bytes, unchanged. See [`Key`] for an example.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Short { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Long(bytes) => bytes,
            Repr::Huge(huge) => &huge.bytes,
        }
    }

    #[cold]
    fn huge(bytes: Box<[u8]>) -> Self {
        let digest = Sha256::digest(&bytes).into();
        Self(Repr::Huge(Arc::new(HugeKey { bytes, digest })))
    }

    /// The digest, if the key is too long for a store to keep whole.
    #[inline]
    fn digest(&self) -> Option<&Digest> {
        match &self.0 {
            Repr::Huge(huge) => Some(&huge.digest),
            Repr::Short { .. } | Repr::Long(_) => None,
        }
    }

    /// The bytes under which a store keeps the key: its own bytes, or its digest.
    #[inline]
    pub(crate) fn compact_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Huge(huge) => &huge.digest,
            Repr::Short { .. } | Repr::Long(_) => self.as_bytes(),
        }
    }

    /// True if the key has no bytes. No store grants a claim for an empty key, because all requests without a key would
    /// share it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::Key;
    ///
    /// assert!(Key::from("").is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// The text of a number or an address.
    fn text(text: fmt::Arguments<'_>) -> Self {
        let mut buffer = [0; LONGEST_TEXT];
        let mut rest = &mut buffer[..];
        rest.write_fmt(text).expect("the longest text fits");
        let length = LONGEST_TEXT - rest.len();
        Self::from(&buffer[..length])
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
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

impl From<&[u8]> for Key {
    #[inline]
    fn from(key: &[u8]) -> Self {
        if key.len() > MAX_WHOLE {
            return Self::huge(key.into());
        }
        if key.len() > SHORT {
            return Self(Repr::Long(Bytes::copy_from_slice(key)));
        }
        let mut bytes = [0; SHORT];
        bytes[..key.len()].copy_from_slice(key);
        let length = key.len() as u8;
        Self(Repr::Short { length, bytes })
    }
}

/// Copies the bytes, because stores drop keys while they hold a lock. The drop of a key that shared a
/// [`Bytes::from_owner`] could run code of the owner.
impl From<Bytes> for Key {
    fn from(key: Bytes) -> Self {
        key[..].into()
    }
}

impl From<Vec<u8>> for Key {
    fn from(key: Vec<u8>) -> Self {
        match key.len() > MAX_WHOLE {
            true => Self::huge(key.into()),
            false => key[..].into(),
        }
    }
}

impl From<String> for Key {
    fn from(key: String) -> Self {
        key.into_bytes().into()
    }
}

macro_rules! from_texts {
    ($($text:ty)*) => { $(
        impl From<$text> for Key {
            #[inline]
            fn from(key: $text) -> Self {
                key.as_bytes().into()
            }
        }
    )* };
}

from_texts!(&str &String Cow<'_, str> Arc<str>);

macro_rules! from_integers {
    ($($integer:ty)*) => { $(
        impl From<$integer> for Key {
            fn from(key: $integer) -> Self {
                Self::text(format_args!("{key}"))
            }
        }
    )* };
}

from_integers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize);

macro_rules! from_addresses {
    ($($address:ty)*) => { $(
        impl From<$address> for Key {
            fn from(key: $address) -> Self {
                Self::text(format_args!("{}", IpAddr::from(key).to_canonical()))
            }
        }
    )* };
}

from_addresses!(IpAddr Ipv4Addr Ipv6Addr);

impl<const N: usize> From<[u8; N]> for Key {
    fn from(key: [u8; N]) -> Self {
        key[..].into()
    }
}

impl<const N: usize> From<&[u8; N]> for Key {
    fn from(key: &[u8; N]) -> Self {
        key[..].into()
    }
}

/// The UUID's text, as in `67e55044-10b1-426f-9247-bb680e5fe0c8`.
#[cfg(feature = "uuid")]
impl From<uuid::Uuid> for Key {
    fn from(key: uuid::Uuid) -> Self {
        Self::text(format_args!("{key}"))
    }
}

/// A key as the maps of this process keep it: a copy of up to 64 bytes, or the digest of a longer key. So no client can
/// make an entry large.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CompactKey(Compact);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Compact {
    Whole(Key),
    Hashed(Digest),
}

impl CompactKey {
    pub(crate) fn new(key: &Key) -> Self {
        Self(match key.digest() {
            None => Compact::Whole(key.as_bytes().into()),
            Some(digest) => Compact::Hashed(*digest),
        })
    }

    /// True if this is the compact form of a key.
    #[inline]
    pub(crate) fn matches(&self, key: &Key) -> bool {
        match &self.0 {
            // Keys that are kept whole are short, so no long key has the same bytes.
            Compact::Whole(whole) => whole == key,
            Compact::Hashed(digest) => key.digest() == Some(digest),
        }
    }

    /// The same bytes as [`Key::compact_bytes`].
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Compact::Whole(key) => key.as_bytes(),
            Compact::Hashed(digest) => digest,
        }
    }
}

impl From<&CompactKey> for StoredKey {
    fn from(key: &CompactKey) -> Self {
        match &key.0 {
            Compact::Whole(key) => Self::whole(key.clone()),
            Compact::Hashed(digest) => {
                let mut hash = String::with_capacity(2 * digest.len());
                for byte in digest {
                    // Writing to a string cannot fail.
                    let _ = write!(hash, "{byte:02x}");
                }
                Self::Hashed { hash }
            }
        }
    }
}

impl StoredKey {
    /// The compact form. `None` for a hash that no store of this crate makes.
    pub(crate) fn compact(&self) -> Option<CompactKey> {
        match self {
            Self::Whole { key } => Some(CompactKey::new(key)),
            Self::Hashed { hash } => {
                let mut digest = Digest::default();
                let mut digits = hash.as_bytes().chunks_exact(2);
                for byte in &mut digest {
                    let digits = str::from_utf8(digits.next()?).ok()?;
                    *byte = u8::from_str_radix(digits, 16).ok()?;
                }
                let key = CompactKey(Compact::Hashed(digest));
                Some(key).filter(|key| Self::from(key) == *self)
            }
        }
    }
}

/// A key as a store remembers it.
///
/// Both stores of this crate keep keys of up to 64 bytes whole, and only the SHA-256 of longer keys. Over Redis the
/// 64 bytes are counted after percent-encoding: each byte that is not a letter, a digit or one of `-_.@+` counts as
/// three.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredKey {
    /// The key, byte for byte.
    #[non_exhaustive]
    Whole {
        /// The key.
        key: Key,
    },
    /// A long key. A store keeps only its hash, so only someone who knows the key can query its
    /// [usage](super::Operate::usage).
    #[non_exhaustive]
    Hashed {
        /// The hash as text. The stores of this crate write the 64 hexadecimal digits of the SHA-256.
        hash: String,
    },
}

impl StoredKey {
    /// A key that a store remembers byte for byte. See [`KeyPage::new`](super::KeyPage::new) for an example.
    pub fn whole(key: impl Into<Key>) -> Self {
        Self::Whole { key: key.into() }
    }

    /// A long key, with the hash that a store remembers.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::StoredKey;
    ///
    /// assert_ne!(StoredKey::hashed("ann"), StoredKey::whole("ann"));
    /// ```
    pub fn hashed(hash: impl Into<String>) -> Self {
        Self::Hashed { hash: hash.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_whole_up_to_64_bytes_and_hashed_beyond() {
        for length in [0, 1, SHORT, SHORT + 1, MAX_WHOLE] {
            let key = Key::from("a".repeat(length));
            let compact = CompactKey::new(&key);
            assert!(compact.matches(&key));
            assert_eq!(StoredKey::from(&compact), StoredKey::whole(key));
        }
        let [one, other] = [65, 66].map(|length| Key::from("a".repeat(length)));
        let compact = CompactKey::new(&one);
        assert!(compact.matches(&one.clone()) && !compact.matches(&other));
        // Computed by `sha256sum`.
        let hash = "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0";
        assert_eq!(StoredKey::from(&compact), StoredKey::hashed(hash));
    }

    #[test]
    fn a_key_whose_bytes_are_the_digest_of_a_long_key_differs_from_it() {
        let long = Key::from("a".repeat(65));
        let bytes = Key::from(long.compact_bytes());
        let (hashed, whole) = (CompactKey::new(&long), CompactKey::new(&bytes));
        assert_eq!(hashed.as_bytes(), whole.as_bytes());
        assert!(hashed != whole && !hashed.matches(&bytes) && !whole.matches(&long));
    }

    #[test]
    fn a_stored_key_leads_back_to_its_compact_key() {
        for key in ["a".repeat(64), "a".repeat(65)] {
            let compact = CompactKey::new(&key.into());
            assert_eq!(StoredKey::from(&compact).compact(), Some(compact));
        }
        for hash in [
            "",
            "ann",
            &"+1".repeat(32),
            &"A".repeat(64),
            &"a".repeat(66),
        ] {
            assert_eq!(StoredKey::hashed(hash).compact(), None, "{hash}");
        }
    }

    #[test]
    fn a_compact_key_takes_no_more_than_a_key() {
        assert_eq!(size_of::<CompactKey>(), size_of::<Key>());
        assert_eq!(size_of::<Key>(), 40);
    }
}
