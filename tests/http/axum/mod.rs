//! The layer in an axum service on real sockets, with well-behaved and misbehaving clients.

mod aborted;
mod client;
mod cors;
mod endings;
#[cfg(feature = "axum")]
mod extract;
mod handlers;
mod limit;
mod revoked;
mod server;
mod stalls;
#[cfg(feature = "axum")]
mod uploads;
#[cfg(feature = "axum")]
mod usage_routes;
mod waiting;
#[cfg(feature = "axum")]
mod websocket;
