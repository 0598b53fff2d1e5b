//! What operators see and do: holders, revocations, limits, metrics, and limits on trial.
//!
//! The process has one recorder of metrics, so its tests tell their series apart by their policies.

mod holders;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod shadow;

#[cfg(feature = "redis")]
#[test]
#[ignore = "other tests start it as a process of its own"]
fn a_process_of_the_fleet() {
    testing::fleet::serve();
}
