//! What loads a server, a link or a machine: many claims, heavy ones, storms, clocks that leap. Most run alone.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod clocks;
mod heavy;
mod load;
mod panics;
mod storm;
