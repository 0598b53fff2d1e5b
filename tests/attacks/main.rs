//! Hard conditions for a store: many claims, heavy claims, storms, functions that panic, and clocks that jump. Most
//! tests run alone.

#![cfg(all(feature = "redis", target_os = "linux"))]

mod clocks;
mod heavy;
mod load;
mod panics;
mod storm;
