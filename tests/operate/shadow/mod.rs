//! A limit in shadow refuses nobody, and counts what it would have refused.

mod admitted;
mod beside;
mod predicted;
mod rig;
mod slots;
