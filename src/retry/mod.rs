//! When a refused client should try again. The rule is in the docs of
//! [`Rejection`](crate::Rejection#when-to-try-again).
//!
//! A layer times its permits, including those still held, and each refused request gets the next
//! free time in its key's schedule. The state is bounded. When permits are frequent, only some
//! admitted requests pay for it.

mod ages;
mod mean;
mod outage;
mod schedule;
mod seen;
mod timer;

pub(crate) use timer::{Refused, Retry};
