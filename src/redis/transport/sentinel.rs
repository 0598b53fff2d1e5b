//! The primary that Sentinels name.
//!
//! Sentinels are queried for each connection, and once in a second whether there is another primary.
//! Most of them have to answer, because one that is cut off from the others names an old primary; the
//! latest failover counts. A server that says that it is no primary is not used, so an old primary
//! that comes back gets no claim once it knows its role.

use super::{
    address::Address,
    connection::{Connection, timed_out},
    endpoint::Endpoint,
};
use crate::{redis::error::Error, semaphore::BoxFuture};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use redis::{Client, Cmd, ConnectionInfo, RedisError, Value, cmd};
use std::{io, sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// How long a Sentinel may take to answer, a new connection included.
const ANSWER: Duration = Duration::from_millis(500);

/// How often a Sentinel is queried whether there is another primary.
const WATCH: Duration = Duration::from_secs(1);

/// See the module docs.
pub(in crate::redis) struct Sentinels {
    clients: Vec<Client>,
    /// The name of the primary and its replicas.
    name: String,
    /// How to connect to a primary, but for its address.
    template: ConnectionInfo,
    /// The last primary that was named.
    primary: Mutex<Option<Address>>,
}

/// What a Sentinel knows of the primary.
struct Named {
    address: Address,
    /// The epoch of the failover that made it one.
    epoch: u64,
}

/// Why no primary is known.
pub(in crate::redis) enum Unnamed {
    /// The Sentinels know no primary of this name.
    WrongName,
    /// No Sentinel answers, or none is allowed to.
    Unavailable(RedisError),
}

impl Sentinels {
    pub(in crate::redis) fn new(
        clients: Vec<Client>,
        name: String,
        template: ConnectionInfo,
    ) -> Self {
        Self {
            clients,
            name,
            template,
            primary: Mutex::new(None),
        }
    }

    /// Finds the primary that the Sentinels name, until most have answered or their time is over.
    pub(in crate::redis) async fn find_primary(&self) -> Result<(), Unnamed> {
        let mut answers: FuturesUnordered<_> = self
            .clients
            .iter()
            .map(|client| self.query(client))
            .collect();
        let mut missing = self.clients.len() / 2 + 1;
        let mut best = Err(Unnamed::Unavailable(timed_out()));
        while let Some(answer) = answers.next().await {
            missing -= usize::from(answer.is_ok());
            best = better(best, answer);
            if missing == 0 {
                break;
            }
        }
        *self.primary.lock() = Some(best?.address);
        Ok(())
    }

    async fn query(&self, client: &Client) -> Result<Named, Unnamed> {
        let named = async {
            let connection = Connection::connect(client).await;
            self.named(&connection.map_err(Unnamed::Unavailable)?).await
        };
        let named = timeout(ANSWER, named).await;
        named.unwrap_or_else(|_| Err(Unnamed::Unavailable(timed_out())))
    }

    /// Queries the Sentinel at the other end of a connection.
    async fn named(&self, connection: &Connection) -> Result<Named, Unnamed> {
        let commands = ["GET-MASTER-ADDR-BY-NAME", "MASTER"].map(|command| self.about(command));
        let mut replies = connection.call(commands.into()).await.into_iter();
        let (Some(address), Some(details)) = (replies.next(), replies.next()) else {
            return Err(Unnamed::Unavailable(timed_out()));
        };
        let address = address.map_err(|error| Unnamed::Unavailable(error.into_cause()))?;
        Ok(Named {
            address: read_address(address).ok_or(Unnamed::WrongName)?,
            epoch: details.ok().and_then(epoch).unwrap_or_default(),
        })
    }

    fn about(&self, command: &str) -> Cmd {
        cmd("SENTINEL").arg(command).arg(&self.name).take()
    }

    fn current(&self) -> Option<Address> {
        self.primary.lock().clone()
    }

    /// The client of the primary that was last named.
    fn current_client(&self) -> Result<Client, RedisError> {
        let address = self.current().ok_or_else(timed_out)?;
        address.client(&self.template)
    }

    /// Waits until a Sentinel names another primary than before. Returns if it does not answer any
    /// more.
    async fn watch(&self, sentinel: &Client) -> Result<(), Unnamed> {
        let connection = timeout(ANSWER, Connection::connect(sentinel)).await;
        let connection = connection.unwrap_or_else(|_| Err(timed_out()));
        let connection = connection.map_err(Unnamed::Unavailable)?;
        loop {
            sleep(WATCH).await;
            let named = timeout(ANSWER, self.named(&connection)).await;
            let named = named.unwrap_or_else(|_| Err(Unnamed::Unavailable(timed_out())))?;
            if self.current().as_ref() != Some(&named.address) {
                return Ok(());
            }
        }
    }
}

impl Endpoint for Sentinels {
    fn client(self: Arc<Self>) -> BoxFuture<Result<Client, RedisError>> {
        Box::pin(async move {
            self.find_primary().await.map_err(RedisError::from)?;
            self.current_client()
        })
    }

    fn connect(self: Arc<Self>) -> BoxFuture<Result<Connection, RedisError>> {
        Box::pin(async move {
            let client = Arc::clone(&self).client().await?;
            let connection = Connection::connect(&client).await?;
            match is_primary(&connection).await? {
                true => Ok(connection),
                false => Err(io::Error::other(NO_PRIMARY).into()),
            }
        })
    }

    fn is_current(&self, client: &Client) -> bool {
        Address::of(client.get_connection_info()) == self.current()
    }

    /// One Sentinel is watched. What it says is a reason to query the others.
    fn moved(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            for sentinel in self.clients.iter().cycle() {
                let before = self.current();
                if self.watch(sentinel).await.is_err() {
                    sleep(WATCH).await;
                }
                if self.find_primary().await.is_ok() && self.current() != before {
                    return;
                }
            }
        })
    }
}

const NO_PRIMARY: &str = "the server that the Sentinels name is no primary";

async fn is_primary(connection: &Connection) -> Result<bool, RedisError> {
    let reply = timeout(ANSWER, connection.call(vec![cmd("ROLE")])).await;
    let mut replies = reply.map_err(|_| timed_out())?;
    let role = replies.pop().ok_or_else(timed_out)?;
    let role = role.map_err(Error::into_cause)?;
    let is_master = |role: &Value| *role == Value::BulkString(b"master".to_vec());
    Ok(matches!(role, Value::Array(role) if role.first().is_some_and(is_master)))
}

/// The name of the later failover; of two failures the one that says more.
fn better(one: Result<Named, Unnamed>, other: Result<Named, Unnamed>) -> Result<Named, Unnamed> {
    match (&one, &other) {
        (Ok(first), Ok(second)) if first.epoch >= second.epoch => one,
        (Ok(_) | Err(Unnamed::WrongName), Err(_)) => one,
        _ => other,
    }
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

impl From<Unnamed> for RedisError {
    fn from(unnamed: Unnamed) -> Self {
        match unnamed {
            Unnamed::WrongName => io::Error::other("no Sentinel knows the primary's name").into(),
            Unnamed::Unavailable(error) => error,
        }
    }
}
