//! What becomes of claims and permits while Redis is unavailable, and when it is back.

#![cfg(feature = "redis")]

mod blips;
mod breaker;
mod clear;
mod fleet;
mod held;
mod hygiene;
mod leaving;
mod levels;
mod limit;
mod nodes;
mod over_http;
mod parts;
mod reconciled;
mod runtimes;
mod server;
mod share;
mod storm;
mod unavailable;
mod waiters;
mod wire;

/// Runs in the processes that `fleet` starts.
#[test]
#[ignore = "a process of the fleet, which another test starts"]
fn a_process_of_the_fleet() {
    fleet::serve();
}
