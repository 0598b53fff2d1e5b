//! The primary that Sentinels name.
//!
//! Sentinels are queried before each connection, and once a second for a new primary. A majority must answer, because a
//! Sentinel that is cut off from the others names an old primary. The latest failover counts. If Sentinels disagree
//! about that, the primary that most of them name counts. A server that reports to be no primary is not used, so an old
//! primary that comes back gets no claim once it knows its role.
//!
//! While too few Sentinels answer, the primary that they named last stays, unless it has restarted.

mod answer;

use super::{
    address::Address,
    attempt::{self, Inquiry, timed_out},
    connection::{Connection, no_connection},
    endpoint::Endpoint,
    topology::{ServerRole, Topology},
};
use crate::{
    redis::error::CallError,
    semaphore::{BoxFuture, timer::Backoff},
};
use answer::{NamedPrimary, SentinelAnswers, is_wrong_name, query_primary, run_id, within};
use futures_util::{StreamExt, stream::FuturesUnordered};
use parking_lot::Mutex;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time::sleep};

/// The interval at which a Sentinel is queried for a new primary.
const WATCH: Duration = Duration::from_secs(1);

/// See the module docs.
pub(in crate::redis) struct Sentinels {
    endpoints: Vec<Endpoint>,
    /// The name of the primary and its replicas.
    name: String,
    /// The settings for connections to a primary, except for its address.
    template: Endpoint,
    known: Mutex<KnownPrimary>,
}

impl Sentinels {
    pub(in crate::redis) fn new(
        endpoints: Vec<Endpoint>,
        name: String,
        template: Endpoint,
    ) -> Self {
        Self {
            endpoints,
            name,
            template,
            known: Mutex::default(),
        }
    }

    /// Queries the Sentinels for the primary, until most have answered or their time is over. If too few answer, the
    /// last primary stays, unless they know of a later failover. Returns true if Sentinels have named the primary that
    /// is now known.
    pub(in crate::redis) async fn find_primary(&self, inquiry: Inquiry) -> Result<bool, CallError> {
        let before = self.known.lock().generation;
        let endpoints = self.endpoints.iter();
        let queries = endpoints.map(|sentinel| {
            let connecting = attempt::connect(sentinel, inquiry);
            within(async { query_primary(&connecting.await?, &self.name).await })
        });
        let mut pending: FuturesUnordered<_> = queries.collect();
        let mut answers = SentinelAnswers::new(self.endpoints.len());
        while let Some(answer) = pending.next().await {
            answers.add(answer);
            if answers.is_majority_named() && self.known.lock().is_enough(&answers) {
                break;
            }
        }
        let mut known = self.known.lock();
        // If another search has found a new primary in the meantime, these answers may still name the old one.
        let is_majority = answers.is_majority_named() && known.generation == before;
        // The first primary must be named by a majority.
        let answer = match answers.best(known.address()) {
            Some(best) if is_majority || known.primary.is_some() => Ok(best.clone()),
            _ => Err(answers.error()),
        };
        known.learn(answer, is_majority)
    }

    /// Watches one Sentinel. When it names another primary, queries all Sentinels and returns. Also returns when it
    /// stops answering.
    async fn watch_one(&self, sentinel: &Endpoint) -> Result<(), CallError> {
        let connection = within(attempt::connect(sentinel, Inquiry::Skip)).await?;
        loop {
            sleep(WATCH).await;
            let named = within(query_primary(&connection, &self.name)).await?;
            if self.known.lock().address() != Some(&named.address) {
                return self.find_primary(Inquiry::Skip).await.map(drop);
            }
        }
    }
}

impl Topology for Sentinels {
    fn role(&self) -> ServerRole {
        ServerRole::Primary
    }

    fn address(&self, _: usize) -> String {
        let known = self.known.lock();
        let address = known.address().map(Address::to_string);
        address.unwrap_or_else(|| self.name.clone())
    }

    fn connect(
        self: Arc<Self>,
        _: usize,
        inquiry: Inquiry,
    ) -> BoxFuture<Result<Arc<Connection>, CallError>> {
        Box::pin(async move {
            let is_named = self.find_primary(inquiry).await?;
            let (endpoint, tenure) = {
                let known = self.known.lock();
                let primary = known.primary.as_ref().ok_or_else(timed_out)?;
                let endpoint = self.template.at(&primary.address);
                (endpoint, primary.tenure.subscribe())
            };
            let connection = attempt::connect(&endpoint, inquiry).await?;
            let run_id = run_id(&connection).await?;
            let mut known = self.known.lock();
            let connection = connection.during(tenure)?;
            known.check(is_named, run_id)?;
            Ok(connection)
        })
    }

    fn watch(self: Arc<Self>) -> BoxFuture<()> {
        Box::pin(async move {
            let (start, mut backoff) = (Instant::now(), Backoff::default());
            for sentinel in self.endpoints.iter().cycle() {
                if self.watch_one(sentinel).await.is_err() {
                    sleep(WATCH + backoff.fail(start.elapsed())).await;
                    // The connection may have ended because of a failover.
                    let _ = self.find_primary(Inquiry::Skip).await;
                }
            }
        })
    }
}

/// The last primary that was named.
#[derive(Default)]
struct KnownPrimary {
    primary: Option<Primary>,
    /// Grows with each change of the primary.
    generation: u64,
}

