//! How commands get to Redis and back in bounded time.

mod contract;
mod link;
mod server;
mod supplied;

pub(super) use contract::Transport;
pub(super) use server::Server;
pub(super) use supplied::Supplied;
