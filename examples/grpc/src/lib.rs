//! A gRPC service of prices, and its client.
//!
//! A build script usually generates code like `messages.rs`, `server.rs` and `client.rs` from `prices.proto`. `main.rs`
//! has the part that you write: the limits.

pub mod client;
pub mod messages;
pub mod server;

/// The header that names the account. gRPC sends metadata as HTTP headers.
pub const ACCOUNT: &str = "x-account-id";
