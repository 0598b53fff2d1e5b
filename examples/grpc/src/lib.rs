//! A gRPC service of prices, and its client.
//!
//! `messages.rs`, `server.rs` and `client.rs` are what a build script generates elsewhere from
//! `prices.proto`. `main.rs` has what you write: the limits.

pub mod client;
pub mod messages;
pub mod server;

/// The header that names the account. Metadata of gRPC are headers of HTTP.
pub const ACCOUNT: &str = "x-account-id";
