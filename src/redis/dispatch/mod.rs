//! The one door to the server: a claim goes alone, or in a batch with others.
//!
//! Until many claims are in flight the cost of a call does not matter, and none should wait for
//! the answer to another: each goes alone, over its own runtime's connection. Beyond that they go
//! in batches, which the keeper's thread sends.

mod attempt;
mod batch;
mod door;
mod load;

pub(super) use attempt::{Attempts, Claim};
pub(super) use door::Dispatch;
