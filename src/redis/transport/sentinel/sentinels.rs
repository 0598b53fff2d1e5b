//! The Sentinels, and the way to the primary.

use super::{
    answer::{self, Unnamed},
    known::{Known, Primary},
    server_info::ServerInfo,
};
use crate::{
    redis::transport::{
        address::Address,
        connection::{Connection, timed_out},
        endpoint::{Connected, Endpoint},
    },
    semaphore::BoxFuture,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ConnectionInfo, RedisError};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// How often a Sentinel is queried whether there is another primary.
const WATCH: Duration = Duration::from_secs(1);

/// See the [module docs](super).
pub(in crate::redis) struct Sentinels {
    clients: Vec<Client>,
    /// The name of the primary and its replicas.
    name: String,
    /// How to connect to a primary, but for its address.
    template: ConnectionInfo,
    known: Known,
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
            known: Known::default(),
        }
    }

    /// Finds the primary that the Sentinels name, until most have answered or their time is over.
    /// Returns whether it was they who named it; if too few answer, it is the last one.
    pub(in crate::redis) async fn find_primary(&self) -> Result<bool, Unnamed> {
        let clients = self.clients.iter();
        let answers = clients.map(|client| answer::query(client, &self.name));
        let mut answers: FuturesUnordered<_> = answers.collect();
        let mut missing = self.clients.len() / 2 + 1;
        let mut best = Err(Unnamed::Unavailable(timed_out()));
        while let Some(answer) = answers.next().await {
            missing = missing.saturating_sub(usize::from(answer.is_ok()));
            best = answer::better(best, answer);
            // Right after a failover most do not know of it yet.
            if missing == 0 && self.known.is_news(&best) {
                break;
            }
        }
        self.known.learn(best, missing == 0)
    }

    /// The primary that is known now, and whether Sentinels have just named it.
    async fn primary(&self) -> Result<(Primary, bool), RedisError> {
        let is_named = self.find_primary().await?;
        let primary = self.known.primary().ok_or_else(timed_out)?;
        Ok((primary, is_named))
    }

    /// Watches one Sentinel. What it says is a reason to query the others. Returns if it does not
    /// answer any more, and after each such reason.
    async fn watch_one(&self, sentinel: &Client) -> Result<(), Unnamed> {
        let connection = answer::connect(sentinel).await?;
        loop {
            sleep(WATCH).await;
            let named = answer::query_on(&connection, &self.name).await?;
            let known = self.known.primary();
            if known.is_none_or(|known| known.address != named.address) {
                return self.find_primary().await.map(drop);
            }
        }
    }
}

impl Endpoint for Sentinels {
    fn client(self: Arc<Self>) -> BoxFuture<Result<Client, RedisError>> {
        Box::pin(async move {
            let (primary, _) = self.primary().await?;
            primary.address.client(&self.template)
        })
    }

    fn connect(self: Arc<Self>) -> BoxFuture<Result<Connected, RedisError>> {
        Box::pin(async move {
            let (primary, is_named) = self.primary().await?;
            let client = primary.address.client(&self.template)?;
            let connection = Connection::connect(&client).await?;
            let info = ServerInfo::of(&connection).await?;
            self.known.check(&primary, is_named, info)?;
            Ok((connection, primary.generation))
        })
    }

    fn is_current(&self, client: &Client) -> bool {
        let known = self.known.primary().map(|primary| primary.address);
        Address::of(client.get_connection_info()) == known
    }

    fn generation(&self) -> u64 {
        self.known.generation()
    }

    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            for sentinel in self.clients.iter().cycle() {
                if self.watch_one(sentinel).await.is_err() {
                    sleep(WATCH).await;
                    // It may have ended because of a failover.
                    let _ = self.find_primary().await;
                }
            }
        })
    }
}
