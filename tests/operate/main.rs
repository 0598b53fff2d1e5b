//! What operators see and do: holders, revocations, limits, metrics, and limits on trial.
//!
//! The process has one recorder of metrics, so its tests tell their series apart by their policies.

mod holders;
mod limits;
#[cfg(feature = "metrics")]
mod metrics;
mod shadow;
