//! The trait between the two halves of this crate: what a store is given, and what it returns.
//!
//! The HTTP half turns a request into a [`Claim`] and holds the [`Permit`]; a store decides whether
//! to grant the claim, and how to do so atomically. Neither half knows the other, so a store of
//! your own needs one method, [`Semaphore::acquire`], and one type that implements [`Grant`]. See
//! [`Acquire`] for an example.
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
pub(crate) mod background;
mod changing;
mod claim;
mod claims;
pub(crate) mod clock;
pub(crate) mod countdown;
mod counted;
mod degraded;
mod end;
mod error;
pub(crate) mod future;
mod key;
mod label;
mod levels;
mod loss;
mod operate;
pub(crate) mod outer;
mod permit;
mod policy;
mod process;
mod refusal;
mod resize;
mod shadow;
pub(crate) mod timer;
mod units;
mod usage;

pub use acquire::Acquire;
pub(crate) use claim::Label;
pub use claim::{Claim, DEFAULT_MAX_WAITING};
pub use claims::Claims;
pub(crate) use claims::{check, narrowest};
pub(crate) use end::WeakPermit;
pub use error::{AcquireError, ClaimError, MAX_CLAIMS, MAX_UNITS, MAX_WEIGHT, StoreError};
pub use future::BoxFuture;
pub(crate) use future::SyncFuture;
pub use key::Key;
pub use label::MAX_LABEL;
pub(crate) use levels::level_by_level;
pub use loss::{Loss, PermitLost};
pub use operate::{KeyPage, KeyStream, Operate, StoredKey};
pub use permit::{Grant, Permit};
pub use policy::{Policy, SemaphoreId};
pub use process::Process;
pub use units::{Units, Wait};
pub use usage::{PermitInfo, Usage};

use std::sync::Arc;

/// A store of counting semaphores, one for each policy and key. See the [module docs](self).
///
/// The stores of this crate are handles: cheap to clone, and all clones count together. A `Box` or
/// an `Arc` of a store is a store too, so a `Box<dyn Semaphore>` can be chosen at run time.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Permit, Semaphore};
///
/// async fn export(store: &dyn Semaphore) -> Option<Permit> {
///     store.acquire(Claim::new("export").with_limit(2)).await.ok()
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// assert!(export(&MemorySemaphore::new()).await.is_some());
/// # }
/// ```
pub trait Semaphore: Send + Sync + 'static {
    /// Acquires a permit for `claim`: in this call, or once the future is polled.
    ///
    /// # Errors
    ///
    /// Resolves to an [`AcquireError`]: a refusal ([`AcquireError::is_refusal`]), a claim that no
    /// store can grant, or a failure of the store itself. The three are never confused.
    ///
    /// # Panics
    ///
    /// The stores of this crate need a Tokio runtime with time enabled for a claim that waits, and
    /// the store in Redis for any claim. Outside of one the future panics when it is polled.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind: the claim leaves the queue, and a
    /// permit that was already granted is released.
    fn acquire(&self, claim: Claim) -> Acquire;

    /// Acquires one permit for several claims, all or none. See [`Claims`].
    ///
    /// The stores of this crate decide for all of them in one step. By default it goes level by
    /// level, from the narrowest to the widest, through [`acquire`](Self::acquire): with the same
    /// meaning, but what a claim has of the narrower limits is seen by others until a wider one has
    /// answered.
    ///
    /// A wait counts from the start of the whole acquire. By default it counts from the start of its
    /// own level: the default makes the futures of all levels at once, and polls each when the one
    /// before it has its permit. A store whose `acquire` grants before its future is polled should have a
    /// method of its own.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), of the first level that has one. A limit that is still
    /// full when the wait for it is over refuses with [`AcquireError::Full`], which names it.
    ///
    /// # Panics
    ///
    /// As [`acquire`](Self::acquire) does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future at any point leaves nothing behind, at any level.
    fn acquire_all(&self, claims: Claims) -> Acquire {
        levels::acquire_all(claims, |claim| self.acquire(claim))
    }

    /// Names the semaphore of a policy and key among those of all stores: two handles to one store give the
    /// same name. By it a layer notices that an outer one counts its requests in the same semaphore, if
    /// [`Grant::semaphore_id`] gives it too. `None` unless implemented; a store may know no name of a semaphore
    /// of which nothing is held. A store that implements it implements [`Grant::weight`] too, by which a released
    /// permit is told.
    fn semaphore_id(&self, policy: &Policy, key: &Key) -> Option<SemaphoreId> {
        let _ = (policy, key);
        None
    }
}

macro_rules! through_pointers {
    ($($pointer:ident)*) => { $(
        impl<S: Semaphore + ?Sized> Semaphore for $pointer<S> {
            fn acquire(&self, claim: Claim) -> Acquire {
                (**self).acquire(claim)
            }

            fn acquire_all(&self, claims: Claims) -> Acquire {
                (**self).acquire_all(claims)
            }

            fn semaphore_id(&self, policy: &Policy, key: &Key) -> Option<SemaphoreId> {
                (**self).semaphore_id(policy, key)
            }
        }
    )* };
}

through_pointers!(Arc Box);
