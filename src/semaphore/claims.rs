//! The claims of one request.

use super::{AcquireError, Claim, ClaimError, MAX_CLAIMS, MAX_UNITS, Units};
use std::{
    cmp::Reverse,
    ops::{Deref, DerefMut},
    slice, vec,
};

/// The claims of one request: a permit of one limit, or of several together.
///
/// Several claims go from the narrowest limit to the widest, for example an account's, its
/// route's, the fleet's. A request gets a permit of each or of none:
///
/// - A claim that does not wait is granted by all limits, or refused by one of them. Then it takes nothing from the
///   others.
/// - A claim that waits joins the queue of the first limit that is full, and keeps its units of the narrower limits.
///   All requests go from narrow to wide, so no request waits without end, and the crowd of one account waits in the
///   account's own queue.
///
/// The order has to be the same for all requests. Two requests with the same limits in opposite orders may each hold
/// the units that the other waits for, until one wait is over.
///
/// An empty list of claims exempts the request, as `None` does.
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
pub struct Claims(Few<Claim>);

impl Claims {
    /// The claims, from the narrowest limit to the widest.
    #[inline]
    pub fn as_slice(&self) -> &[Claim] {
        &self.0
    }

    /// The only claim, for a custom store that takes one claim at a time. See [`Acquire`](super::Acquire) for an
    /// example.
    ///
    /// # Errors
    ///
    /// [`AcquireError::Invalid`] with [`ClaimError::Several`] for several claims, and with [`ClaimError::None`] for
    /// none.
    pub fn only(self) -> Result<Claim, AcquireError> {
        match self.0 {
            Few::One([claim]) => Ok(claim),
            Few::Several(claims) if claims.is_empty() => Err(ClaimError::None.into()),
            Few::Several(claims) => {
                let claims = claims.len();
                Err(ClaimError::Several { claims }.into())
            }
        }
    }

    /// Changes each claim.
    pub(crate) fn map(self, mut change: impl FnMut(Claim) -> Claim) -> Self {
        Self(match self.0 {
            Few::One([claim]) => Few::One([change(claim)]),
            Few::Several(claims) => Few::Several(claims.into_iter().map(change).collect()),
        })
    }

    /// Checks the claims as [`Claim::units`] does each.
    ///
    /// # Errors
    ///
    /// The error of [`Claim::units`] for the first wrong claim. [`AcquireError::Invalid`] without a claim, for more
    /// than [`MAX_CLAIMS`], for more than [`MAX_UNITS`] in total, or for two claims of one policy and key, because the
    /// second would wait for the first.
    pub fn check(&self) -> Result<(), AcquireError> {
        self.check_each(Claim::units)
    }

    /// As [`check`](Self::check), for a store that has [budgets](Claim::with_window). These come last, and the shortest
    /// window comes last of all.
    pub(crate) fn check_with_budgets(&self) -> Result<(), AcquireError> {
        self.check_each(Claim::check)
    }

    fn check_each(
        &self,
        check: impl Fn(&Claim) -> Result<Units, AcquireError>,
    ) -> Result<(), AcquireError> {
        let claims = self.as_slice();
        if claims.is_empty() {
            return Err(ClaimError::None.into());
        }
        if claims.len() > MAX_CLAIMS {
            let claims = claims.len();
            return Err(ClaimError::TooMany { claims }.into());
        }
        let (mut total, mut last) = (0, None);
        for (at, claim) in claims.iter().enumerate() {
            let units = check(claim)?;
            let is_same =
                |other: &Claim| other.key() == claim.key() && other.policy() == claim.policy();
            if claims[..at].iter().any(is_same) {
                return Err(ClaimError::Duplicate.into());
            }
            // A longer window is less, and no window is least.
            let window = units.budget.map(|budget| Reverse(budget.window));
            if window < last {
                return Err(ClaimError::BudgetOrder.into());
            }
            last = window;
            // Each count is at most `MAX_WEIGHT`, so the sum is small.
            total += units.count();
        }
        match total > MAX_UNITS {
            true => Err(ClaimError::TooManyUnits { units: total }.into()),
            false => Ok(()),
        }
    }
}

/// One value, or any other number of values. Most requests are under one limit, which needs no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Few<T> {
    One([T; 1]),
    Several(Vec<T>),
}

impl<T> Deref for Few<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl<T> DerefMut for Few<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => one,
            Self::Several(several) => several,
        }
    }
}

impl<T> Few<T> {
    /// Makes `count` values, each from its number.
    #[inline]
    pub(crate) fn from_fn(count: usize, mut make: impl FnMut(usize) -> T) -> Self {
        match count {
            1 => Self::One([make(0)]),
            count => Self::Several((0..count).map(make).collect()),
        }
    }
}

impl<T> FromIterator<T> for Few<T> {
    #[inline]
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all = all.into_iter();
        match (all.next(), all.next()) {
            (Some(only), None) => Self::One([only]),
            (first, second) => Self::Several(first.into_iter().chain(second).chain(all).collect()),
        }
    }
}

impl<C: Into<Claim>> From<C> for Claims {
    #[inline]
    fn from(claim: C) -> Self {
        Self(Few::One([claim.into()]))
    }
}

impl<const N: usize> From<[Claim; N]> for Claims {
    fn from(claims: [Claim; N]) -> Self {
        Vec::from(claims).into()
    }
}

impl From<Vec<Claim>> for Claims {
    fn from(claims: Vec<Claim>) -> Self {
        Self(match <[Claim; 1]>::try_from(claims) {
            Ok(one) => Few::One(one),
            Err(several) => Few::Several(several),
        })
    }
}

impl FromIterator<Claim> for Claims {
    fn from_iter<I: IntoIterator<Item = Claim>>(claims: I) -> Self {
        Self(claims.into_iter().collect())
    }
}

impl IntoIterator for Claims {
    type Item = Claim;
    type IntoIter = vec::IntoIter<Claim>;

    fn into_iter(self) -> Self::IntoIter {
        match self.0 {
            Few::One(one) => Vec::from(one).into_iter(),
            Few::Several(several) => several.into_iter(),
        }
    }
}

impl<'a> IntoIterator for &'a Claims {
    type Item = &'a Claim;
    type IntoIter = slice::Iter<'a, Claim>;

    fn into_iter(self) -> Self::IntoIter {
        self.as_slice().iter()
    }
}
