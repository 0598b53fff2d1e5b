//! The setting for claims while the store is unavailable.

use proto::core::OutagePolicy;

/// What becomes of a claim while the store is unavailable:
/// [`Builder::when_unavailable`](crate::redis::Builder::when_unavailable) sets it.
///
/// The store is unavailable when there is no connection, when it does not answer in time, and when
/// it answers that it cannot work: that it loads its data (`LOADING`), is a replica or lacks its
/// primary (`READONLY`, `MASTERDOWN`), lacks replicas or nodes (`NOREPLICAS`, `CLUSTERDOWN`), cannot
/// save (`MISCONF`), runs a long script (`BUSY`) or is out of memory (`OOM`). A limit that is
/// reached is none of these, nor is a mistake such as a permission that the user lacks.
///
/// If no node of a cluster serves a slot, the store is unavailable for the keys of that slot only. The two shares refuse
/// claims for these keys.
///
/// # Degraded permits
///
/// `Admit` and the two shares admit claims on permits that
/// [are degraded](crate::Permit::is_degraded), and permits that are held already are kept: when
/// their leases end they are degraded, not lost. Degraded permits are acquired as soon as the
/// store is back, with the chances of claims that do not wait, and every 5 s at least until there is
/// room. No work is ended by that. A permit cannot change its weight while it is degraded.
///
/// A claim that [is strict](crate::Claim::with_strict), as that of a lock, is always refused, and its
/// permit is lost when its lease ends.
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
    /// It is refused with [`AcquireError::Store`](crate::AcquireError::Store), in HTTP 503.
    #[default]
    Refuse,
    /// It is admitted. The limit does not hold for that time.
    ///
    /// Calls that time out are an outage whatever the cause: a process or a network that is so
    /// overloaded that answers come too late is one too, and then more is admitted.
    Admit,
    /// It is admitted if its units and those that this process holds of the key fit into its share: the
    /// limit divided by the number of processes that are alive, rounded up. Otherwise it is refused, as
    /// by [`Refuse`](Self::Refuse); so is a claim that is heavier than the share.
    ///
    /// Each store that shares the prefix counts as a process. The server tells how many there are three
    /// times per lease, every 5 s at least; what counts is the highest of the last two leases.
    ///
    /// All processes together exceed the limit by what is rounded up, if they have lost the server
    /// at the same time and none of them has more than its share at that time. What a process holds beyond
    /// its share, in long requests or streams, it keeps, and the others take their shares beside it:
    /// at worst one process holds the whole limit, and all together nearly twice as much, until that
    /// work ends. For one [`timeout`](crate::redis::Builder::timeout) after the first failure
    /// nothing is admitted, in case that the server has answered others, and so that short requests
    /// of a process that had more than its share have ended when another takes its own; a claim whose
    /// wait ends before that is decided within two timeouts. From the
    /// first failure on, also of a single call, until four timeouts and about three seconds after the first
    /// answer that follows it, claims need both a grant and a reservation in the share: others may have
    /// taken the failure for an outage, and by that time all have acquired their degraded permits.
    /// That time is over with the first answer if the server has answered other calls of this process
    /// within the last timeout, as when the threads of one of its runtimes are blocked. A process of
    /// which no call has failed knows of no outage: it may be granted what others admit. So give all
    /// processes the same timeout.
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
