//! A limit in shadow refuses nobody, and counts what it would have refused.

mod admitted;
mod beside;
mod global;
mod predicted;
mod rig;
mod simulated;
mod slots;
