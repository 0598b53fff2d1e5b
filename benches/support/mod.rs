//! What the benchmarks share: flags, progress, figures, tables and plots.

#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod figures;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod link;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod plot;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod proc;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod run;
#[allow(dead_code, reason = "each benchmark uses a part of it")]
pub(crate) mod table;
