//! `rediss://`: the client for a URL, and the certificates that it trusts and shows.
//!
//! redis-rs does TLS itself, through rustls or the platform's library; when both features are
//! enabled redis-rs uses rustls. A client of redis-rs keeps the certificates, so every connection
//! that is made from the client uses them, the one for Pub/Sub too.

mod certificates;
mod client;
#[cfg(all(feature = "tls-native-tls", not(feature = "tls-rustls")))]
mod native_tls;
#[cfg(feature = "tls-rustls")]
mod rustls;
#[cfg(any(feature = "tls-rustls", feature = "tls-native-tls"))]
mod secure;

pub(super) use certificates::Certificates;
pub(super) use client::{client, parse};
