//! What operators ask of a store.

use super::{BoxFuture, Key, Policy, StoreError, Usage};
use futures_core::Stream;
use std::{pin::Pin, sync::Arc};

/// A boxed stream of keys, as [`Operate::keys`] returns it.
pub type KeyStream = Pin<Box<dyn Stream<Item = Result<StoredKey, StoreError>> + Send>>;

/// A store that says who holds what, and takes a permit back. Both stores of this crate can.
///
/// A permit is named by its policy, its key and its id: so a route for one account's operators cannot
/// reach another account's permits, whatever id it is given.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let semaphore = MemorySemaphore::new().with_holders();
/// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
///
/// let (policy, key) = (Policy::DEFAULT, "account-42".into());
/// let usage = semaphore.usage(&policy, &key).await.unwrap();
/// let id = &usage.held[0].id;
/// assert!(semaphore.revoke(&policy, &key, id).await.unwrap());
/// assert!(permit.is_lost());
/// assert!(!semaphore.revoke(&policy, &key, id).await.unwrap(), "it is not held any more");
/// # }
/// ```
pub trait Operate: Send + Sync + 'static {
    /// Who holds units of the key under the policy now, and who waits for them. Changes nothing. It
    /// takes time in proportion to the units held and the claims that wait.
    ///
    /// # Errors
    ///
    /// The store's own, if it failed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the answer.
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>>;

    /// The keys that have permits or waiters under the policy, in any order. A key that is used all the
    /// time meanwhile is there, once; one that comes or goes may be there or not. Keys may be missing if a
    /// server of the store fails over, or gives keys to another one, while they are listed.
    ///
    /// # Errors
    ///
    /// An error of the store is the last item.
    fn keys(&self, policy: &Policy) -> KeyStream;

    /// Ends a permit for ever, whoever holds it: its units go to the next waiters at once, and its holder
    /// is told that it is [lost](super::Permit::lost), as if its lease had ended.
    /// [`OnLost`](crate::OnLost) says what becomes of a response then. A claim that waits
    /// under this id leaves the queue, and fails with [`AcquireError::Revoked`](super::AcquireError::Revoked).
    ///
    /// Of a permit of several limits it frees the units of this limit; the others are free when the holder
    /// lets go of the permit.
    ///
    /// `false`: there was no such permit. An id of any other text is no permit either.
    ///
    /// # Errors
    ///
    /// The store's own, if it failed: the permit may have been revoked.
    ///
    /// # Cancel safety
    ///
    /// Once polled, the permit may be revoked although the future is dropped. Nothing changes if it is
    /// revoked again.
    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>>;
}

/// A key as a store remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredKey {
    /// The key, byte for byte.
    Whole(Key),
    /// A long key, of which a store keeps only a hash: who knows the key can ask for its
    /// [usage](Operate::usage).
    Hashed(String),
}

impl<S: Operate + ?Sized> Operate for Arc<S> {
    fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
        (**self).usage(policy, key)
    }

    fn keys(&self, policy: &Policy) -> KeyStream {
        (**self).keys(policy)
    }

    fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
        (**self).revoke(policy, key, id)
    }
}
