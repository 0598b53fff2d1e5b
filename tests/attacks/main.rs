//! Attacks on the store in Redis: each test states a fact that did not hold when it was written.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod answers;
mod batches;
mod clock;
mod ends;
mod heavy;
mod heavy_nodes;
mod in_time;
mod keeper_nodes;
mod load;
mod nodes;
mod offered;
mod panics;
mod releases;
mod resumed;
mod routes;
mod scale;
mod silence;
mod storm;
mod supplied;
mod wakers;
mod wall;
