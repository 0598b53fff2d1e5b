//! Budgets: an exact count of their units, and walks over the states that a few clients can reach.
//!
//! A budget is simpler than a semaphore and its numbers are larger: its state depends on how much time has passed since
//! each settlement. So these walks compare the scripts with an [oracle](Oracle) instead of with invariants, and each client
//! makes one claim. [`walk`] visits every state within some number of steps, and [`wander`] takes long random walks.

mod answers;
mod call;
mod checks;
mod clients;
mod form;
mod oracle;
mod walk;
mod world;

pub use clients::Claim;
pub use oracle::{Oracle, Reserved, stored};
pub use walk::{Fault, Report, Scenario, walk, wander};
