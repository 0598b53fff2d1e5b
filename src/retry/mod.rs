//! When a refused client should try again. The rule is in the docs of
//! [`Rejection`](crate::Rejection#when-to-try-again).
//!
//! A layer times its permits, those that are still held too, and each refused request gets the next free
//! time in a schedule of its key. The state is bounded, and an admitted request pays for it only now and then.

mod ages;
mod mean;
mod outage;
mod schedule;
mod seen;
mod timer;

pub(crate) use timer::{Refused, Retry};
