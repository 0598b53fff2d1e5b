//! A cluster: its nodes by number, and which slots each has.
//!
//! Each node has connections of its own, so a dead one harms its own keys only.

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
