//! The first of several extractors.

use super::{KeyError, KeyExtractor};
use crate::{observe::events, semaphore::Claims};
use http::request::Parts;

/// The first of two to four extractors that finds a key in the request: per account, else per address.
///
/// Only absence leads to the next extractor: [`KeyError::Missing`], [`KeyError::MissingExtension`] and an
/// exemption (`None`). A key that is empty, repeated or malformed rejects the request, so that a client
/// cannot leave the limit of its account by a header that is wrong. Where no extractor finds a key, the
/// answer of the last one counts.
///
/// Each extractor has a policy of its own, so that an account named `1.2.3.4` shares no limit with the
/// address `1.2.3.4`: the first has the layer's, such as `concurrency`, and the others have `concurrency-2` and
/// so on, unless their claims name one, as [`map_claim`](KeyExtractor::map_claim) lets them.
///
/// An extension that the service has forgotten to insert is absent too, so then the next extractor counts for
/// everybody; with the feature `tracing` each such request is logged at the level `DEBUG`.
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

macro_rules! first_of {
    ($first:ident $($next:ident $place:tt)+) => {
        impl<$first: KeyExtractor, $($next: KeyExtractor),+> KeyExtractor for FirstOf<($first, $($next),+)> {
            fn extract(&self, parts: &Parts) -> Result<Option<Claims>, KeyError> {
                let found = at(0, self.0.0.extract(parts));
                $(
                    if !is_absent(&found) {
                        return found;
                    }
                    let found = at($place, self.0.$place.extract(parts));
                )+
                found
            }
        }
    };
}

first_of!(A B 1);
first_of!(A B 1 C 2);
first_of!(A B 1 C 2 D 3);

/// What the extractor at this place has found.
fn at(place: u16, found: Result<Option<Claims>, KeyError>) -> Result<Option<Claims>, KeyError> {
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
