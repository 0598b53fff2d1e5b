//! The promises that every store keeps, and those of the store in memory alone.
//!
//! Promises: P1.

#[cfg(feature = "redis")]
mod agreed;
mod budgets;
mod conformance;
mod lock;
mod memory;
mod pauses;
mod semaphore;
mod several;

#[cfg(feature = "redis")]
#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_of_the_fleet() {
    testing::fleet::serve();
}
