//! The answers of Sentinels, and the answers of a primary about itself.

use crate::redis::{
    error::{CallError, deadline_after, finish_by},
    fault::Unfit,
    transport::{
        address::Address,
        attempt::timed_out,
        connection::{Connection, field, no_connection},
    },
};
use redis::{Cmd, Value, cmd, from_redis_value};
use std::{collections::HashMap, time::Duration};

/// How long a server may take to answer, including a new connection.
const ANSWER: Duration = Duration::from_millis(500);

/// The primary, as a Sentinel names it.
#[derive(Clone)]
pub(super) struct NamedPrimary {
    pub(super) address: Address,
    /// The epoch of the failover that made it the primary.
    pub(super) epoch: u64,
}

/// Returns an answer, or an error if it does not come within `ANSWER`.
pub(super) async fn within<T>(
    answer: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    finish_by(deadline_after(ANSWER), timed_out(), answer).await
}

/// The primary of this name, as the Sentinel at the other end of a connection knows it.
pub(super) async fn query_primary(
    connection: &Connection,
    name: &str,
) -> Result<NamedPrimary, CallError> {
    let about = |command: &str| cmd("SENTINEL").arg(command).arg(name).take();
    let commands = ["GET-MASTER-ADDR-BY-NAME", "MASTER"].map(about);
    let (address, details) = required_and_optional(connection, commands).await?;
    let unknown = |_| CallError::unconnected(Unfit::WrongName);
    let (host, port) = from_redis_value(address).map_err(unknown)?;
    Ok(NamedPrimary {
        address: Address { host, port },
        epoch: details.and_then(epoch).unwrap_or_default(),
    })
}

fn epoch(details: Value) -> Option<u64> {
    let details: HashMap<String, String> = from_redis_value(details).ok()?;
    details.get("config-epoch")?.parse().ok()
}

/// The replies to two commands. The server may forbid the second, which then has none.
async fn required_and_optional(
    connection: &Connection,
    commands: [Cmd; 2],
) -> Result<(Value, Option<Value>), CallError> {
    let mut replies = connection.call(commands.into()).await.into_iter();
    let needed = replies.next().ok_or_else(timed_out)?;
    let needed = needed.map_err(|error| CallError::unconnected(error.into_cause()))?;
    Ok((needed, replies.next().and_then(Result::ok)))
}

/// The answers of Sentinels so far.
pub(super) struct SentinelAnswers {
    named: Vec<NamedPrimary>,
    errors: Vec<CallError>,
    /// The number of all Sentinels.
    sentinels: usize,
}

impl SentinelAnswers {
    pub(super) fn new(sentinels: usize) -> Self {
        Self {
            named: Vec::new(),
            errors: Vec::new(),
            sentinels,
        }
    }

    pub(super) fn add(&mut self, answer: Result<NamedPrimary, CallError>) {
        match answer {
            Ok(named) => self.named.push(named),
            Err(error) => self.errors.push(error),
        }
    }

    /// True if this number is a majority of the Sentinels.
    fn is_majority(&self, count: usize) -> bool {
        count > self.sentinels / 2
    }

    /// True if a majority of the Sentinels have named a primary.
    pub(super) fn is_majority_named(&self) -> bool {
        self.is_majority(self.named.len())
    }

    /// The primary of the latest failover. If Sentinels name several for the same failover, returns the one with most
    /// votes, or the known primary if votes are equal.
    pub(super) fn best(&self, known: Option<&Address>) -> Option<&NamedPrimary> {
        let rank = |named: &&NamedPrimary| {
            let is_known = Some(&named.address) == known;
            (named.epoch, self.votes(named), is_known)
        };
        self.named.iter().max_by_key(rank)
    }

