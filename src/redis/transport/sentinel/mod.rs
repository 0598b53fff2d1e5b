//! The primary that Sentinels name.
//!
//! Sentinels are queried for each connection, and once in a second whether there is another primary.
//! Most of them have to answer, because one that is cut off from the others names an old primary; the
//! latest failover counts, and if they disagree about that, what most of them say. A server that says that it is no primary is not used, so an old primary
//! that comes back gets no claim once it knows its role.
//!
//! While too few answer, the primary that they named last stays, unless it has been started again.

mod answer;

use super::{
    attempt,
    connection::timed_out,
    topology::{Address, Line, Own, Place, Slots, Topology},
};
use crate::{redis::error::Error, semaphore::BoxFuture};
use answer::{Heard, Named, ServerInfo, is_wrong_name};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use redis::{Client, ConnectionInfo};
use std::{future::pending, io, sync::Arc, time::Duration};
use tokio::{sync::watch, time::sleep};

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
    pub(in crate::redis) async fn find_primary(&self) -> Result<bool, Error> {
        let before = self.known.generation();
        let clients = self.clients.iter();
        let answers = clients.map(|client| answer::query(client, &self.name));
        let mut answers: FuturesUnordered<_> = answers.collect();
        let mut heard = Heard::of(self.clients.len());
        while let Some(answer) = answers.next().await {
            heard.add(answer);
            if heard.is_of_most() && self.is_enough(&heard) {
                break;
            }
        }
        if self.address().is_none()
            && let Some(refusal) = heard.refusal()
        {
            return Err(refusal);
        }
        // What was said before another primary was found may be what that was found instead of.
        let is_of_most = heard.is_of_most() && self.known.generation() == before;
        let best = heard.into_best(self.address().as_ref());
        self.known.learn(best, is_of_most)
    }

    /// Whether the Sentinels that have not answered need not be waited for. Right after a failover most do not know of it
    /// yet, and while Sentinels are set up anew they may disagree.
    fn is_enough(&self, heard: &Heard) -> bool {
        let best = heard.best(self.address().as_ref());
        best.is_some_and(|best| self.known.is_news(best) && heard.is_settled(best))
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

    /// Watches one Sentinel. What it says is a reason to query the others. Returns when it stops
    /// answering, and after each such reason.
    async fn watch_one(&self, sentinel: &Client) -> Result<(), Error> {
        let connection = answer::within(attempt::connect(sentinel)).await?;
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
            let info = ServerInfo::of(&own.connection).await?;
            self.known.check(&primary, is_named, info)?;
            own.replaced = Some(self.known.replaced(&primary)?);
            Ok(Line::Own(Arc::new(own)))
        })
    }

    fn slots(self: Arc<Self>, _: u64) -> BoxFuture<(u64, Slots)> {
        Box::pin(async move {
            self.watch_all().await;
            pending().await
        })
    }
}

/// The last primary that was named.
#[derive(Default)]
struct Known {
    primary: Mutex<Option<Primary>>,
    /// Grows with each change of the primary.
    generation: watch::Sender<u64>,
}

#[derive(Clone)]
struct Primary {
    address: Address,
    epoch: u64,
    generation: u64,
    /// What it said of itself when Sentinels had named it.
    run_id: Option<String>,
}

impl Known {
    fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Tells when another primary takes the place of this one. It fails if one has.
    fn replaced(&self, primary: &Primary) -> Result<watch::Receiver<u64>, Error> {
        let replaced = self.generation.subscribe();
        let is_current = *replaced.borrow() == primary.generation;
        is_current.then_some(replaced).ok_or_else(|| gone(REPLACED))
    }

    fn primary(&self) -> Option<Primary> {
        self.primary.lock().clone()
    }

    /// Whether the failover of an answer is at least as late as the last one that is known.
    fn is_news(&self, answer: &Named) -> bool {
        let known = self.primary.lock().as_ref().map(|primary| primary.epoch);
        Some(answer.epoch) >= known
    }

