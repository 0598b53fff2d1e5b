//! The claims of one request.

use super::{AcquireError, Claim, ClaimError, Key, MAX_CLAIMS, MAX_UNITS, Policy};
use std::{slice, vec};

/// What one request claims: a permit of one limit, or of several together.
///
/// Several claims go from the narrowest limit to the widest, for example an account's, its
/// route's, the fleet's. A request gets a permit of each or of none:
///
/// - A claim that does not wait is granted by all limits, or refused by one of them. What refuses
///   it takes nothing from the others.
/// - A claim that waits joins the queue of the first limit that is full, and keeps what it has of
///   the narrower ones meanwhile. Everybody goes from narrow to wide, so nobody waits for ever,
///   and the crowd of one account stands in the account's own queue.
///
/// The order has to be the same for all requests. Two that have the same limits in opposite orders may
/// each hold what the other waits for, until the wait of one is over.
///
/// No claims at all exempt a request, as `None` does.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{Claim, ConcurrencyLimitLayer, MemorySemaphore, key};
///
/// let limits = key::from_fn(|parts| {
///     let account = parts.headers.get("x-account-id")?;
///     let route = parts.uri.path();
///     Some([
///         Claim::new(account).with_limit(5),
///         Claim::new(route).with_limit(100).with_policy("route"),
///         Claim::new("all").with_limit(1_000).with_policy("fleet"),
///     ])
/// });
/// let layer = ConcurrencyLimitLayer::new(5, limits, MemorySemaphore::new());
/// # drop(layer);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use]
pub struct Claims(Inner);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Inner {
    /// Most requests have one, which needs no allocation.
    One([Claim; 1]),
    Several(Vec<Claim>),
}

impl Claims {
    /// The claims, from the narrowest limit to the widest.
    pub fn as_slice(&self) -> &[Claim] {
        match &self.0 {
            Inner::One(one) => one,
            Inner::Several(several) => several,
        }
    }

    /// The only claim; all of them if they are not one.
    pub(crate) fn only(self) -> Result<Claim, Vec<Claim>> {
        match self.0 {
            Inner::One([claim]) => Ok(claim),
            Inner::Several(several) => Err(several),
        }
    }

    /// Changes each claim.
    pub(crate) fn map(self, change: impl FnMut(Claim) -> Claim) -> Self {
        match self.0 {
            Inner::One(one) => Self(Inner::One(one.map(change))),
            Inner::Several(several) => several.into_iter().map(change).collect(),
        }
    }

    /// Checks the claims as [`Claim::units`] does each.
    ///
    /// # Errors
    ///
    /// What [`Claim::units`] says of the first that is wrong, and [`AcquireError::Invalid`] if there
    /// is none, if there are more than [`MAX_CLAIMS`], if they are more than [`MAX_UNITS`] together, or if two of
    /// them are for one semaphore: the second would wait for the first.
    pub fn check(&self) -> Result<(), AcquireError> {
        check(self.as_slice())
    }
}

/// Checks the claims of one request.
pub(crate) fn check(claims: &[Claim]) -> Result<(), AcquireError> {
    if claims.is_empty() {
        return Err(ClaimError::None.into());
    }
    if claims.len() > MAX_CLAIMS {
        let claims = claims.len();
        return Err(ClaimError::TooMany { claims }.into());
    }
    for (at, claim) in claims.iter().enumerate() {
        claim.units()?;
        let is_same =
            |other: &Claim| other.key() == claim.key() && other.policy() == claim.policy();
        if claims[..at].iter().any(is_same) {
            return Err(ClaimError::Duplicate.into());
        }
    }
    // Each is within `MAX_WEIGHT` by now, so the sum is small.
    let units = claims.iter().map(Claim::weight).sum();
    if units > MAX_UNITS {
        return Err(ClaimError::TooManyUnits { units }.into());
    }
    Ok(())
}

/// The policy and the key of the narrowest limit.
pub(crate) fn narrowest(claims: &[Claim]) -> (Policy, Key) {
    match claims.first() {
        Some(claim) => (claim.policy().clone(), claim.key().clone()),
        None => (Policy::DEFAULT, Key::from("")),
    }
}

impl<C: Into<Claim>> From<C> for Claims {
    fn from(claim: C) -> Self {
        Self(Inner::One([claim.into()]))
    }
}

impl<const N: usize> From<[Claim; N]> for Claims {
    fn from(claims: [Claim; N]) -> Self {
        claims.into_iter().collect()
    }
}

impl From<Vec<Claim>> for Claims {
    fn from(mut claims: Vec<Claim>) -> Self {
        match claims.pop() {
            Some(only) if claims.is_empty() => Self(Inner::One([only])),
            last => {
                claims.extend(last);
                Self(Inner::Several(claims))
            }
        }
    }
}

impl FromIterator<Claim> for Claims {
    fn from_iter<I: IntoIterator<Item = Claim>>(claims: I) -> Self {
        claims.into_iter().collect::<Vec<_>>().into()
    }
}

impl IntoIterator for Claims {
    type Item = Claim;
    type IntoIter = vec::IntoIter<Claim>;

    fn into_iter(self) -> Self::IntoIter {
        let claims = match self.0 {
            Inner::One(one) => one.into(),
            Inner::Several(several) => several,
        };
        claims.into_iter()
    }
}

impl<'a> IntoIterator for &'a Claims {
    type Item = &'a Claim;
    type IntoIter = slice::Iter<'a, Claim>;

    fn into_iter(self) -> Self::IntoIter {
        self.as_slice().iter()
    }
}
