//! The layer in an axum service on real sockets, with clients that behave and clients that do not.

mod client;
mod endings;
#[cfg(feature = "axum")]
mod extract;
mod handlers;
mod hangups;
#[path = "../support/http.rs"]
mod http_requests;
#[path = "../support/ledger.rs"]
mod ledger;
mod limit;
#[path = "../support/script.rs"]
mod script;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod waiting;
#[cfg(feature = "redis")]
mod waiting_in_redis;
