//! Shared parts of the benchmarks: loads, flags, progress, figures, tables and plots.

pub mod closed_loop;
pub mod connection;
pub mod figures;
pub mod link;
pub mod open_loop;
#[cfg(feature = "bench")]
pub mod plot;
pub mod proc;
pub mod run;
pub mod table;
pub mod wake;
