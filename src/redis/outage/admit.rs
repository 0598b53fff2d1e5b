//! Degraded permits for claims that the policy admits.

use super::share::Reservation;
use crate::{
    redis::shared::{RedisGrant, Store},
    semaphore::{AcquireError, Claim, Permit},
};
use std::{iter, sync::Arc};

impl Store {
    /// Admits a claim without the server.
    pub(super) fn admit(
        self: &Arc<Self>,
        claims: &[Claim],
        reserved: Option<Reservation<'_>>,
    ) -> Result<Permit, AcquireError> {
        let serials = self.serials(claims.len());
        let grants = serials.zip(claims).map(|(serial, claim)| {
            let grant = self.lease(claim, claim.units()?, serial);
            grant.lease.admitted();
            Ok(grant)
        });
        let grants = grants.collect::<Result<Vec<_>, AcquireError>>()?;
        let left = reserved.as_ref().map(|reserved| reserved.left.clone());
        if let Some(reserved) = reserved {
            let leases: Vec<_> = grants
                .iter()
                .map(|grant| Arc::clone(&grant.lease))
                .collect();
            reserved.pass_on(&leases);
        }
        // A shutdown that has missed these leases has set `closed` before this check.
        self.check_open()?;
        let left = left.into_iter().flatten().map(Some);
        let levels = grants
            .into_iter()
            .zip(claims)
            .zip(left.chain(iter::repeat(None)));
        let permits = levels.map(|((grant, claim), left)| degraded(grant, claim, left));
        Permit::join(permits.collect::<Result<_, AcquireError>>()?)
    }
}

/// A degraded permit, with so many units left to this process.
fn degraded(grant: RedisGrant, claim: &Claim, left: Option<u32>) -> Result<Permit, AcquireError> {
    let units = claim.units()?;
    let left = left.unwrap_or(units.limit() - units.weight());
    grant.permit(claim, units.limit() - left)
}
