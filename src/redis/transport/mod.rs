//! How commands get to Redis and back in bounded time.

mod address;
mod cluster;
mod connection;
mod contract;
mod endpoint;
mod link;
mod per_runtime;
mod replicas;
mod sentinel;
mod server;
mod supplied;

pub(super) use cluster::Cluster;
pub(super) use connection::without_password;
pub(super) use contract::{Part, SAMPLES, Terms, Transport};
pub(super) use sentinel::{Sentinels, Unnamed};
pub(super) use server::Server;
pub(super) use supplied::Supplied;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::Unused;
