//! How commands get to Redis and back in bounded time.

mod address;
mod attempt;
mod cluster;
mod connection;
#[cfg(not(tower_semaphore_core))]
mod contract;
#[cfg(tower_semaphore_core)]
mod direct;
#[cfg(not(tower_semaphore_core))]
mod endpoint;
#[cfg(not(tower_semaphore_core))]
mod link;
#[cfg(not(tower_semaphore_core))]
mod per_runtime;
mod replicas;
mod secret;
mod sentinel;
#[cfg(not(tower_semaphore_core))]
mod server;
mod supplied;
#[cfg(tower_semaphore_core)]
mod topology;

pub(super) use address::Place;
pub(super) use attempt::Unfit;
#[cfg(not(tower_semaphore_core))]
pub(super) use cluster::Cluster;
#[cfg(tower_semaphore_core)]
pub(super) use cluster::Nodes;
pub(super) use connection::Ask;
#[cfg(tower_semaphore_core)]
pub(super) use connection::Replies;
#[cfg(not(tower_semaphore_core))]
pub(super) use contract::{Part, SAMPLES, Terms, Transport};
#[cfg(tower_semaphore_core)]
pub(super) use direct::Subscription;
#[cfg(tower_semaphore_core)]
pub(super) use replicas::{confirmed, with_wait};
pub(super) use secret::without_password;
pub(super) use sentinel::{Sentinels, Unnamed};
#[cfg(not(tower_semaphore_core))]
pub(super) use server::Server;
pub(super) use supplied::Supplied;
#[cfg(tower_semaphore_core)]
pub(super) use topology::{Line, Topology};

#[cfg(all(test, not(tower_semaphore_core)))]
mod tests;
#[cfg(all(test, not(tower_semaphore_core)))]
pub(super) use tests::Unused;
