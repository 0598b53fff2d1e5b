//! The repository: its floor plan, its package, its documents, its prose, the runner of its tests, and their oracles.

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
