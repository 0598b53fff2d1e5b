//! What operators ask of a store.

use super::{BoxFuture, Key, Policy, StoreError, Usage};
use futures_core::Stream;
use std::{future::poll_fn, pin::Pin, sync::Arc, time::Duration};
use tokio::time::timeout;

/// A boxed stream of keys, as [`Operate::keys`] returns it.
pub type KeyStream = Pin<Box<dyn Stream<Item = Result<StoredKey, StoreError>> + Send>>;

/// A store that says who holds what, and takes a permit back. Both stores of this crate can. A `Box` or an
/// `Arc` of one does too.
///
/// A method that is added later has a default, so a store of your own that implements this trait goes on to.
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
/// let semaphore = MemorySemaphore::builder().holders(true).build();
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

    /// The keys that [`keys`](Self::keys) would stream, some at a time: about 1,000 at most, as many as are
    /// found in `time`. `cursor` says where to go on: it is the [`next`](KeyPage::next) of the page before, or
    /// `None` for the first page. The store remembers nothing between two pages, and over Redis another process
    /// can go on. `Ok(None)`: no page of this store has ended so.
    ///
    /// A page may have no keys although there are further pages. A key that is used all the time meanwhile is on
    /// one of the pages, or on two of them.
    ///
    /// The stores of this crate look for keys for `time`, and at most for one call to Redis longer. By default
    /// all keys are streamed again for each page, and those of the earlier pages are left out: that is right for
    /// a store whose stream has one order. A store with many keys should have a method of its own.
    ///
    /// # Errors
    ///
    /// The store's own, if it failed. By default also that no further key came in `time`.
    ///
    /// # Panics
    ///
    /// By default outside of a Tokio runtime with time enabled, and over Redis outside of any.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing but the page.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Semaphore};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() {
    /// let semaphore = MemorySemaphore::new();
    /// let permit = semaphore.acquire(Claim::new("account-42").with_limit(1)).await.unwrap();
    ///
    /// let (mut keys, mut cursor) = (Vec::new(), None);
    /// loop {
    ///     let time = Duration::from_millis(250);
    ///     let page = semaphore.keys_page(&Policy::DEFAULT, cursor.as_deref(), time).await.unwrap();
    ///     let page = page.expect("a cursor of the store's own");
    ///     keys.extend(page.keys);
    ///     cursor = page.next;
    ///     if cursor.is_none() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(keys.len(), 1);
    /// # drop(permit);
    /// # }
    /// ```
    fn keys_page(
        &self,
        policy: &Policy,
        cursor: Option<&str>,
        time: Duration,
    ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
        let earlier = cursor.map_or(Ok(0), str::parse);
        let keys = self.keys(policy);
        Box::pin(async move {
            match earlier {
                Ok(earlier) => page(keys, earlier, time).await.map(Some),
                Err(_) => Ok(None),
            }
        })
    }

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

/// Some of the keys of a policy. [`Operate::keys_page`] returns it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyPage {
    /// The keys, in any order.
    pub keys: Vec<StoredKey>,
    /// The cursor of the next page: text that only the store can read. `None`: this is the last page.
    pub next: Option<String>,
}

impl KeyPage {
    /// The most keys of a page, about.
    pub(crate) const MOST: usize = 1_000;

    /// A page of a store of your own.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::{KeyPage, StoredKey};
    ///
    /// let page = KeyPage::new(vec![StoredKey::whole("ann")], Some("ann".to_owned()));
    /// assert!(page.next.is_some());
    /// ```
    pub fn new(keys: Vec<StoredKey>, next: Option<String>) -> Self {
        Self { keys, next }
    }
}

/// The page that follows so many keys of a stream.
async fn page(mut keys: KeyStream, earlier: usize, time: Duration) -> Result<KeyPage, StoreError> {
    let mut page = KeyPage::default();
    let next = |count: usize| Some((earlier + count).to_string());
    let all = async {
        let mut position = 0;
        while let Some(key) = poll_fn(|cx| keys.as_mut().poll_next(cx)).await {
            let key = key?;
            if page.keys.len() == KeyPage::MOST {
                page.next = next(KeyPage::MOST);
                break;
            }
            if position >= earlier {
                page.keys.push(key);
            }
            position += 1;
        }
        Ok(())
    };
    match timeout(time, all).await {
        Ok(done) => done?,
        Err(_) if page.keys.is_empty() => return Err(StoreError::new("no key was listed in time")),
        Err(_) => page.next = next(page.keys.len()),
    }
    Ok(page)
}

/// A key as a store remembers it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoredKey {
    /// The key, byte for byte.
    #[non_exhaustive]
    Whole {
        /// The key.
        key: Key,
    },
    /// A long key, of which a store keeps only a hash: who knows the key can ask for its
    /// [usage](Operate::usage).
    #[non_exhaustive]
    Hashed {
        /// The hash, as text.
        hash: String,
    },
}

impl StoredKey {
    /// A key that a store remembers byte for byte. See [`KeyPage::new`] for an example.
    pub fn whole(key: impl Into<Key>) -> Self {
        Self::Whole { key: key.into() }
    }

    /// A key of which a store remembers a hash.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::semaphore::StoredKey;
    ///
    /// assert_ne!(StoredKey::hashed("ann"), StoredKey::whole("ann"));
    /// ```
    pub fn hashed(hash: impl Into<String>) -> Self {
        Self::Hashed { hash: hash.into() }
    }
}

macro_rules! through_pointers {
    ($($pointer:ident)*) => { $(
        impl<S: Operate + ?Sized> Operate for $pointer<S> {
            fn usage(&self, policy: &Policy, key: &Key) -> BoxFuture<Result<Usage, StoreError>> {
                (**self).usage(policy, key)
            }

            fn keys(&self, policy: &Policy) -> KeyStream {
                (**self).keys(policy)
            }

            fn keys_page(
                &self,
                policy: &Policy,
                cursor: Option<&str>,
                time: Duration,
            ) -> BoxFuture<Result<Option<KeyPage>, StoreError>> {
                (**self).keys_page(policy, cursor, time)
            }

            fn revoke(&self, policy: &Policy, key: &Key, id: &str) -> BoxFuture<Result<bool, StoreError>> {
                (**self).revoke(policy, key, id)
            }
        }
    )* };
}

through_pointers!(Arc Box);
