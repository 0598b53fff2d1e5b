//! The views and actions of operators: holders, revocations, limits, metrics, and limits in shadow.
//!
//! All tests of the process count in one recorder of metrics, so each uses its own policies.
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
