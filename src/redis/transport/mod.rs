//! Sends commands to Redis and returns the replies, in bounded time.

mod address;
mod attempt;
mod cluster;
mod connection;
mod endpoint;
mod sentinel;
mod subscription;
mod topology;

pub(super) use attempt::{Inquiry, ends_at};
pub(super) use cluster::Nodes;
pub(super) use connection::{Connection, Replies, field};
pub use endpoint::Credentials;
pub(super) use endpoint::{Connector, Endpoint};
pub(super) use sentinel::Sentinels;
pub(super) use subscription::Subscription;
pub(super) use topology::{ServerRole, Single, Topology};