struct Primary {
    address: Address,
    epoch: u64,
    /// Its `run_id` when Sentinels had named it. `None` before the first connection to it.
    run_id: Option<String>,
    /// The tenure of the primary, which ends when another one takes its place.
    tenure: watch::Sender<()>,
}

impl KnownPrimary {
    fn address(&self) -> Option<&Address> {
        self.primary.as_ref().map(|primary| &primary.address)
    }

    /// True if the Sentinels that have not answered need not be waited for. Right after a failover most do not know of
    /// it yet, and while Sentinels are set up again they may disagree.
    fn is_enough(&self, answers: &SentinelAnswers) -> bool {
        let best = answers.best(self.address());
        best.is_some_and(|best| self.is_current(best) && answers.is_settled(best))
    }

    /// True if the failover of an answer is at least as late as the last known failover.
    fn is_current(&self, answer: &NamedPrimary) -> bool {
        Some(answer.epoch) >= self.primary.as_ref().map(|primary| primary.epoch)
    }

    /// Takes the best answer of the Sentinels. `is_majority` is true if a majority has answered. A majority is followed
    /// even if it knows of fewer failovers, because the Sentinels may have been set up again. A minority is followed
    /// only if it knows of a later failover. Returns true if Sentinels have named the primary that is now known. For
    /// that, a minority counts only until the `run_id` of the primary is known.
    fn learn(
        &mut self,
        answer: Result<NamedPrimary, CallError>,
        is_majority: bool,
    ) -> Result<bool, CallError> {
        let named = match (answer, &mut self.primary) {
            (Ok(named), Some(primary)) if named.address == primary.address => {
                let epoch = if is_majority { 0 } else { primary.epoch };
                primary.epoch = named.epoch.max(epoch);
                return Ok(is_majority || primary.run_id.is_none());
            }
            (Ok(named), Some(primary)) if !is_majority && named.epoch <= primary.epoch => {
                return Ok(false);
            }
            (Err(error), Some(_)) if !is_wrong_name(&error) => return Ok(false),
            (answer, _) => answer?,
        };
        self.generation += 1;
        self.primary = Some(Primary {
            address: named.address,
            epoch: named.epoch,
            run_id: None,
            tenure: watch::Sender::default(),
        });
        Ok(true)
    }

    /// Checks the `run_id` of the primary. `is_named` is false if too few Sentinels answer now. Then the primary must
    /// not have restarted since they last did, because it may be empty, and another server may have taken its place.
    /// Without the right to run `INFO`, a restart cannot be detected.
    fn check(&mut self, is_named: bool, run_id: String) -> Result<(), CallError> {
        let known = self.primary.as_mut().ok_or_else(timed_out)?;
        if !is_named && run_id.is_empty() {
            return Err(no_connection(UNKNOWN_RESTART));
        }
        if !is_named && known.run_id.as_ref() != Some(&run_id) {
            let why = "too few Sentinels answer, and the server was started again since they did";
            return Err(no_connection(why));
        }
        known.run_id = Some(run_id);
        Ok(())
    }
}

const UNKNOWN_RESTART: &str = "too few Sentinels answer, and without INFO it is not known \
    whether the server was started again since they did";

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16, epoch: u64) -> NamedPrimary {
        let host = "here".to_owned();
        let address = Address { host, port };
        NamedPrimary { address, epoch }
    }

    fn named(port: u16, epoch: u64) -> Result<NamedPrimary, CallError> {
        Ok(name(port, epoch))
    }

    /// A primary that most Sentinels have named.
    fn known() -> KnownPrimary {
        let mut known = KnownPrimary::default();
        assert!(matches!(known.learn(named(1, 5), true), Ok(true)));
        known
    }

    fn port(known: &KnownPrimary) -> Option<u16> {
        known.address().map(|address| address.port)
    }

    #[test]
    fn few_sentinels_are_followed_only_if_they_know_of_a_later_failover() {
        let mut known = known();
        assert!(matches!(known.learn(named(2, 5), false), Ok(false)));
        assert!(matches!(known.learn(named(1, 2), false), Ok(true)));
        assert!(matches!(known.learn(named(2, 4), false), Ok(false)));
        assert_eq!((port(&known), known.generation), (Some(1), 1));
        assert!(matches!(known.learn(named(2, 6), false), Ok(true)));
        assert_eq!((port(&known), known.generation), (Some(2), 2));
    }

    #[test]
    fn most_sentinels_are_followed_but_those_with_a_later_failover_are_waited_for() {
        let mut known = known();
        assert!(!known.is_current(&name(2, 4)) && known.is_current(&name(2, 5)));
        assert!(matches!(known.learn(named(2, 1), true), Ok(true)));
        assert_eq!(port(&known), Some(2));
        assert!(known.is_current(&name(2, 1)));
    }

    #[test]
    fn without_sentinels_a_server_must_not_have_been_started_again() {
        let mut known = known();
        let mut check = |is_named, run_id: &str| known.check(is_named, run_id.to_owned()).is_ok();
        assert!(!check(false, "") && !check(false, "a"));
        assert!(check(true, "a") && check(false, "a"));
        assert!(!check(false, "b") && !check(false, ""));
        assert!(check(true, "b") && !check(false, "a"));
        assert!(check(true, "") && !check(false, ""));
    }
}
