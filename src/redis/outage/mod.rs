//! While the store is unavailable: who notices, and what becomes of claims and permits.
//!
//! The breaker observes the outcome of each call. While all is well, that and one relaxed load for
//! each claim is all there is. After a few failures in a row it opens: then nothing is sent but one
//! probe at a time, and the policy decides each claim here, in this process.
//!
//! | phase | claims | the keeper |
//! |---|---|---|
//! | `Well` | go to the server; the policy decides those that fail | refreshes and releases |
//! | `Failing` | the same, but with a reservation in the share | the same; leases that end are kept, as degraded |
//! | `Open` | the policy decides | sends nothing; leases that end are kept |
//! | `Settling` | go to the server, with a reservation in the share | acquires what is degraded |
//!
//! A process does not know which failures others have taken for an outage. So where the policy shares,
//! a grant that arrives while not all is well is used only if it has a reservation in the share, and every
//! failure is followed by a time to settle.
//!
//! Each node of a cluster has a breaker of its own, and each sixteenth of the slots has one where nothing is
//! known of the nodes, on a connection of the caller's. The probe of a node is for the key whose call has
//! failed last, so it follows that key to a node that is promoted.
//!
//! A degraded permit has a lease of its own: the claim that failed is released as any other, in case
//! that it has run.

mod alert;
mod cause;
mod phase;
mod policy;
mod summary;

pub(super) use alert::Alert;
pub use policy::WhenUnavailable;
