//! How commands get to Redis and back in bounded time.

mod address;
mod attempt;
mod cluster;
mod connection;
mod direct;
mod replicas;
mod secret;
mod sentinel;
mod supplied;
mod topology;

pub(super) use address::Place;
pub(super) use attempt::Unfit;
pub(super) use cluster::Nodes;
pub(super) use connection::Ask;
pub(super) use connection::Replies;
pub(super) use direct::Subscription;
pub(super) use replicas::{confirmed, with_wait};
pub(super) use sentinel::{Sentinels, Unnamed};
pub(super) use supplied::Supplied;
pub(super) use topology::{Line, Single, Topology};
