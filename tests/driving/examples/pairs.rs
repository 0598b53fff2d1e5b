//! Pairs of acquire and release per second, and how long the core's lock is held.

use std::time::Duration;
use tower_semaphore_driving::redis::pairs::{many, measure};

fn main() {
    println!(
        "| threads | tasks | keys | delay | pairs/s | CPU µs a pair | pairs a call | hold p50 | p99 | p99.9 | max |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for delay in [0, 100].map(Duration::from_micros) {
        for (tasks, keys) in [(1, 1), (16, 1), (16, 16), (256, 1), (256, 256)] {
            measure(2, tasks, delay, keys);
        }
    }
    println!(
        "\n| permits | keys | | time | CPU | hold p50 | p99 | p99.9 | max |\n|---|---|---|---|---|---|---|---|---|"
    );
    many(10_000, 500);
    many(100_000, 20_000);
}
