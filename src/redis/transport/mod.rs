//! How commands get to Redis and back in bounded time.

mod attempt;
mod cluster;
mod connection;
mod sentinel;
mod topology;

pub(super) use attempt::Unfit;
pub(super) use cluster::Nodes;
pub(super) use connection::{Connection, Replies, Subscription, field};
pub(super) use sentinel::Sentinels;
pub(super) use topology::{Place, Single, Supplied, Topology};
