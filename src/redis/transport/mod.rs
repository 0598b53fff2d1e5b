//! How commands get to Redis and back in bounded time.

mod address;
mod attempt;
mod cluster;
mod connection;
mod contract;
#[cfg(tower_semaphore_core)]
mod direct;
mod endpoint;
mod link;
mod per_runtime;
mod replicas;
mod secret;
mod sentinel;
mod server;
mod supplied;
#[cfg(tower_semaphore_core)]
mod topology;

pub(super) use address::Place;
pub(super) use attempt::Unfit;
pub(super) use cluster::Cluster;
#[cfg(tower_semaphore_core)]
pub(super) use cluster::{Nodes, slot_of};
pub(super) use contract::{Part, SAMPLES, Servers, Terms, Transport};
#[cfg(tower_semaphore_core)]
pub(super) use direct::Subscription;
pub(super) use secret::without_password;
pub(super) use sentinel::{Sentinels, Unnamed};
pub(super) use server::Server;
pub(super) use supplied::Supplied;
#[cfg(tower_semaphore_core)]
pub(super) use topology::{Line, Topology};

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(super) use tests::Unused;
