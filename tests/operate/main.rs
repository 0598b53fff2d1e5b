//! The operators' view and actions: holders, revocations, limits, metrics, and limits in shadow.
//!
//! The process has one recorder of metrics, so its tests distinguish their series by their policies.
//!
//! Promises: P24.

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
