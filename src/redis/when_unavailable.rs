//! The setting for claims while the store is unavailable.

use proto::core::OutagePolicy;

/// The decision about claims while the store is unavailable.
/// [`Builder::when_unavailable`](crate::redis::Builder::when_unavailable) sets it.
///
/// The store is unavailable when it has no connection, when the server does not answer in time, and when the server
/// answers that it cannot work. The server cannot work while it loads its data (`LOADING`), is a replica or lacks its
/// primary (`READONLY`, `MASTERDOWN`), lacks replicas or nodes (`NOREPLICAS`, `CLUSTERDOWN`), cannot save (`MISCONF`),
/// runs a long script (`BUSY`) or is out of memory (`OOM`). A full key does not count, nor does a mistake such as a
/// missing permission.
///
/// If no node of a cluster serves a slot, the store is unavailable for the keys of that slot only. `Share` and
/// `ShareOf` refuse claims for these keys.
///
/// # Degraded permits
///
/// `Admit`, `Share` and `ShareOf` admit claims with permits that [are degraded](crate::Permit::is_degraded). Permits
/// that are already held are kept: when their leases end, they become degraded instead of lost. Degraded permits are
/// acquired as soon as the store is back, as claims that do not wait. If they do not fit, they are tried again at least
/// every 5 s. Their holders continue all the time. A permit cannot change its weight while it is degraded.
///
/// A claim that [is strict](crate::Claim::with_strict), such as that of a lock, is always refused, and a strict permit
/// is lost when its lease ends.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{RedisSemaphore, redis::WhenUnavailable};
///
/// let builder = RedisSemaphore::builder().when_unavailable(WhenUnavailable::Share);
/// # drop(builder);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[non_exhaustive]
pub enum WhenUnavailable {
    /// The claim is refused with [`AcquireError::Store`](crate::AcquireError::Store), which is status 503 in HTTP.
    #[default]
    Refuse,
    /// The claim is admitted. The limit does not hold during the outage.
    ///
    /// Timeouts count as an outage whatever their cause. So an overloaded process or network, in which answers come too
    /// late, admits more claims.
    Admit,
    /// The claim is admitted if its units, and the units of the key that this process already holds, fit into the share
    /// of this process. The share is the limit divided by the number of live processes, rounded up. Otherwise the claim
    /// is refused, as by [`Refuse`](Self::Refuse). So a claim that is heavier than the share is always refused.
    ///
    /// Each store that shares the prefix counts as a process. Their number is the highest that the server has reported
    /// in the last two leases.
    ///
    /// - If all processes lose the server at the same time, and none has more than its share then, they exceed the
    ///   limit together only by the rounding.
    /// - A process keeps the units that it has beyond its share until their work ends. Until then all processes
    ///   together have less than twice the limit.
    /// - A process that starts during the outage admits one unit of each key, so a deployment of *n* processes adds up
    ///   to *n* units.
    /// - For one [`timeout`](crate::redis::Builder::timeout) after the first failure nothing is admitted, because the
    ///   server may have answered other processes. A claim whose wait ends sooner is decided within two timeouts.
    /// - From the first failure, even of a single call, until some seconds after the server is back, a claim needs both
    ///   a grant and room in the share: other processes may have admitted claims that the server does not know.
    ///
    /// A process without a failed call does not know of the outage, and may be granted units that others admit. So give
    /// all processes the same timeout.
    Share,
    /// As [`Share`](Self::Share), with a fixed share: this fraction of the limit, rounded up. For
    /// fleets whose members have unequal load.
    ShareOf {
        /// From 0 to 1.
        fraction: f64,
    },
}

impl WhenUnavailable {
    pub(super) fn policy(self) -> OutagePolicy {
        match self {
            Self::Refuse => OutagePolicy::Refuse,
            Self::Admit => OutagePolicy::Admit,
            Self::Share => OutagePolicy::Share,
            Self::ShareOf { fraction } => OutagePolicy::ShareOf { fraction },
        }
    }
}
