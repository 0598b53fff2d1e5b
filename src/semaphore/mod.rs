//! The trait between the two halves of this crate: what a store is given, and what it returns.
//!
//! The HTTP half turns a request into [claims](Claims) and holds the [`Permit`]; a store decides whether to grant them,
//! and how to do so atomically. Neither half knows the other, so a custom store needs one method,
//! [`Semaphore::acquire_all`], and one type that implements [`Grant`]. See [`Acquire`] for an example.
//!
//! ```
//! use tower_semaphore::{Claim, MemorySemaphore, Semaphore};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let semaphore = MemorySemaphore::new();
//! let claim = Claim::new("account-42").with_limit(1);
//!
//! let permit = semaphore.acquire(claim.clone()).await.unwrap();
//! assert!(semaphore.acquire(claim.clone()).await.is_err());
//!
//! drop(permit);
//! assert!(semaphore.acquire(claim).await.is_ok());
//! # }
//! ```

mod acquire;
mod budget;
mod claim;
mod claims;
mod error;
mod key;
mod limits;
mod loss;
mod operate;
mod pause;
mod permit;
mod policy;

pub(crate) use crate::timer;
pub(crate) use acquire::SyncFuture;
pub use acquire::{Acquire, Semaphore};
pub use budget::MAX_WINDOW;
pub(crate) use budget::{Budget, Charge, PermitEnd, Settled, TakenUnits, Window};
pub use claim::{Claim, DEFAULT_MAX_WAITING, MAX_LABEL, Units, Wait};
pub use claims::Claims;
pub(crate) use claims::Few;
pub(crate) use error::BoxError;
pub use error::{
    AcquireError, ClaimError, MAX_CLAIMS, MAX_SHARE, MAX_UNITS, MAX_WEIGHT, StoreError,
};
pub(crate) use key::CompactKey;
pub use key::{Key, StoredKey};
pub(crate) use limits::ReadyStream;
pub use limits::{LimitInfo, LimitStream};
pub use loss::{Loss, PermitLost};
pub use operate::{
    BudgetUsage, KeyCounts, KeyPage, KeyStream, Operate, PermitInfo, Process, Usage,
};
#[allow(unused_imports, reason = "a build without stores")]
pub(crate) use pause::Pause;
pub use pause::{MAX_PAUSE, PauseInfo};
pub use permit::{BoxFuture, Grant, Level, LevelState, Permit, Resize, Resizing};
pub(crate) use permit::{LayerPermit, WeakPermit};
pub use policy::{Policy, SemaphoreId};
