//! Prints a hash of the traces of each workload's first schedules. Two versions of the core with the same hashes have
//! made the same decisions: `cargo run --release -p tower-semaphore-sim --example traces 500`.

use std::{
    env,
    hash::{DefaultHasher, Hash, Hasher},
};
use tower_semaphore_sim::{
    schedule::{Schedule, Workload},
    server::shipped,
    world::run,
};

fn main() {
    let count = env::args().nth(1).map_or(Ok(500), |count| count.parse());
    let count: u64 = count.expect("the number of schedules");
    let runner = shipped();
    for workload in Workload::ALL {
        let mut hasher = DefaultHasher::new();
        for seed in 0..count {
            run(&runner, &Schedule::new(workload, seed), true)
                .trace
                .hash(&mut hasher);
        }
        println!("{}: {:016x}", workload.name(), hasher.finish());
    }
}
