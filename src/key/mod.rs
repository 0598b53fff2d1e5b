//! Extractors: from a request to the key that it counts for.
//!
//! A [`KeyExtractor`] finds the account, host or route of a request. Any closure that takes the
//! request's [`Parts`] is an extractor. The closure may return a [`Key`] (or anything that converts
//! into one), a [`Claim`] with its own limit and weight, several claims as an array or a `Vec` (see
//! [`Claims`](crate::Claims)), an `Option` of these (`None` exempts the request from the limit) or a
//! `Result` of these (`Err` rejects the request: see [`KeyError`]).
//!
//! | extractor | key |
//! |---|---|
//! | [`from_extension`] | what a layer outside of the limit has found: an account, or a whole claim |
//! | [`header`], [`header_name`] | a header, which clients must not choose at will |
//! | [`peer_ip`] | the address of the connection's peer, or its network |
//! | `matched_path` | the route, with the feature `axum` |
//! | [`fixed`] | the same for every request |
//! | [`first_of`] | the first that the request has: per account, else per address |
//! | [`from_fn`] | whatever a closure returns |
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
//! An extractor cannot await anything. Let a middleware outside of the limit look an account's plan up, and
//! leave a `Claim` in the request's extensions for [`from_extension`].
//!
//! A closure cannot return a value that borrows from the request. A `Key::from(text)` of up to 38
//! bytes is a copy without an allocation.
//!
//! A request with an empty key is rejected with status 400, because all requests without a key would share it.
//!
//! [`Claim`]: crate::Claim
//! [`Parts`]: http::request::Parts

mod error;
mod extractor;
mod grpc_timeout;
#[cfg(feature = "axum")]
mod matched_path;
mod peer_ip;
mod ready_made;

pub use crate::semaphore::Key;
pub use error::KeyError;
pub(crate) use extractor::Sealed;
pub use extractor::{FirstOf, IntoClaims, KeyExtractor, MapClaim, first_of, from_fn};
pub use grpc_timeout::grpc_timeout;
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub use matched_path::{MatchedPath, matched_path};
pub use peer_ip::{PeerIp, peer_ip};
pub use ready_made::{Fixed, FromExtension, Header, fixed, from_extension, header, header_name};