    /// Takes the best answer of the Sentinels, whether or not a majority has answered. Most are followed,
    /// even if they know of fewer failovers, because they may have been set up anew. Fewer are only if
    /// they know of a later one. Returns whether Sentinels have named the primary that is known now; fewer
    /// than most count as that only until it has said who it is.
    fn learn(&self, answer: Result<Named, Error>, is_of_most: bool) -> Result<bool, Error> {
        let mut known = self.primary.lock();
        match (answer, &mut *known) {
            (Ok(named), Some(primary)) if named.address == primary.address => {
                let epoch = if is_of_most { 0 } else { primary.epoch };
                primary.epoch = named.epoch.max(epoch);
                Ok(is_of_most || primary.run_id.is_none())
            }
            (Ok(named), Some(primary)) if !is_of_most && named.epoch <= primary.epoch => Ok(false),
            (Ok(_), None) if !is_of_most => {
                // Most Sentinels have to answer before anything is known.
                Err(gone("too few of the Sentinels answer"))
            }
            (Ok(named), primary) => {
                *primary = Some(self.succeeded(named));
                Ok(true)
            }
            (Err(error), Some(_)) if !is_wrong_name(&error) => Ok(false),
            (Err(error), _) => Err(error),
        }
    }

    fn succeeded(&self, named: Named) -> Primary {
        self.generation.send_modify(|generation| *generation += 1);
        Primary {
            address: named.address,
            epoch: named.epoch,
            generation: self.generation(),
            run_id: None,
        }
    }

    /// Judges what the primary says of itself: it has to be one. If too few Sentinels have answered, it
    /// must not have been started again since they did, because it may be empty then, and another one
    /// may have taken its place.
    fn check(&self, primary: &Primary, is_named: bool, info: ServerInfo) -> Result<(), Error> {
        if !info.is_primary {
            return Err(gone(NO_PRIMARY));
        }
        if !is_named && (info.run_id.is_none() || info.run_id != primary.run_id) {
            return Err(gone(UNKNOWN));
        }
        let mut known = self.primary.lock();
        let known = known
            .as_mut()
            .filter(|known| known.generation == primary.generation);
        if let Some(known) = known {
            known.run_id = info.run_id;
        }
        Ok(())
    }
}

const REPLACED: &str = "another primary has taken the place of this one meanwhile";
const NO_PRIMARY: &str = "the server that the Sentinels name is no primary";
const UNKNOWN: &str = "too few Sentinels answer, and the server was started again since they did";

fn gone(why: &str) -> Error {
    Error::unconnected(io::Error::other(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16, epoch: u64) -> Named {
        let host = "here".to_owned();
        let address = Address { host, port };
        Named { address, epoch }
    }

    fn named(port: u16, epoch: u64) -> Result<Named, Error> {
        Ok(name(port, epoch))
    }

    /// A primary that most Sentinels have named.
    fn known() -> Known {
        let known = Known::default();
        assert!(matches!(known.learn(named(1, 5), true), Ok(true)));
        known
    }

    fn port(known: &Known) -> Option<u16> {
        known.primary().map(|primary| primary.address.port)
    }

    #[test]
    fn few_sentinels_are_followed_only_if_they_know_of_a_later_failover() {
        let known = known();
        assert!(matches!(known.learn(named(2, 5), false), Ok(false)));
        assert!(matches!(known.learn(named(1, 2), false), Ok(true)));
        assert!(matches!(known.learn(named(2, 4), false), Ok(false)));
        assert_eq!((port(&known), known.generation()), (Some(1), 1));
        assert!(matches!(known.learn(named(2, 6), false), Ok(true)));
        assert_eq!((port(&known), known.generation()), (Some(2), 2));
        assert!(Known::default().learn(named(1, 5), false).is_err());
    }

    #[test]
    fn most_sentinels_are_followed_but_those_with_a_later_failover_are_waited_for() {
        let known = known();
        assert!(!known.is_news(&name(2, 4)) && known.is_news(&name(2, 5)));
        assert!(matches!(known.learn(named(2, 1), true), Ok(true)));
        assert_eq!(port(&known), Some(2));
        assert!(known.is_news(&name(2, 1)));
    }

    fn info(run_id: Option<&str>) -> ServerInfo {
        ServerInfo {
            is_primary: true,
            run_id: run_id.map(ToOwned::to_owned),
        }
    }

    #[test]
    fn without_sentinels_a_server_must_not_have_been_started_again() {
        let known = known();
        let check = |is_named, run_id| {
            let primary = known.primary().expect("it is known");
            known.check(&primary, is_named, info(run_id)).is_ok()
        };
        assert!(!check(false, None) && !check(false, Some("a")));
        assert!(check(true, Some("a")) && check(false, Some("a")));
        assert!(!check(false, Some("b")) && !check(false, None));
        assert!(check(true, Some("b")) && !check(false, Some("a")));
    }
}
