//! The trait of extractors, closures as extractors, and the first of several.

use super::KeyError;
use crate::{
    observe::events,
    semaphore::{Claim, Claims, Key},
};
use http::{HeaderValue, request::Parts};
use std::sync::Arc;

/// Extracts the key, or the whole claim, from a request. See the [module docs](super).
///
/// An `Arc<dyn KeyExtractor + Send + Sync>` or such a `Box` is an extractor too, so that an extractor can be chosen at
/// run time.
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
    /// A [`KeyError`] rejects the request, with the status that its docs name.
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

/// No other crate can name this type, so no other crate can implement [`IntoClaims`].
#[derive(Debug)]
pub struct Sealed;

/// A value that a closure which extracts a key may return: what converts into a claim or into [`Claims`], several
/// claims as an array or a `Vec`, or an `Option` or `Result` of these. For a custom type, implement
/// `From<YourType> for Claims`: this trait is sealed, so that it can grow.
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

// So that the compiler's error for a closure shows the notes above, and not that its value does not convert into a
// `Key`.
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

impl From<HeaderValue> for Key {
    fn from(value: HeaderValue) -> Self {
        (&value).into()
    }
}

/// The first of two to four extractors that finds a key in the request: per account, else per address.
///
/// Only absence leads to the next extractor: [`KeyError::Missing`], [`KeyError::MissingExtension`] and an exemption
/// (`None`). A key that is empty, repeated or malformed rejects the request, so that a client cannot escape the limit
/// of its account with a wrong header. If no extractor finds a key, the answer of the last extractor counts.
///
/// Each extractor has a separate policy, so that an account named `1.2.3.4` shares no limit with the address `1.2.3.4`.
/// The first has the layer's policy, such as `concurrency`, and the others have `concurrency-2` and so on, unless their
/// claims name a policy: see [`map_claim`](KeyExtractor::map_claim).
///
/// An extension that the service has forgotten to insert is absent too, so the next extractor then applies to every
/// request. With the feature `tracing` each such request is logged at the level `DEBUG`.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, KeyExtractor, MemorySemaphore, key};
///
/// // Five requests for each account, two for each address of clients without one.
/// let anonymous = key::peer_ip().map_claim(|claim| claim.with_policy("anonymous").with_limit(2));
/// let by_account = key::first_of((key::header("x-account-id"), anonymous));
/// let layer = ConcurrencyLimitLayer::new(5, by_account, MemorySemaphore::new());
/// # drop(layer);
/// ```
pub fn first_of<T>(extractors: T) -> FirstOf<T>
where
    FirstOf<T>: KeyExtractor,
{
    FirstOf(extractors)
}

/// The extractor that [`first_of`] returns.
#[derive(Debug, Clone)]
#[must_use]
pub struct FirstOf<T>(T);

// The arguments are a type for each extractor, and after each type but the first its index in the tuple.
macro_rules! first_of {
    ($first:ident $($next:ident $place:tt)+) => {
        impl<$first: KeyExtractor, $($next: KeyExtractor),+> KeyExtractor for FirstOf<($first, $($next),+)> {
            fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
                let found = mark_place(0, self.0.0.extract(parts));
                $(
                    if !is_absent(&found) {
                        return found;
                    }
                    let found = mark_place($place, self.0.$place.extract(parts));
                )+
                found
            }
        }
    };
}

first_of!(A B 1);
first_of!(A B 1 C 2);
first_of!(A B 1 C 2 D 3);

/// Adds the place of the extractor to the claims that it has found, for the name of their policy.
fn mark_place(
    place: u16,
    found: Result<Option<Claims>, KeyError>,
) -> Result<Option<Claims>, KeyError> {
    let claims = found?;
    Ok(claims.map(|claims| claims.map(|claim| claim.of_alternative(place))))
}

fn is_absent(found: &Result<Option<Claims>, KeyError>) -> bool {
    match found {
        Ok(claims) => claims
            .as_ref()
            .is_none_or(|claims| claims.as_slice().is_empty()),
        Err(KeyError::MissingExtension { extension }) => {
            events::no_extension(extension);
            true
        }
        Err(error) => matches!(error, KeyError::Missing { .. }),
    }
}
