//! Random operations on every store, judged by a model that knows no store.

#[cfg(feature = "redis")]
mod actor;
mod case;
mod claims;
mod model;
mod op;
mod permits;
#[cfg(feature = "redis")]
mod scene;
#[cfg(feature = "redis")]
mod server;
#[cfg(feature = "redis")]
mod settle;
#[cfg(feature = "redis")]
mod stage;
#[cfg(feature = "redis")]
use testing as support;
mod waiter;
mod world;

use proptest::{
    strategy::Strategy,
    test_runner::{Config, TestCaseResult, TestRunner},
};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime starts")
}

/// Judges many cases, and tells the smallest that fails.
fn judge<S: Strategy>(cases: u32, cases_of: S, judge: impl Fn(S::Value) -> TestCaseResult) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..Config::default()
    };
    if let Err(error) = TestRunner::new(config).run(&cases_of, judge) {
        panic!("{error}");
    }
}

#[test]
fn a_store_in_memory_does_as_the_model_does() {
    let runtime = runtime();
    judge(1_000, op::ops(), |ops| {
        let mut world = world::Memory::default();
        runtime.block_on(case::run(&mut world, ops))
    });
}

#[cfg(feature = "redis")]
mod redis {
    use super::{case, judge, op, runtime, scene, server::Redis, stage};
    use crate::support::redis::RedisServer;
    use std::{cell::RefCell, time::Duration};

    #[test]
    fn a_store_in_redis_does_as_the_model_does() {
        let (server, runtime) = (RedisServer::start(), runtime());
        // So long that no beat comes within all cases, for a key's first may come at any time
        // within its length: what was lost does not come back.
        let lease = Duration::from_secs(24 * 60 * 60);
        let world =
            runtime.block_on(async { Redis::connect(&server, lease).await.listening().await });
        let world = RefCell::new(world);
        judge(300, op::ops(), |ops| {
            let mut world = world.borrow_mut();
            world.next_case();
            runtime.block_on(case::run(&mut *world, ops))
        });
    }

    #[test]
    fn leases_are_kept_or_told_of_and_come_back_as_far_as_there_is_room() {
        let (server, runtime) = (RedisServer::start(), runtime());
        let lease = Duration::from_millis(3_000);
        let world =
            runtime.block_on(async { Redis::connect(&server, lease).await.listening().await });
        let world = RefCell::new(world);
        judge(12, scene::scenes(), |scenes| {
            let mut world = world.borrow_mut();
            world.next_case();
            runtime.block_on(stage::play(&mut world, scenes))
        });
    }
}
