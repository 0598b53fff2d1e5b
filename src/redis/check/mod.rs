//! What can be known of a server before a claim needs it.

mod risk;
pub(super) mod together;

use super::{
    clock::after, connect_error::ConnectError, error::Error, mistake::Judge, protocol::Inspected,
    shared::Store,
};
use crate::semaphore::timer::timeout_at;
use futures_util::future::join;
use std::time::{Duration, Instant};

pub use risk::Risk;
pub(super) use together::Checks;

/// How long a check may take.
const BOUND: Duration = Duration::from_secs(1);

impl Store {
    /// See [`RedisSemaphore::check`](super::RedisSemaphore::check).
    pub(super) async fn check(&self) -> Result<Vec<Risk>, ConnectError> {
        let deadline = after(BOUND);
        let checked = self.checks.run(|| self.check_until(deadline));
        let checked = timeout_at(deadline, checked).await;
        checked.unwrap_or_else(|late| Err(self.judge().connecting(late.or(Error::Timeout(BOUND)))))
    }

    async fn check_until(&self, deadline: Instant) -> Result<Vec<Risk>, ConnectError> {
        let (protocol, judge) = (self.protocol(), self.judge());
        self.check_well().map_err(|error| judge.connecting(error))?;
        let subscribed = self.check_messages(deadline);
        let (inspected, subscribed) = join(self.inspected(deadline), subscribed).await;
        let inspected = inspected.map_err(|error| judge.connecting(error))?;
        inspected
            .field("run_id")
            .iter()
            .for_each(|id| self.is_at(id));
        let mut risks = inspected.risks(&judge)?;
        inspected.verdict(&judge)?;
        if !protocol.is_one_server() {
            risks.retain(|risk| *risk != Risk::ClusterNode);
        } else if risks.contains(&Risk::ClusterNode) {
            let elsewhere = protocol.elsewhere(deadline).await;
            elsewhere.map_err(|error| judge.connecting(error))?;
        }
        subscribed.map_err(|error| judge.judge("SUBSCRIBE", error))?;
        Ok(risks)
    }

    fn judge(&self) -> Judge<'_> {
        Judge {
            place: self.protocol().place(),
            prefix: &self.prefix,
        }
    }

    /// A call that a busy machine has delayed is repeated, while there is time.
    async fn inspected(&self, deadline: Instant) -> Result<Inspected, Error> {
        let channel = format!("{}wake:check", self.prefix);
        loop {
            match self.protocol().inspect(&channel, deadline).await {
                Err(Error::Timeout(_)) if Instant::now() < deadline => {}
                // The last attempt had only what was left.
                Err(Error::Timeout(_)) => return Err(Error::Timeout(BOUND)),
                inspected => return inspected,
            }
        }
    }
}

impl Inspected {
    /// Fails with what a person has to mend. What may pass is an error only if no server works: on a
    /// cluster one that is down harms its own keys.
    fn verdict(&self, judge: &Judge<'_>) -> Result<(), ConnectError> {
        let mut passing = None;
        for (command, error) in &self.failed {
            match judge.judge(command, error.clone()) {
                error @ ConnectError::Unavailable(_) => passing.get_or_insert(error),
                error => return Err(error),
            };
        }
        match passing {
            Some(error) if !self.works => Err(error),
            _ => Ok(()),
        }
    }

    fn risks(&self, judge: &Judge<'_>) -> Result<Vec<Risk>, ConnectError> {
        match &self.info {
            Ok(_) => {}
            Err(error) if error.is_an_answer() => return Ok(vec![Risk::NoInfo]),
            Err(_) => return Ok(Vec::new()),
        }
        if self.field("redis_mode") == Some("sentinel") {
            return Err(judge.is_sentinel());
        }
        if self.field("role") == Some("slave") {
            return Err(judge.replica());
        }
        if let Some(found) = self.field("redis_version").filter(|found| is_old(found)) {
            let found = found.to_owned();
            return Err(ConnectError::Version { found });
        }
        let policy = self.field("maxmemory_policy");
        let may_evict = |policy: &&str| *policy != "noeviction";
        let is_bounded = self.field("maxmemory").is_some_and(|bytes| bytes != "0");
        let evicts = policy.filter(may_evict).filter(|_| is_bounded);
        let eviction = evicts.map(|policy| Risk::Eviction {
            policy: policy.to_owned(),
        });
        let is_node = self.field("cluster_enabled") == Some("1");
        Ok(eviction
            .into_iter()
            .chain(is_node.then_some(Risk::ClusterNode))
            .collect())
    }

    /// A field of `INFO`.
    fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.info.as_ref().ok()?.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
    }
}

/// Whether a version is below 6.2. One that cannot be read is not.
fn is_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < (6, 2),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
