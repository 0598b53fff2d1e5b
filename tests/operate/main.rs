//! What operators see and do: holders, revocations, metrics, and limits on trial.
//!
//! The process has one recorder of metrics, so its tests tell their series apart by their policies.

mod holders;
#[cfg(feature = "metrics")]
mod metrics;
mod shadow;
