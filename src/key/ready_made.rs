//! The extractors that most services need.

use super::{Key, KeyError, KeyExtractor};
use crate::semaphore::{Claim, Claims};
use http::{HeaderName, request::Parts};
use std::{any::type_name, fmt, marker::PhantomData};

/// The key is the value of a header, which must occur exactly once. Use only a header that the client cannot choose at
/// will, such as a header that a gateway sets after it has authenticated the client.
///
/// # Panics
///
/// When `name` is not a header's name. Its case does not matter. For a name that is configured at run time, check it
/// first and use [`header_name`].
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let by_account = key::header("x-account-id");
/// let layer = ConcurrencyLimitLayer::new(5, by_account, MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn header(name: &str) -> Header {
    match name.parse() {
        Ok(name) => Header(name),
        Err(_) => panic!("{name:?} is not a header's name"),
    }
}

/// The key is the value of a header, as with [`header`], for a name that was parsed before.
///
/// # Examples
///
/// ```
/// use http::HeaderName;
/// use tower_semaphore::key;
///
/// let configured: HeaderName = "X-Account-Id".parse().unwrap();
/// let by_account = key::header_name(configured);
/// # drop(by_account);
/// ```
pub fn header_name(name: HeaderName) -> Header {
    Header(name)
}

/// The key, or the whole claim, is a value of type `T` that an outer layer has put into the request's extensions: an
/// account, or a [`Claim`] that a middleware has made after it has looked up the account's plan.
///
/// A request without it is rejected with [`KeyError::MissingExtension`], because the service has
/// forgotten that layer or has put it inside of the limit.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, Key, key};
///
/// #[derive(Clone)]
/// struct Account(u64);
///
/// impl From<Account> for Key {
///     fn from(account: Account) -> Self {
///         account.0.into()
///     }
/// }
///
/// let by_account = key::from_extension::<Account>();
/// let by_plan = key::from_extension::<Claim>();
/// # drop((by_account, by_plan));
/// ```
pub fn from_extension<T>() -> FromExtension<T>
where
    T: Into<Claims> + Clone + Send + Sync + 'static,
{
    FromExtension(PhantomData)
}

/// The key is the same for every request.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// // At most a thousand requests in flight, of all accounts together.
/// let layer = ConcurrencyLimitLayer::new(1_000, key::fixed("all"), MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn fixed(key: impl Into<Key>) -> Fixed {
    Fixed(key.into())
}

/// The extractor that [`header`] and [`header_name`] return.
#[derive(Debug, Clone)]
#[must_use]
pub struct Header(HeaderName);

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let part = || format!("the header {}", self.0);
        let mut values = parts.headers.get_all(&self.0).iter();
        let value = values.next().ok_or_else(|| KeyError::missing(part()))?;
        match values.next() {
            Some(_) => Err(KeyError::repeated(part())),
            None => Ok(Some(Claim::new(value).into())),
        }
    }
}

/// The extractor that [`from_extension`] returns.
#[must_use]
pub struct FromExtension<T>(PhantomData<fn() -> T>);

impl<T> KeyExtractor for FromExtension<T>
where
    T: Into<Claims> + Clone + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let value = parts.extensions.get::<T>().cloned();
        let value = value.ok_or_else(KeyError::missing_extension::<T>)?;
        Ok(Some(value.into()))
    }
}

impl<T> Clone for FromExtension<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for FromExtension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FromExtension<{}>", type_name::<T>())
    }
}

/// The extractor that [`fixed`] returns.
#[derive(Debug, Clone)]
#[must_use]
pub struct Fixed(Key);

impl KeyExtractor for Fixed {
    fn extract(&self, _: &Parts) -> Result<Option<Claims>, KeyError> {
        Ok(Some(Claim::new(self.0.clone()).into()))
    }
}
