//! Random schedules over several limits, compared with a model that knows no store.

mod case;
mod driver;
mod model;
mod ops;
mod resize;
mod waiter;

use std::env;

/// Where the seeds begin: `SCHEDULE=17` runs from that one on.
const FIRST: &str = "SCHEDULE";
/// How many schedules run, instead of a few.
const COUNT: &str = "SCHEDULES";

/// The seeds of a test's schedules.
fn seeds(few: u64) -> impl Iterator<Item = u64> {
    let number = |name| {
        env::var(name)
            .ok()
            .map(|text| text.parse().expect("it is a number"))
    };
    let first: u64 = number(FIRST).unwrap_or(0);
    first..first + number(COUNT).unwrap_or(few)
}

#[test]
fn random_schedules_in_memory_are_as_the_model_says() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    for seed in seeds(1_500) {
        let runtime = builder.enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime starts");
        let done = runtime.block_on(ops::run(seed));
        done.unwrap_or_else(|why| panic!("schedule {seed}:\n{why}"));
    }
}
