//! Random schedules over several limits, compared with a model that is independent of the stores.
//!
//! Promises: P1, P3, P12.

mod case;
mod driver;
mod model;
mod ops;
mod resize;
mod waiter;

use std::env;

/// The variable with the first seed: `SCHEDULE=17` starts at seed 17.
const FIRST: &str = "SCHEDULE";
/// The variable with the number of schedules in each part.
const COUNT: &str = "SCHEDULES";
/// The default of `SCHEDULES`.
const PART: u64 = 150;

/// The seeds of one part.
fn seeds(part: u64) -> impl Iterator<Item = u64> {
    let number = |name| {
        env::var(name)
            .ok()
            .map(|text| text.parse().expect("it is a number"))
    };
    let (first, count): (u64, u64) = (number(FIRST).unwrap_or(0), number(COUNT).unwrap_or(PART));
    let first = first + part * count;
    first..first + count
}

fn run_part(part: u64) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    for seed in seeds(part) {
        let runtime = builder.enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime starts");
        let done = runtime.block_on(ops::run(seed));
        done.unwrap_or_else(|why| panic!("schedule {seed}:\n{why}"));
    }
}

/// Split into parts, so that each test ends in time on a busy machine.
mod random_schedules_in_memory_match_the_model {
    use super::run_part;

    #[test]
    fn in_the_first_part() {
        run_part(0);
    }

    #[test]
    fn in_the_second_part() {
        run_part(1);
    }

    #[test]
    fn in_the_third_part() {
        run_part(2);
    }

    #[test]
    fn in_the_fourth_part() {
        run_part(3);
    }

    #[test]
    fn in_the_fifth_part() {
        run_part(4);
    }
}
