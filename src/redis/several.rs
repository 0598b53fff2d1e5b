//! The way of several claims together: as of one, in the same round trips.

use super::{
    dispatch::{Claim as Sent, Level},
    outage::Reservation,
    protocol::Acquired,
    shared::{RedisGrant, Store},
    wait::Wanted,
};
use crate::semaphore::{AcquireError, Claim, Permit};
use std::{sync::Arc, time::Instant};

impl Store {
    /// Whether one call may serve several semaphores. Where their keys may live on several nodes
    /// it goes level by level instead.
    pub(super) fn takes_several(&self) -> bool {
        self.dispatch.attempts().protocol.takes_several()
    }

    /// Acquires for claims from the narrowest limit to the widest: all or none.
    pub(super) async fn acquire_all(
        self: &Arc<Self>,
        claims: &[Claim],
        deadline: Instant,
        reserved: Option<Reservation<'_>>,
    ) -> Result<Permit, AcquireError> {
        self.open()?;
        let serials = self.serials(claims.len());
        // From here on, a drop releases what was claimed.
        let grants = serials
            .clone()
            .zip(claims)
            .map(|(serial, claim)| Ok(self.lease(claim, claim.units()?, serial)));
        let grants = grants.collect::<Result<Vec<_>, AcquireError>>()?;
        // A shutdown that has missed these leases has set `closed` before this check.
        self.check_open()?;
        let leases = grants.iter().map(|grant| Arc::clone(&grant.lease));
        let wanted: Vec<Wanted> = leases.zip(claims.iter().map(Claim::wait)).collect();
        let answer = match wanted.iter().any(|(_, wait)| wait.is_some()) {
            true => self.wait(&wanted, serials).await,
            false => self.try_all(&wanted, deadline).await,
        };
        if let Some((lease, _)) = wanted.first() {
            self.outage.note(lease, &answer);
        }
        let answer = answer?;
        self.check_open()?;
        match answer {
            Acquired::Granted(granted) => {
                let leases: Vec<_> = wanted.into_iter().map(|(lease, _)| lease).collect();
                self.granted(&leases, reserved).await?;
                permit(grants, claims, &granted)
            }
            Acquired::Revoked => Err(AcquireError::Revoked),
            Acquired::Full { level, held } => Err(AcquireError::full(&claims[level], held)),
            Acquired::QueueFull { level, .. } | Acquired::Queued { level, .. } => {
                let limit = claims[level].limit().unwrap_or_default();
                Err(AcquireError::full(&claims[level], limit))
            }
        }
    }

    async fn try_all(
        &self,
        wanted: &[Wanted],
        deadline: Instant,
    ) -> Result<Acquired, AcquireError> {
        let leases: Vec<_> = wanted.iter().map(|(lease, _)| Arc::clone(lease)).collect();
        let full = |answer: &Acquired| match answer {
            Acquired::Full { level, .. } => Some(*level),
            _ => None,
        };
        self.try_twice(&leases, deadline, full, || {
            let levels = leases.iter().cloned().map(|lease| Level {
                lease,
                position: None,
            });
            let claim = Sent {
                levels: levels.collect(),
                deadline,
            };
            self.dispatch.acquire(claim)
        })
        .await
    }
}

/// One permit for what was granted at all levels.
fn permit(
    grants: Vec<RedisGrant>,
    claims: &[Claim],
    granted: &[(u64, u32)],
) -> Result<Permit, AcquireError> {
    let levels = grants.into_iter().zip(claims).zip(granted);
    let permits = levels.map(|((grant, claim), (_, held))| grant.permit(claim, *held));
    Permit::join(permits.collect::<Result<_, AcquireError>>()?)
}
