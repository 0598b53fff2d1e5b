//! Random operations on every store, compared with a model that knows no store.

mod case;
mod claims;
mod driver;
#[cfg(feature = "redis")]
mod fixture;
#[cfg(feature = "redis")]
mod holder;
mod model;
mod op;
mod permits;
#[cfg(feature = "redis")]
mod scenario;
#[cfg(feature = "redis")]
mod server;
#[cfg(feature = "redis")]
mod settle;
#[cfg(feature = "redis")]
use testing as support;
mod waiter;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseResult, TestRunner},
};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime starts")
}

/// Checks many cases, and reports the smallest that fails.
fn check_cases<S: Strategy>(
    cases: u32,
    cases_of: S,
    check_cases: impl Fn(S::Value) -> TestCaseResult,
) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&cases_of, check_cases) {
        panic!("{error}");
    }
}

#[test]
fn a_store_in_memory_behaves_as_the_model() {
    let runtime = runtime();
    check_cases(1_000, op::ops(), |ops| {
        let mut driver = driver::Memory::default();
        runtime.block_on(case::run(&mut driver, ops))
    });
}

#[cfg(feature = "redis")]
mod redis {
    use super::{case, check_cases, fixture, op, runtime, scenario, server::Redis};
    use crate::support::redis::RedisServer;
    use std::{cell::RefCell, time::Duration};

    #[test]
    fn a_store_in_redis_behaves_as_the_model() {
        let (server, runtime) = (RedisServer::start(), runtime());
        // So long that no refresh is due within all cases: a refresh would bring back what was lost.
        let lease = Duration::from_secs(24 * 60 * 60);
        let driver =
            runtime.block_on(async { Redis::connect(&server, lease).await.listening().await });
        let driver = RefCell::new(driver);
        check_cases(300, op::ops(), |ops| {
            let mut driver = driver.borrow_mut();
            driver.next_case();
            runtime.block_on(case::run(&mut *driver, ops))
        });
    }

    #[test]
    fn lost_leases_come_back_as_far_as_there_is_room_and_else_are_reported() {
        let (server, runtime) = (RedisServer::start(), runtime());
        let lease = Duration::from_millis(3_000);
        let driver =
            runtime.block_on(async { Redis::connect(&server, lease).await.listening().await });
        let driver = RefCell::new(driver);
        check_cases(12, scenario::scenarios(), |scenarios| {
            let mut driver = driver.borrow_mut();
            driver.next_case();
            runtime.block_on(fixture::run(&mut driver, scenarios))
        });
    }
}
