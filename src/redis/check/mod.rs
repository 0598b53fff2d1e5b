//! What can be known of a server before a claim needs it.

mod risk;
pub(super) mod together;

use super::{
    clock::after, connect_error::ConnectError, error::Error, protocol::Inspected, shared::Store,
};
use redis::{ErrorKind, RedisError};
use std::time::{Duration, Instant};
use tokio::time::timeout_at;

pub use risk::Risk;

/// How long a check may take.
const BOUND: Duration = Duration::from_secs(1);

impl Store {
    /// See [`RedisSemaphore::check`](super::RedisSemaphore::check).
    pub(super) async fn check(&self) -> Result<Vec<Risk>, ConnectError> {
        let deadline = after(BOUND);
        let checked = self.checks.run(|| self.check_until(deadline));
        let late = || ConnectError::connecting(Error::Timeout(BOUND));
        let checked = timeout_at(deadline.into(), checked).await;
        checked.unwrap_or_else(|_| Err(late()))
    }

    async fn check_until(&self, deadline: Instant) -> Result<Vec<Risk>, ConnectError> {
        let channel = format!("{}wake:check", self.prefix);
        let protocol = &self.dispatch.attempts().protocol;
        let inspected = protocol.inspect(&channel, deadline);
        let inspected = inspected.await.map_err(ConnectError::connecting)?;
        let mut risks = inspected.risks()?;
        if !protocol.is_one_server() {
            risks.retain(|risk| *risk != Risk::ClusterNode);
        }
        for (command, said) in &inspected.failed {
            self.permitted(command, said)?;
        }
        if let Some((command, said)) = inspected.failed.into_iter().next() {
            let said = format!("{command}: {said}");
            let error = RedisError::from((ErrorKind::Client, "a command fails just now", said));
            return Err(ConnectError::Unavailable(error));
        }
        if let Err(error) = self.notifications.check(deadline).await {
            self.may_subscribe(error.into_cause())?;
        }
        Ok(risks)
    }

    fn may_subscribe(&self, error: RedisError) -> Result<(), ConnectError> {
        self.permitted("SUBSCRIBE", &error.to_string())?;
        Err(ConnectError::Unavailable(error))
    }

    /// What is missing if the server said this of a command; nothing if it cannot run it just now.
    fn permitted(&self, command: &str, said: &str) -> Result<(), ConnectError> {
        let pattern = format!("{}*", self.prefix);
        let said = said.to_lowercase();
        let is_about = |what| said.contains(what);
        // Whole phrases, because the text may have the user's name.
        if ["of the channels", "the channel", "a channel"]
            .into_iter()
            .any(is_about)
        {
            return Err(ConnectError::Channels { pattern });
        }
        if ["of the keys", "access a key"].into_iter().any(is_about) {
            return Err(ConnectError::Keys { pattern });
        }
        let is_refused = ["permission", "can't run", "unknown", "not allowed"];
        match is_refused.into_iter().any(is_about) {
            true => Err(ConnectError::Command {
                name: command.to_owned(),
            }),
            false => Ok(()),
        }
    }
}

impl Inspected {
    fn risks(&self) -> Result<Vec<Risk>, ConnectError> {
        if self.info.is_none() {
            return Ok(vec![Risk::NoInfo]);
        }
        if self.field("role") == Some("slave") {
            return Err(ConnectError::Replica);
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
        let mut lines = self.info.as_ref()?.lines();
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
