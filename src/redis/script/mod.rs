//! The three scripts: one function each, and nothing else sends them.
//!
//! A script works on one semaphore after the other, so that one call serves many: what a call
//! costs the server beyond its work, and both sides to send and to read, is shared by all.

mod call;
mod part;
mod source;

pub(super) use call::Reply;
pub(super) use part::{Claims, Group, Place, by_name, chunks};

use super::{
    answer::{Answer, Held},
    connection::Connection,
    error::Error,
    lease::Lease,
};
use part::Ids;
use source::Script;
use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

/// The scripts, and the way to where they run.
pub(super) struct Scripts {
    connection: Connection,
    ids: Ids,
    /// The server has refused a call for several semaphores.
    apart: AtomicBool,
    acquire: Script,
    refresh: Script,
    release: Script,
}

impl Scripts {
    pub(super) fn new(connection: Connection, process: Arc<str>, lease_ms: u64) -> Self {
        Self {
            connection,
            ids: Ids { process, lease_ms },
            apart: AtomicBool::new(false),
            acquire: Script::new(include_str!("../acquire.lua")),
            refresh: Script::new(include_str!("../refresh.lua")).on_held(),
            release: Script::new(include_str!("../release.lua")),
        }
    }

    /// How long an acquire may take: two timeouts, since it may be sent twice.
    pub(super) fn budget(&self) -> Duration {
        self.connection.timeout() * 2
    }

    /// Takes a permit, or a place in a line.
    pub(super) async fn acquire_one(
        &self,
        lease: &Arc<Lease>,
        place: Option<Place>,
    ) -> Result<Answer, Error> {
        let answers = self.acquire(&[Claims::one(lease, place)]).await;
        answers.into_iter().next().unwrap_or(Err(Error::Reply))
    }

    /// Takes permits, or places in a line. As many answers as there are claims, in their order.
    /// Where the connection has broken, asks once more on the next.
    pub(super) async fn acquire(&self, all: &[Claims]) -> Vec<Result<Answer, Error>> {
        let broken = |answer: &Result<_, Error>| answer.as_ref().is_err_and(Error::is_disconnect);
        let mut answers = self.run(&self.acquire, self.ids.lease_ms, all).await;
        if answers.iter().any(broken) {
            answers = self.run(&self.acquire, self.ids.lease_ms, all).await;
        }
        let counts = all.iter().map(|claims| claims.leases.len());
        let read = counts.zip(answers);
        read.flat_map(|(count, answer)| Answer::read_all(answer, count))
            .collect()
    }

    /// Moves the ends of leases. For each group, which of its units are held.
    pub(super) async fn refresh(&self, groups: &[Group]) -> Vec<Result<Held, Error>> {
        let replies = self.run(&self.refresh, self.ids.lease_ms, groups).await;
        replies
            .into_iter()
            .map(|reply| reply.and_then(Held::read))
            .collect()
    }

    /// Gives units back. For each group, which of its units were held if `ask`.
    pub(super) async fn release(&self, ask: bool, groups: &[Group]) -> Vec<Result<Held, Error>> {
        let replies = self.run(&self.release, u64::from(ask), groups).await;
        replies
            .into_iter()
            .map(|reply| reply.and_then(Held::read))
            .collect()
    }
}
