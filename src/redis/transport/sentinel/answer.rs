//! What Sentinels answer, and what a server says of itself.

use crate::redis::{
    error::{Error, after, by},
    transport::{
        attempt::{self, Unfit},
        connection::{Connection, timed_out},
        topology::Address,
    },
};
use redis::{Client, Cmd, Value, cmd};
use std::{io, time::Duration};

/// How long a Sentinel may take to answer, a new connection included.
const ANSWER: Duration = Duration::from_millis(500);

/// What a Sentinel knows of the primary.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) address: Address,
    /// The epoch of the failover that made it one.
    pub(super) epoch: u64,
}

/// Why no primary is known.
pub(in crate::redis) enum Unnamed {
    /// The Sentinels know no primary of this name.
    WrongName,
    /// No Sentinel answers, or none is allowed to.
    Unavailable(Error),
}

impl Unnamed {
    /// How much it says: nothing if another answer may come a moment later.
    pub(super) fn says(&self) -> u8 {
        match self {
            Self::WrongName => 2,
            Self::Unavailable(Error::Unavailable(error)) => {
                (!error.is_io_error() || Unfit::of(error).is_some()).into()
            }
            Self::Unavailable(_) => 1,
        }
    }
}

/// Connects to a Sentinel, and queries it for the primary of this name.
pub(super) async fn query(sentinel: &Client, name: &str) -> Result<Named, Unnamed> {
    within(async { named(&attempt::connect(sentinel).await?, name).await }).await
}

/// Queries the Sentinel at the other end of a connection.
pub(super) async fn query_on(connection: &Connection, name: &str) -> Result<Named, Unnamed> {
    within(named(connection, name)).await
}

/// An answer that comes in time.
pub(super) async fn within<T, E: From<Error>>(
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    by(after(ANSWER), timed_out(), answer).await
}

async fn named(connection: &Connection, name: &str) -> Result<Named, Unnamed> {
    let commands = ["GET-MASTER-ADDR-BY-NAME", "MASTER"].map(|command| about(command, name));
    let mut replies = connection.call(commands.into()).await.into_iter();
    let (Some(address), Some(details)) = (replies.next(), replies.next()) else {
        return Err(timed_out().into());
    };
    let address = address.map_err(|error| Error::unconnected(error.into_cause()))?;
    Ok(Named {
        address: read_address(address).ok_or(Unnamed::WrongName)?,
        epoch: details.ok().and_then(epoch).unwrap_or_default(),
    })
}

fn about(command: &str, name: &str) -> Cmd {
    cmd("SENTINEL").arg(command).arg(name).take()
}

fn read_address(reply: Value) -> Option<Address> {
    let (host, port) = redis::from_redis_value(reply).ok()?;
    Some(Address { host, port })
}

fn epoch(details: Value) -> Option<u64> {
    let details: Vec<(String, String)> = redis::from_redis_value(details).ok()?;
    let (_, epoch) = details
        .into_iter()
        .find(|(name, _)| name == "config-epoch")?;
    epoch.parse().ok()
}

impl From<Error> for Unnamed {
    fn from(error: Error) -> Self {
        Self::Unavailable(error)
    }
}

impl From<Unnamed> for Error {
    fn from(unnamed: Unnamed) -> Self {
        match unnamed {
            Unnamed::WrongName => {
                Self::unconnected(io::Error::other("no Sentinel knows the primary's name"))
            }
            Unnamed::Unavailable(error) => error,
        }
    }
}

/// The answers so far.
#[derive(Default)]
pub(super) struct Heard {
    named: Vec<Named>,
    /// How many have refused to name one.
    refusals: usize,
    /// The refusal that says most.
    refusal: Option<Unnamed>,
    /// Why one has not answered.
    silence: Option<Unnamed>,
}

impl Heard {
    pub(super) fn add(&mut self, answer: Result<Named, Unnamed>) {
        match answer {
            Ok(named) => self.named.push(named),
            Err(silence) if silence.says() == 0 => self.silence = Some(silence),
            Err(error) => {
                self.refusals += 1;
                let says_more = |known: &Unnamed| error.says() > known.says();
                if self.refusal.as_ref().is_none_or(says_more) {
                    self.refusal = Some(error);
                }
            }
        }
    }

    /// Why no primary will be named by most of so many Sentinels, however long the others take.
    pub(super) fn refusal(&mut self, of: usize, most: usize) -> Option<Unnamed> {
        let refused = self.refusals + most > of;
        self.refusal.take_if(|_| refused)
    }

    /// How many Sentinels have named a primary.
    pub(super) fn count(&self) -> usize {
        self.named.len()
    }

    /// The primary of the latest failover. If Sentinels disagree about that, it is the one that more of
    /// them name, or else the one that is known.
    pub(super) fn best(&self, known: Option<&Address>) -> Option<&Named> {
        let rank = |named: &&Named| {
            let is_known = Some(&named.address) == known;
            (named.epoch, self.votes(named), is_known)
        };
        self.named.iter().max_by_key(rank)
    }

    /// Whether so many Sentinels name this primary, or none another one of the same failover.
    pub(super) fn is_settled(&self, best: &Named, most: usize) -> bool {
        let of_epoch = |named: &&Named| named.epoch == best.epoch;
        let votes = self.votes(best);
        votes >= most || votes == self.named.iter().filter(of_epoch).count()
    }

    /// The same of so many Sentinels, or why there is none: while others might name one, because they have
    /// not answered.
    pub(super) fn into_best(
        mut self,
        known: Option<&Address>,
        of: usize,
        most: usize,
    ) -> Result<Named, Unnamed> {
        let best = self.best(known).cloned();
        let refusal = self.refusal(of, most);
        let error = refusal.or(self.silence).or(self.refusal);
        best.ok_or_else(|| error.unwrap_or_else(|| timed_out().into()))
    }

    fn votes(&self, one: &Named) -> usize {
        let is_same = |named: &&Named| named.epoch == one.epoch && named.address == one.address;
        self.named.iter().filter(is_same).count()
    }
}

/// What a server says of itself.
pub(super) struct ServerInfo {
    pub(super) is_primary: bool,
    /// Another one after each start; `None` if the server does not tell it to this user.
    pub(super) run_id: Option<String>,
}

impl ServerInfo {
    pub(super) async fn of(server: &Connection) -> Result<Self, Error> {
        let commands = vec![cmd("ROLE"), cmd("INFO").arg("server").take()];
        let replies = within(async { Ok::<_, Error>(server.call(commands).await) });
        let mut replies = replies.await?.into_iter();
        let role = replies.next().ok_or_else(timed_out)?;
        let role = role.map_err(|error| Error::unconnected(error.into_cause()))?;
        let is_master = |role: &Value| *role == Value::BulkString(b"master".to_vec());
        Ok(Self {
            is_primary: matches!(role, Value::Array(role) if role.first().is_some_and(is_master)),
            run_id: replies.next().and_then(Result::ok).and_then(run_id),
        })
    }
}

fn run_id(info: Value) -> Option<String> {
    let info: String = redis::from_redis_value(info).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("run_id:"))?;
    Some(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        let host = "here".to_owned();
        Address { host, port }
    }

    fn best(answers: &[(u16, u64)], known: u16) -> (Option<u16>, bool) {
        let mut heard = Heard::default();
        for (port, epoch) in answers {
            let (address, epoch) = (address(*port), *epoch);
            heard.add(Ok(Named { address, epoch }));
        }
        let best = heard.best(Some(&address(known)));
        let is_settled = best.is_some_and(|best| heard.is_settled(best, 2));
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
