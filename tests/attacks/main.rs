//! Heavy load on a server, a link or a machine: many claims, heavy claims, storms, and clocks that leap. Most tests run
//! alone.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod clocks;
mod heavy;
mod load;
mod panics;
mod storm;
