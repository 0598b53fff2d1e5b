//! While the store is unavailable: which errors mean that, what becomes of claims, and what operators are told. What
//! follows for claims and permits the [core](super::core) decides.

mod alert;
mod cause;
mod policy;

pub(super) use alert::Alert;
pub use policy::WhenUnavailable;
