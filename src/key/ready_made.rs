//! The extractors that most services need.

use super::{Key, KeyError, KeyExtractor};
use crate::semaphore::Claim;
use http::{HeaderName, request::Parts};
use std::{
    any::type_name,
    fmt,
    marker::PhantomData,
    net::{IpAddr, SocketAddr},
};

/// The value of a header, which must be there once. Use it only for a header that the client
/// cannot choose at will, such as one that your gateway sets after it has checked who asks.
///
/// # Panics
///
/// When `name` is not a header's name in lower case. [`header_name`] takes one that was checked.
pub fn header(name: &'static str) -> Header {
    header_name(HeaderName::from_static(name))
}

/// The value of a header, which must be there once.
pub fn header_name(name: HeaderName) -> Header {
    Header(name)
}

/// A value that an earlier layer put into the request's extensions.
pub fn extension<T>() -> Extension<T>
where
    T: Into<Key> + Clone + Send + Sync + 'static,
{
    Extension(PhantomData)
}

/// The address of the peer, without its port, from the connection; never from a header, which a
/// client can forge.
///
/// Reads a [`SocketAddr`] or [`IpAddr`] extension and, with the feature `axum`, what axum's
/// `into_make_service_with_connect_info` leaves there.
pub fn peer_ip() -> PeerIp {
    PeerIp
}

/// The same key for every request.
pub fn fixed(key: impl Into<Key>) -> Fixed {
    Fixed(key.into())
}

/// See [`header`].
#[derive(Debug, Clone)]
pub struct Header(HeaderName);

impl KeyExtractor for Header {
    fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
        let what = || format!("the header {}", self.0);
        let mut values = parts.headers.get_all(&self.0).iter();
        let value = values.next().ok_or_else(|| KeyError::Missing(what()))?;
        match values.next() {
            Some(_) => Err(KeyError::Repeated(what())),
            None => Ok(Some(Claim::new(value.as_bytes()))),
        }
    }
}

/// See [`extension`].
pub struct Extension<T>(PhantomData<fn() -> T>);

impl<T> KeyExtractor for Extension<T>
where
    T: Into<Key> + Clone + Send + Sync + 'static,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
        let value = parts.extensions.get::<T>().cloned();
        value
            .map(|value| Some(Claim::new(value)))
            .ok_or_else(|| KeyError::Missing(format!("the extension {}", type_name::<T>())))
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self(PhantomData)
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension<{}>", type_name::<T>())
    }
}

/// See [`peer_ip`].
#[derive(Debug, Clone, Copy)]
pub struct PeerIp;

impl KeyExtractor for PeerIp {
    fn extract(&self, parts: &Parts) -> Result<Option<Claim>, KeyError> {
        let ip = peer(parts).ok_or_else(|| KeyError::Missing("the peer's address".into()))?;
        Ok(Some(Claim::new(ip.to_canonical().to_string())))
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

/// See [`fixed`].
#[derive(Debug, Clone)]
pub struct Fixed(Key);

impl KeyExtractor for Fixed {
    fn extract(&self, _: &Parts) -> Result<Option<Claim>, KeyError> {
        Ok(Some(Claim::new(self.0.clone())))
    }
}
