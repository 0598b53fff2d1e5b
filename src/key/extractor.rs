//! The trait of extractors, and closures as extractors.

use super::KeyError;
use crate::semaphore::{Claim, Claims, Key};
use http::{HeaderValue, request::Parts};
use std::sync::Arc;

/// Extracts the key, or the whole claim, from a request. See the [module docs](super).
///
/// Where the extractor is chosen at run time, an `Arc<dyn KeyExtractor + Send + Sync>` or a `Box`
/// of one is an extractor too.
///
/// # Examples
///
/// ```
/// use http::request::Parts;
/// use std::sync::Arc;
/// use tower_semaphore::{Claim, Claims, ConcurrencyLimitLayer, KeyError, KeyExtractor, MemorySemaphore, key};
///
/// struct ByHost;
///
/// impl KeyExtractor for ByHost {
///     fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
///         let host = parts.uri.host().ok_or_else(|| KeyError::missing("the host"))?;
///         Ok(Some(Claim::new(host).into()))
///     }
/// }
///
/// let by_host = std::env::args().any(|arg| arg == "--by-host");
/// let extractor: Arc<dyn KeyExtractor + Send + Sync> = match by_host {
///     true => Arc::new(ByHost),
///     false => Arc::new(key::fixed("all")),
/// };
/// let layer = ConcurrencyLimitLayer::new(5, extractor, MemorySemaphore::new());
/// # drop(layer);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not extract a key from a request",
    label = "not a `KeyExtractor`",
    note = "write a closure as `|parts: &http::request::Parts| …`, or pass it through `key::from_fn`",
    note = "an extractor cannot be async: let a middleware look the plan up and insert a `Claim` into the request's extensions, for `key::from_extension::<Claim>()`",
    note = "it may return a `Key`, anything that converts into one, a `Claim`, several of them as an array or a `Vec`, or an `Option` or `Result` of these"
)]
pub trait KeyExtractor {
    /// Returns the claims of a request, from the narrowest limit to the widest. `None`, or no claim
    /// at all, exempts the request from the limit.
    ///
    /// # Errors
    ///
    /// A [`KeyError`] rejects the request, with the status that it says.
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError>;

    /// Changes each claim that is found: its policy, its limit, its weight.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::{ConcurrencyLimitLayer, KeyExtractor, MemorySemaphore, key};
    ///
    /// let by_address = key::peer_ip().map_claim(|claim| claim.with_policy("address"));
    /// let layer = ConcurrencyLimitLayer::new(5, by_address, MemorySemaphore::new());
    /// # drop(layer);
    /// ```
    fn map_claim<F: Fn(Claim) -> Claim>(self, change: F) -> MapClaim<Self, F>
    where
        Self: Sized,
    {
        MapClaim {
            extractor: self,
            change,
        }
    }
}

impl<F, T> KeyExtractor for F
where
    F: Fn(&Parts) -> T,
    T: IntoClaims,
{
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        self(parts).into_claims(Sealed)
    }
}

/// The extractor that [`KeyExtractor::map_claim`] returns.
#[derive(Debug, Clone)]
#[must_use]
pub struct MapClaim<K, F> {
    extractor: K,
    change: F,
}

impl<K: KeyExtractor, F: Fn(Claim) -> Claim> KeyExtractor for MapClaim<K, F> {
    fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
        let claims = self.extractor.extract(parts)?;
        Ok(claims.map(|claims| claims.map(&self.change)))
    }
}

macro_rules! shared_extractors {
    ($($pointer:ident<$extractor:ty>)*) => { $(
        impl KeyExtractor for $pointer<$extractor> {
            fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
                (**self).extract(parts)
            }
        }
    )* };
}

shared_extractors! {
    Arc<dyn KeyExtractor + Send + Sync>
    Box<dyn KeyExtractor + Send + Sync>
    Arc<dyn KeyExtractor>
    Box<dyn KeyExtractor>
}

/// Returns a closure unchanged, as an extractor. A closure is an extractor without this function
/// too, but then the type of its argument has to be written out: `|parts: &Parts| …`.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let by_path = key::from_fn(|parts| parts.uri.path().to_owned());
/// let layer = ConcurrencyLimitLayer::new(5, by_path, MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn from_fn<F, T>(f: F) -> F
where
    F: Fn(&Parts) -> T,
    T: IntoClaims,
{
    f
}

/// No other crate can name it, so none can implement [`IntoClaims`].
#[derive(Debug)]
pub struct Sealed;

/// A value that a closure which extracts a key may return: what converts into a claim or into
/// [`Claims`], several claims as an array or a `Vec`, or an `Option` or `Result` of these. For a type of your own
/// implement `From<YourType> for Claims`: this trait is sealed, so that it can grow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a key nor a claim",
    note = "an extractor may return a `Key`, anything that converts into one, a `Claim`, several of them as an array or a `Vec`, or an `Option` or `Result` of these",
    note = "an extractor cannot be async: let a middleware look the plan up and insert a `Claim` into the request's extensions, for `key::from_extension::<Claim>()`"
)]
pub trait IntoClaims {
    /// The claims, or `None` for a request that is exempt.
    ///
    /// # Errors
    ///
    /// The error of a `Result`, as a [`KeyError`].
    fn into_claims(self, _: Sealed) -> Result<Option<Claims>, KeyError>;
}

// So that the error of a closure says what the notes above do, and not that a `Key` cannot be made of it.
#[diagnostic::do_not_recommend]
impl<T: Into<Claims>> IntoClaims for T {
    fn into_claims(self, _: Sealed) -> Result<Option<Claims>, KeyError> {
        Ok(Some(self.into()))
    }
}

impl<T: Into<Claims>> IntoClaims for Option<T> {
    fn into_claims(self, _: Sealed) -> Result<Option<Claims>, KeyError> {
        Ok(self.map(Into::into))
    }
}

impl<T: IntoClaims, E: Into<KeyError>> IntoClaims for Result<T, E> {
    fn into_claims(self, _: Sealed) -> Result<Option<Claims>, KeyError> {
        self.map_err(Into::into)?.into_claims(Sealed)
    }
}

impl From<&HeaderValue> for Key {
    fn from(value: &HeaderValue) -> Self {
        value.as_bytes().into()
    }
}
