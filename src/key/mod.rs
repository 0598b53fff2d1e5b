//! Extractors: from a request to the key that it counts for.
//!
//! A [`KeyExtractor`] finds the account, host or route of a request. Any closure from the
//! request's [`Parts`] is an extractor. The closure may return a [`Key`] (or anything that converts
//! into one), a [`Claim`] with its own limit and weight, several claims as an array or a `Vec` (see
//! [`Claims`](crate::Claims)), an `Option` of these (`None` exempts the request from the limit) or a
//! `Result` of these (`Err` rejects the request with status 400).
//!
//! ```
//! use http::request::Parts;
//! use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, MemorySemaphore, key};
//!
//! let by_header = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new());
//!
//! // Five requests for each account, twenty if it pays. Internal requests are exempt.
//! let tiers = |parts: &Parts| -> Result<Option<Claim>, KeyError> {
//!     if parts.uri.path().starts_with("/internal/") {
//!         return Ok(None);
//!     }
//!     let account = parts.headers.get("x-account-id").ok_or("no account")?;
//!     let claim = Claim::new(account);
//!     match parts.headers.contains_key("x-paid") {
//!         true => Ok(Some(claim.with_limit(20))),
//!         false => Ok(Some(claim)),
//!     }
//! };
//! let by_tier = ConcurrencyLimitLayer::new(5, tiers, MemorySemaphore::new());
//! # drop((by_header, by_tier));
//! ```
//!
//! A closure cannot return a value that borrows from the request. A `Key::from(text)` of up to 38
//! bytes is a copy without an allocation.
//!
//! A request with an empty key is rejected with status 400, because all requests without a key of
//! their own would share it.
//!
//! [`Claim`]: crate::Claim
//! [`Parts`]: http::request::Parts

mod error;
mod extractor;
mod ready_made;

pub use crate::semaphore::Key;
pub use error::KeyError;
pub use extractor::{IntoClaims, KeyExtractor, from_fn};
pub use ready_made::{
    Fixed, FromExtension, Header, PeerIp, fixed, from_extension, header, header_name, peer_ip,
};
