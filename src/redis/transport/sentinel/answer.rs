//! What one Sentinel answers.

use crate::{
    redis::{
        error::{Error, after},
        transport::{
            address::Address,
            attempt::{self, Unfit},
            connection::{Connection, timed_out, too_late},
        },
    },
    semaphore::timer::timeout_at,
};
use redis::{Client, Cmd, Value, cmd};
use std::{io, time::Duration};

/// How long a Sentinel may take to answer, a new connection included.
pub(super) const ANSWER: Duration = Duration::from_millis(500);

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
    let named = async { named(&connect(sentinel).await?, name).await };
    within(named).await
}

/// Connects to a Sentinel.
pub(super) async fn connect(sentinel: &Client) -> Result<Connection, Unnamed> {
    let connection = async {
        let connection = attempt::connect(sentinel).await;
        connection.map_err(Unnamed::Unavailable)
    };
    within(connection).await
}

/// Queries the Sentinel at the other end of a connection.
pub(super) async fn query_on(connection: &Connection, name: &str) -> Result<Named, Unnamed> {
    within(named(connection, name)).await
}

async fn within<T>(answer: impl Future<Output = Result<T, Unnamed>>) -> Result<T, Unnamed> {
    let answer = timeout_at(after(ANSWER), answer).await;
    answer.unwrap_or_else(|late| Err(Unnamed::Unavailable(too_late(late))))
}

async fn named(connection: &Connection, name: &str) -> Result<Named, Unnamed> {
    let commands = ["GET-MASTER-ADDR-BY-NAME", "MASTER"].map(|command| about(command, name));
    let mut replies = connection.call(commands.into()).await.into_iter();
    let (Some(address), Some(details)) = (replies.next(), replies.next()) else {
        return Err(Unnamed::Unavailable(timed_out()));
    };
    let address =
        address.map_err(|error| Unnamed::Unavailable(Error::unconnected(error.into_cause())))?;
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

/// Most Sentinels have to answer before anything is known.
pub(super) fn too_few() -> Unnamed {
    let few = io::Error::other("too few of the Sentinels answer");
    Unnamed::Unavailable(Error::unconnected(few))
}
