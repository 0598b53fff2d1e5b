//! The extractors that most services need.

use super::{Key, KeyError, KeyExtractor};
use crate::semaphore::{Claim, Claims};
use http::{HeaderName, request::Parts};
use std::{
    any::type_name,
    fmt,
    marker::PhantomData,
    net::{IpAddr, SocketAddr},
};

/// The key is the value of a header, which must occur exactly once. Use only a header that the
/// client cannot choose at will, such as one that a gateway sets after it has authenticated the
/// client.
///
/// # Panics
///
/// When `name` is not a header's name in lower case. [`header_name`] takes a name that was checked
/// before.
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
pub fn header(name: &'static str) -> Header {
    header_name(HeaderName::from_static(name))
}

/// The key is the value of a header, as with [`header`]. For a name that is known at run time only.
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

/// The key is a value of type `T` that an outer layer has put into the request's extensions. A
/// request without it is rejected with [`KeyError::MissingExtension`].
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Key, key};
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
/// # drop(by_account);
/// ```
pub fn from_extension<T>() -> FromExtension<T>
where
    T: Into<Key> + Clone + Send + Sync + 'static,
{
    FromExtension(PhantomData)
}

/// The key is the IP address of the connection's peer. No header is read, because a client can
/// forge headers; so behind a proxy all requests have the proxy's address.
///
/// The extractor reads a [`SocketAddr`] or [`IpAddr`] from the request's extensions and, with the
/// feature `axum`, the `ConnectInfo<SocketAddr>` that `into_make_service_with_connect_info` of an
/// axum `Router` puts there.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let layer = ConcurrencyLimitLayer::new(5, key::peer_ip(), MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn peer_ip() -> PeerIp {
    PeerIp
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
        let what = || format!("the header {}", self.0);
        let mut values = parts.headers.get_all(&self.0).iter();
        let value = values.next().ok_or_else(|| KeyError::Missing(what()))?;
        match values.next() {
            Some(_) => Err(KeyError::Repeated(what())),
            None => Ok(Some(Claim::new(value).into())),
        }
    }
}

/// The extractor that [`from_extension`] returns.
#[must_use]
pub struct FromExtension<T>(PhantomData<fn() -> T>);

impl<T> KeyExtractor for FromExtension<T>
where
    T: Into<Key> + Clone + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let value = parts.extensions.get::<T>().cloned();
        value
            .map(|value| Some(Claim::new(value).into()))
            .ok_or(KeyError::MissingExtension(type_name::<T>()))
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

/// The extractor that [`peer_ip`] returns.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub struct PeerIp;

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let ip = peer(parts).ok_or_else(|| KeyError::Missing("the peer's address".into()))?;
        Ok(Some(Claim::new(ip).into()))
    }
}

fn peer(parts: &Parts) -> Option<IpAddr> {
    let extensions = &parts.extensions;
    let address = extensions.get::<SocketAddr>().copied();
    #[cfg(feature = "axum")]
    let address = address.or_else(|| {
        let info = extensions.get::<axum::extract::ConnectInfo<SocketAddr>>();
        info.map(|info| info.0)
    });
    address
        .map(|address| address.ip())
        .or_else(|| extensions.get::<IpAddr>().copied())
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
