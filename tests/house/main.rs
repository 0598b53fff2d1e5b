//! The repository: its floor plan, its package, its documents, and the oracles of its tests.

mod fault_matrix;
mod floor_plan;
mod package;
#[cfg(feature = "redis")]
mod proxy;
#[cfg(feature = "redis")]
mod support;
