//! refresh: moves the ends of leases forward. See `refresh.lua`.

use super::{Answers, Group, Protocol, call::Call};
use crate::redis::error::Error;
use std::time::Instant;

impl Protocol {
    /// Moves the ends of leases forward. For each group, which of its units are held.
    pub(in crate::redis) async fn refresh(
        &self,
        groups: &[Group],
        deadline: Instant,
    ) -> Vec<Result<Answers, Error>> {
        let call = Call {
            script: &self.refresh,
            head: &[self.owner.lease_ms],
            deadline,
        };
        let replies = self.run(&call, groups).await;
        let answers = replies.into_iter();
        answers.map(|reply| reply.and_then(Answers::read)).collect()
    }
}
