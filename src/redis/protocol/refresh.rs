//! refresh: moves the ends of leases forward. See `refresh.lua`.

use super::{
    call::{Call, Protocol},
    command::{Group, Verb},
    release::Answers,
    script::Script,
};
use crate::redis::error::Error;
use std::{sync::LazyLock, time::Instant};

static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::of(Verb::Refresh));

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
