//! refresh: moves the ends of leases forward. See `refresh.lua`.

use super::{
    call::{Call, Protocol},
    release::{Answers, Group},
    script::Script,
};
use crate::redis::error::Error;
use std::{sync::LazyLock, time::Instant};

/// Concatenated at compile time.
static SCRIPT: LazyLock<Script> = LazyLock::new(|| {
    let source = concat!(include_str!("common.lua"), include_str!("refresh.lua"));
    Script::new("refresh", source, &[":held", ":token"])
});

impl Protocol {
    /// Moves the ends of leases forward. Returns for each group which of its units are held.
    pub(in crate::redis) async fn refresh(
        &self,
        groups: &[Group],
        deadline: Instant,
    ) -> Vec<Result<Answers, Error>> {
        let call = Call {
            script: &SCRIPT,
            head: &[self.owner.lease_ms],
            deadline,
            is_confirmed: true,
        };
        let replies = self.run(&call, groups).await;
        let answers = replies.into_iter();
        answers.map(|reply| reply.and_then(Answers::read)).collect()
    }
}
