//! The store over one Redis server.
//!
//! Promises: P1.

#![cfg(feature = "redis")]

mod answers;
mod batches;
mod check;
#[cfg(target_os = "linux")]
mod clocks;
mod connections;
mod ends;
mod fair;
mod faults;
mod leases;
mod managed;
mod pause;
mod queue;
mod replicas;
mod schema;
mod wire;

#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_of_the_fleet() {
    testing::fleet::serve();
}
