//! Whom a request counts for.
//!
//! A [`KeyExtractor`] names the account, host or route of a request. Any closure from the
//! request's [`Parts`] is one: it may return a [`Key`] (or anything that converts into one), a
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
//!
//! [`Claim`]: crate::Claim
//! [`Parts`]: http::request::Parts

mod error;
mod extractor;
mod ready_made;

pub use crate::semaphore::Key;
pub use error::KeyError;
pub use extractor::{IntoClaim, KeyExtractor, from_fn};
pub use ready_made::{
    Fixed, FromExtension, Header, PeerIp, fixed, from_extension, header, header_name, peer_ip,
};
