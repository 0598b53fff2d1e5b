//! Random schedules over several limits, compared with a model that knows no store.

mod case;
mod driver;
mod model;
mod ops;
#[cfg(feature = "redis")]
mod redis;
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
        let done = runtime.block_on(ops::run(driver::Memory::default(), seed));
        done.unwrap_or_else(|why| panic!("schedule {seed}:\n{why}"));
    }
}

#[cfg(feature = "redis")]
mod in_redis {
    use super::{ops, redis::Fleet, seeds};
    use std::sync::Arc;
    use tokio::task::JoinSet;

    /// Schedules that run at a time: each waits for the server most of its time.
    const AT_A_TIME: usize = 48;

    async fn run(few: u64, supplied: bool) {
        let fleet = Fleet::start(ops::PROCESSES, supplied).await;
        let mut running = JoinSet::new();
        for seed in seeds(few) {
            if running.len() == AT_A_TIME {
                running
                    .join_next()
                    .await
                    .expect("some run")
                    .expect("no panic");
            }
            let fleet = Arc::clone(&fleet);
            running.spawn(async move {
                let done = ops::run(fleet.driver(seed).await, seed).await;
                done.unwrap_or_else(|why| panic!("schedule {seed}:\n{why}"));
            });
        }
        while let Some(done) = running.join_next().await {
            done.expect("no panic");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_schedules_in_redis_are_as_the_model_says() {
        run(200, false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_schedules_level_by_level_are_as_the_model_says() {
        run(50, true).await;
    }
}
