//! Budgets: an exact count of their units, and walks over every state that a few clients can reach.
//!
//! A budget is simpler than a semaphore and its numbers are larger: its state depends on how much time has passed since
//! each settlement. So these walks compare the scripts with an [oracle](Oracle) instead of with invariants, and each client
//! makes one claim.

mod clients;
mod oracle;
mod walk;
mod world;

pub use clients::Claim;
pub use oracle::{Oracle, Reserved, stored};
pub use walk::{Report, Scenario, walk};
