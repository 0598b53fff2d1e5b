//! The setting that bounds what a failover forgets.

use super::{builder::Builder, connect_error::ConnectError};

impl Builder {
    /// Sets how many replicas must have a grant before it counts: 0 unless set.
    ///
    /// Replication is asynchronous, so a replica that takes the primary's place may lack its last
    /// grants, and up to the limit are granted again while their holders still run. With this setting a
    /// grant, a refresh or an operator's revocation counts only once so many replicas have it (`WAIT`). If it is the number of
    /// replicas that the primary has, a failover forgets no permit, and the limit and the order of tokens
    /// hold across it. If it is fewer, that is so as long as one that has them is promoted: Sentinels
    /// choose the one that has the most, but only among those that they reach, so a network that is split
    /// may leave them one that lacks some. The servers' clocks must agree to a twentieth of the
    /// [lease](Self::lease).
    ///
    /// - A claim takes as much longer as a replica takes to answer the primary. Claims that are in flight
    ///   together share that.
    /// - A server that has fewer replicas, or whose replicas do not answer within half of the
    ///   [timeout](Self::timeout), counts as unavailable: claims fail with
    ///   [`Error::NotReplicated`](super::Error::NotReplicated) or are decided by
    ///   [`when_unavailable`](Self::when_unavailable), and permits that cannot be refreshed are lost at
    ///   the end of their leases. After a failover that lasts until the new primary has as many
    ///   replicas, so run one more than this number.
    /// - A user whom an access control list restricts needs `+wait` too.
    ///
    /// The server's own `min-replicas-to-write` does not bound what a failover forgets: it tests whether
    /// replicas were there lately, not whether they have what is being granted.
    ///
    /// # Examples
    ///
    /// ```
    /// use tower_semaphore::RedisSemaphore;
    ///
    /// let builder = RedisSemaphore::builder().min_replicas(1);
    /// # drop(builder);
    /// ```
    pub fn min_replicas(mut self, min_replicas: u32) -> Self {
        self.min_replicas = min_replicas;
        self
    }

    /// `WAIT` holds up all that share a connection, and on a cluster it has no key to route it by.
    pub(super) fn check_not_supplied(&self) -> Result<(), ConnectError> {
        let reason = "a supplied connection cannot wait for replicas";
        match self.min_replicas {
            0 => Ok(()),
            _ => Err(ConnectError::setting("min_replicas", reason)),
        }
    }
}
