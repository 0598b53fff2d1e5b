//! What is in Redis at every moment, from `MONITOR`, and whether it may be.

mod history;
mod line;
mod model;
mod semaphore;
mod snapshot;
mod witness;

pub(crate) use self::witness::Witness;
