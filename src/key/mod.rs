//! Who a request counts for.
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
//! An empty key is an error, because it would be shared by everybody who forgot to name theirs.

mod error;
mod ready_made;

pub use crate::semaphore::Key;
pub use error::KeyError;
pub use ready_made::{
    Extension, Fixed, Header, PeerIp, extension, fixed, header, header_name, peer_ip,
};

use crate::semaphore::Claim;
use http::request::Parts;

/// Names whom a request counts for. See the [module docs](self).
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

/// What a closure that extracts a key may return.
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
