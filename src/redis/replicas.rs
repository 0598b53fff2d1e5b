//! How many replicas must have a grant.

use super::builder::Builder;

impl Builder {
    /// Sets how many replicas must have a grant before it counts: 0 unless set. With 0 a failover may
    /// forget the last grants and refreshes, because replication is asynchronous, and then admit up to
    /// the limit again. With as many as the primary has replicas, a failover forgets no permit.
    pub fn min_replicas(mut self, min_replicas: u32) -> Self {
        self.min_replicas = min_replicas;
        self
    }
}
