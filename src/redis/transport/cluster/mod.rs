//! A cluster: a [`Server`](super::server::Server) for each node, and a map of the slots in front.
//!
//! So each node has connections and timeouts of its own, and a dead one harms its own keys only. The
//! commands of one call that are for the same node travel together.

#[cfg(tower_semaphore_core)]
mod nodes;
#[cfg(not(tower_semaphore_core))]
mod route;
mod slot;
#[cfg(not(tower_semaphore_core))]
mod slot_map;
mod survey;
#[cfg(not(tower_semaphore_core))]
mod topology;
#[cfg(not(tower_semaphore_core))]
mod transport;
mod view;

#[cfg(tower_semaphore_core)]
pub(in crate::redis) use nodes::Nodes;
pub(super) use slot::SLOTS;
pub(in crate::redis) use slot::slot_of;
#[cfg(not(tower_semaphore_core))]
pub(in crate::redis) use transport::Cluster;
