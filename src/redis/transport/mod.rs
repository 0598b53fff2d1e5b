//! How commands get to Redis and back in bounded time.

mod connection;
mod contract;
mod per_runtime;
mod server;
mod supplied;

pub(super) use contract::Transport;
pub(super) use server::Server;
pub(super) use supplied::Supplied;