    /// True if a majority of the Sentinels name this primary, or if none names another primary of the same failover.
    pub(super) fn is_settled(&self, best: &NamedPrimary) -> bool {
        let of_epoch = |named: &&NamedPrimary| named.epoch == best.epoch;
        let votes = self.votes(best);
        self.is_majority(votes) || votes == self.named.iter().filter(of_epoch).count()
    }

    /// The number of Sentinels that name this primary.
    fn votes(&self, primary: &NamedPrimary) -> usize {
        let is_same = |named: &&NamedPrimary| {
            named.epoch == primary.epoch && named.address == primary.address
        };
        self.named.iter().filter(is_same).count()
    }

    /// The reason why most Sentinels have named no primary. An error that a person must correct counts only if a
    /// majority can no longer name a primary, even if all remaining Sentinels do.
    pub(super) fn error(&self) -> CallError {
        let refusals = self
            .errors
            .iter()
            .filter(|error| explanation_rank(error) > 0);
        let error = match self.is_majority(self.sentinels - refusals.clone().count()) {
            false => refusals.max_by_key(|error| explanation_rank(error)),
            true if !self.named.is_empty() => {
                return no_connection("too few of the Sentinels answer");
            }
            true => self
                .errors
                .iter()
                .min_by_key(|error| explanation_rank(error)),
        };
        error.cloned().unwrap_or_else(timed_out)
    }
}

/// True if the Sentinels know no primary of the name.
pub(super) fn is_wrong_name(error: &CallError) -> bool {
    explanation_rank(error) == 2
}

/// Ranks an error by how well it explains why no primary is known. 0: another answer may come a moment later. 1: a
/// person must correct the cause. 2: the Sentinels do not know the name.
fn explanation_rank(error: &CallError) -> u8 {
    let CallError::Unavailable(error) = error else {
        return 1;
    };
    match Unfit::find_in(error) {
        Some(Unfit::WrongName) => 2,
        Some(_) => 1,
        None => (!error.is_io_error()).into(),
    }
}

/// The `run_id` of a primary, which changes with each start. Empty if this user may not run `INFO`. Fails if the server
/// is not a primary.
pub(super) async fn run_id(server: &Connection) -> Result<String, CallError> {
    let commands = [cmd("ROLE"), cmd("INFO").arg("server").take()];
    let (role, info) = within(required_and_optional(server, commands)).await?;
    let is_master = |role: &Value| *role == Value::BulkString(b"master".to_vec());
    if !matches!(role, Value::Array(role) if role.first().is_some_and(is_master)) {
        return Err(no_connection(
            "the server that the Sentinels name is no primary",
        ));
    }
    let info: Option<String> = info.and_then(|info| from_redis_value(info).ok());
    let run_id = info.as_deref().and_then(|info| field(info, "run_id"));
    Ok(run_id.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        let host = "here".to_owned();
        Address { host, port }
    }

    /// `named` has the port and the epoch that each Sentinel has named. Returns the port of the best primary, and true
    /// if that is settled.
    fn best(named: &[(u16, u64)], known: u16) -> (Option<u16>, bool) {
        let mut answers = SentinelAnswers::new(3);
        for (port, epoch) in named {
            let (address, epoch) = (address(*port), *epoch);
            answers.add(Ok(NamedPrimary { address, epoch }));
        }
        let best = answers.best(Some(&address(known)));
        let is_settled = best.is_some_and(|best| answers.is_settled(best));
        (best.map(|best| best.address.port), is_settled)
    }

    #[test]
    fn the_latest_failover_counts_then_most_sentinels_then_the_primary_that_is_known() {
        assert_eq!(best(&[], 1), (None, false));
        assert_eq!(best(&[(1, 5), (1, 5), (2, 7)], 1), (Some(2), true));
        assert_eq!(best(&[(2, 5), (1, 5), (2, 5)], 1), (Some(2), true));
        assert_eq!(best(&[(1, 5), (2, 5)], 1), (Some(1), false));
        assert_eq!(best(&[(1, 5), (2, 5)], 2), (Some(2), false));
    }
}
