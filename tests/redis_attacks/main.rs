//! Attacks on the store in Redis: each test states a fact that did not hold when it was written.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod batches;
mod clock;
mod ends;
mod heavy;
mod load;
mod nodes;
mod routes;
mod scale;
mod silence;
mod storm;
mod supplied;
use testing as support;
