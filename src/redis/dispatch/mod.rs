//! Dispatches claims to the server: each alone, or in batches.
//!
//! While few claims are in flight the cost of a call does not matter, and no claim should wait for
//! the answer to another: each is sent alone, over the connection of its own runtime. Further claims
//! are sent in batches by the keeper's thread, and so are those of a runtime without a connection.
//!
//! Each node of a cluster has a lane with batches of its own. Where nothing is known of the nodes,
//! each claim is sent alone: a batch would be completed only when its slowest node has answered.

mod attempt;
mod batch;
mod batcher;
mod claim;
mod door;
mod lanes;
mod load;

pub(super) use attempt::Attempts;
pub(super) use claim::{Answer, Claim, Level};
pub(super) use door::Dispatch;
