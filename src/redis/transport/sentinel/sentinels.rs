//! The Sentinels, and the way to the primary.

use super::{
    answer::{self, Unnamed},
    heard::Heard,
    known::{Known, Primary},
    server_info::ServerInfo,
};
use crate::redis::transport::topology::{Line, Own, Slots, Topology};
use crate::{
    redis::{
        error::Error,
        transport::{
            address::{Address, Place},
            connection::timed_out,
        },
    },
    semaphore::BoxFuture,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{Client, ConnectionInfo};
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
        let before = self.known.generation();
        let clients = self.clients.iter();
        let answers = clients.map(|client| answer::query(client, &self.name));
        let mut answers: FuturesUnordered<_> = answers.collect();
        let most = self.clients.len() / 2 + 1;
        let mut heard = Heard::default();
        while let Some(answer) = answers.next().await {
            heard.add(answer);
            if heard.count() >= most && self.is_enough(&heard, most) {
                break;
            }
        }
        if self.address().is_none()
            && let Some(refusal) = heard.refusal(self.clients.len(), most)
        {
            return Err(refusal);
        }
        // What was said before another primary was found may be what that was found instead of.
        let is_of_most = heard.count() >= most && self.known.generation() == before;
        let best = heard.into_best(self.address().as_ref(), self.clients.len(), most);
        self.known.learn(best, is_of_most)
    }

    /// Whether those who are missing need not be waited for. Right after a failover most do not know of it
    /// yet, and while Sentinels are set up anew they may disagree.
    fn is_enough(&self, heard: &Heard, most: usize) -> bool {
        let best = heard.best(self.address().as_ref());
        best.is_some_and(|best| self.known.is_news(best) && heard.is_settled(best, most))
    }

    /// The address that is known now.
    fn address(&self) -> Option<Address> {
        self.known.primary().map(|primary| primary.address)
    }

    /// The primary that is known now, and whether Sentinels have just named it.
    async fn primary(&self) -> Result<(Primary, bool), Error> {
        let is_named = self.find_primary().await?;
        let primary = self.known.primary().ok_or_else(timed_out)?;
        Ok((primary, is_named))
    }

    async fn watch_all(&self) {
        for sentinel in self.clients.iter().cycle() {
            if self.watch_one(sentinel).await.is_err() {
                sleep(WATCH).await;
                // It may have ended because of a failover.
                let _ = self.find_primary().await;
            }
        }
    }

    /// Watches one Sentinel. What it says is a reason to query the others. Returns if it does not
    /// answer any more, and after each such reason.
    async fn watch_one(&self, sentinel: &Client) -> Result<(), Unnamed> {
        let connection = answer::connect(sentinel).await?;
        loop {
            sleep(WATCH).await;
            let named = answer::query_on(&connection, &self.name).await?;
            if self.address().is_none_or(|known| known != named.address) {
                return self.find_primary().await.map(drop);
            }
        }
    }
}

impl Topology for Sentinels {
    fn place(&self) -> Place {
        Place::Primary
    }

    fn address(&self, _: usize) -> String {
        self.address()
            .map_or_else(|| self.name.clone(), |address| address.to_string())
    }

    fn connect(self: Arc<Self>, _: usize) -> BoxFuture<Result<Line, Error>> {
        Box::pin(async move {
            let (primary, is_named) = self.primary().await?;
            let client = primary.address.client(&self.template);
            let mut own = Own::open(client.map_err(Error::unconnected)?).await?;
            let info = ServerInfo::of(own.direct.call(ServerInfo::commands())).await?;
            self.known.check(&primary, is_named, info)?;
            own.replaced = Some(self.known.replaced(&primary)?);
            Ok(own.into())
        })
    }

    fn slots(self: Arc<Self>, _: u64) -> BoxFuture<(u64, Slots)> {
        Box::pin(async move {
            self.watch_all().await;
            std::future::pending().await
        })
    }
}
