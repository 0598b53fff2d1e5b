//! Tests of the repository itself: its floor plan, package, documents and prose, its test runner, and the helpers of
//! its tests.

mod fault_matrix;
mod floor_plan;
mod package;
mod promises;
mod prose;
#[cfg(feature = "redis")]
mod proxy;
mod repository;
#[cfg(unix)]
mod runner;
#[cfg(feature = "redis")]
mod support;
