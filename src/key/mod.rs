//! Whom a request counts for.
//!
//! A [`KeyExtractor`] names the account, host or route of a request. Any closure from the
//! request's [`Parts`] is one: it may return a [`Key`] (or anything that turns into one), a
//! [`Claim`] with its own limit and weight, an `Option` of them (`None` exempts the request from
//! the limit) or a `Result` (`Err` rejects it with status 400).
//!
//! ```
//! use http::request::Parts;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
//!
//! let by_header = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//!
//! // Paying accounts get twenty, the operators' own requests are not counted.
//! let tiers = |parts: &Parts| match parts.uri.path().split('/').nth(1) {
//!     Some("internal") => None,
//!     Some("paid") => Some(Claim::new("paid").with_limit(20)),
//!     _ => Some(Claim::new("free")),
//! };
//! let by_tier = ConcurrencyLimitLayer::new(5, tiers, MemorySemaphore::new());
//! # drop((by_header, by_tier));
//! ```
//!
//! A closure's return type cannot borrow from the request. A [`Key`] of up to 38 bytes is copied
//! into the value, so `Key::from(text)` costs no allocation either.
//!
//! An empty key is an error: all requests that fail to name their key would share it.

mod error;
mod ready_made;

pub use crate::semaphore::Key;
pub use error::KeyError;
pub use ready_made::{
    Fixed, FromExtension, Header, PeerIp, fixed, from_extension, header, header_name, peer_ip,
};

use crate::semaphore::Claim;
use http::{HeaderValue, request::Parts};
use std::sync::Arc;

/// Names whom a request counts for. See the [module docs](self).
///
/// Where the extractor is chosen at run time, an `Arc<dyn KeyExtractor + Send + Sync>` or a `Box`
/// of one is an extractor too.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use std::sync::Arc;
/// use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, KeyExtractor, MemorySemaphore, key};
///
/// /// Counts by host, or all together.
/// struct ByHost;
///
/// impl KeyExtractor for ByHost {
///     fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
///         let host = parts.uri.host().ok_or_else(|| KeyError::Missing("the host".into()))?;
///         Ok(Some(Claim::new(host)))
///     }
/// }
///
/// let by_host = std::env::args().any(|arg| arg == "--by-host");
/// let extractor: Arc<dyn KeyExtractor + Send + Sync> = match by_host {
///     true => Arc::new(ByHost),
///     false => Arc::new(key::fixed("all")),
/// };
/// let layer = ConcurrencyLimitLayer::new(5, extractor, MemorySemaphore::new());
/// # drop(layer);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not extract a key from a request",
    label = "not a `KeyExtractor`",
    note = "write a closure as `|parts: &http::request::Parts| …`, or pass it through `key::from_fn`",
    note = "it may return a `Key`, what turns into one, a `Claim`, or an `Option` or `Result` of them"
)]
pub trait KeyExtractor {
    /// The claim of a request; `None` exempts it from the limit.
    ///
    /// # Errors
    ///
    /// A [`KeyError`] rejects the request with status 400.
    fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError>;
}

impl<F, T> KeyExtractor for F
where
    F: Fn(&Parts) -> T,
    T: IntoClaim,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
        self(parts).into_claim()
    }
}

macro_rules! shared_extractors {
    ($($pointer:ident<$extractor:ty>)*) => { $(
        impl KeyExtractor for $pointer<$extractor> {
            fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
                (**self).extract(parts)
            }
        }
    )* };
}

shared_extractors! {
    Arc<dyn KeyExtractor + Send + Sync>
    Box<dyn KeyExtractor + Send + Sync>
    Arc<dyn KeyExtractor>
    Box<dyn KeyExtractor>
}

/// A closure as an extractor. It is one without this function too, but only here the compiler
/// knows the type of its argument.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let by_path = key::from_fn(|parts| parts.uri.path().to_owned());
/// let layer = ConcurrencyLimitLayer::new(5, by_path, MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn from_fn<F, T>(f: F) -> F
where
    F: Fn(&Parts) -> T,
    T: IntoClaim,
{
    f
}

/// What a closure that extracts a key may return.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a key nor a claim",
    note = "an extractor may return a `Key`, what turns into one, a `Claim`, or an `Option` or `Result` of them"
)]
pub trait IntoClaim {
    /// The claim in it.
    ///
    /// # Errors
    ///
    /// The error in it.
    fn into_claim(self) -> Result<Option<Claim>, KeyError>;
}

impl<T: Into<Claim>> IntoClaim for T {
    fn into_claim(self) -> Result<Option<Claim>, KeyError> {
        Ok(Some(self.into()))
    }
}

impl<T: Into<Claim>> IntoClaim for Option<T> {
    fn into_claim(self) -> Result<Option<Claim>, KeyError> {
        Ok(self.map(Into::into))
    }
}

impl<T: IntoClaim, E: Into<KeyError>> IntoClaim for Result<T, E> {
    fn into_claim(self) -> Result<Option<Claim>, KeyError> {
        self.map_err(Into::into)?.into_claim()
    }
}

impl From<&HeaderValue> for Key {
    fn from(value: &HeaderValue) -> Self {
        value.as_bytes().into()
    }
}
