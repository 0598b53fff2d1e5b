//! Decides whether a claim is sent alone or in a batch.

use super::{
    attempt::Attempts,
    claim::{Answer, Claim},
    lanes::{Lane, Lanes},
    load::{BUSY, InFlight, NodesLoad, RoundTrip},
};
use crate::{
    redis::{
        clock::{ServerClock, Times},
        error::Error,
        protocol::Protocol,
    },
    semaphore::timer::{sleep, timeout, timeout_at},
};
use std::{
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::task::unconstrained;

/// The pause before a claim is sent again whose keys were moving from one node to another: the first
/// one, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// See the [module docs](super).
pub(in crate::redis) struct Dispatch {
    attempts: Arc<Attempts>,
    lanes: Lanes,
    /// Of the claims whose server is not known.
    load: NodesLoad,
}

impl Dispatch {
    /// The dispatch, and a future that has to run beside it: the future sends batches.
    pub(in crate::redis) fn new(
        protocol: Protocol,
        times: Times,
        clock: Arc<ServerClock>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let attempts = Arc::new(Attempts::new(protocol, times, clock));
        let (lanes, batches) = Lanes::new(Arc::clone(&attempts));
        let dispatch = Self {
            attempts,
            lanes,
            load: NodesLoad::default(),
        };
        (dispatch, batches)
    }

    /// Sends claims without a decision: for the keeper, and to read the server's clock.
    pub(in crate::redis) fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }

    /// Acquires for a claim, and applies the answer to its leases. Returns by the claim's deadline,
    /// whatever happens.
    pub(in crate::redis) async fn acquire(&self, claim: Claim) -> Answer {
        let deadline = claim.deadline;
        let answer = timeout_at(deadline, self.alone_or_batched(claim)).await;
        let budget = self.attempts.times.budget();
        answer.unwrap_or_else(|late| Err(late.or(Error::Timeout(budget))))
    }

    async fn alone_or_batched(&self, claim: Claim) -> Answer {
        self.attempts.learn_clock(claim.deadline).await?;
        match self.attempts.protocol.is_one_server() {
            true => self.through(self.lanes.first(), claim).await,
            // Boxed, so that the future of a claim to one server stays small.
            false => Box::pin(self.to_its_node(claim)).await,
        }
    }

    /// Sends a claim to the node of its key, again while the key is moving: this delays no other claim.
    /// Towards the deadline the answer is that the key is moving, whether or not another one is on its
    /// way. A call that has no time for an answer would end as the node's failure, so it is not made.
    async fn to_its_node(&self, claim: Claim) -> Answer {
        let mut answer = self.once(&claim).await;
        let mut pause = PAUSE.0;
        let latest = claim.deadline - self.attempts.times.least();
        while answer.as_ref().is_err_and(Error::is_moving) && Instant::now() + pause < latest {
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
            if Instant::now() >= latest {
                break;
            }
            let again = timeout_at(claim.deadline, self.once(&claim)).await;
            // What was not sent any more has no newer answer.
            let is_newer = |again: &Answer| !matches!(again, Err(Error::Congested));
            answer = again.ok().filter(is_newer).unwrap_or(answer);
        }
        answer
    }

    async fn once(&self, claim: &Claim) -> Answer {
        match self.attempts.server_of(claim) {
            Some(server) => self.through(self.lanes.get(server), claim.clone()).await,
            None => self.on_several_nodes(claim).await,
        }
    }

    /// Sends a claim to a server that is known.
    async fn through(&self, lane: &Lane, claim: Claim) -> Answer {
        // A runtime that cannot connect uses the connection of the keeper's thread.
        let is_connected = |_: &InFlight<'_>| self.attempts.is_connected(&claim);
        match lane.load.alone(claim.weight()).filter(is_connected) {
            Some(_in_flight) => self.alone(&claim, Some(&lane.round_trip)).await,
            None => lane.batched(claim).await,
        }
    }

    /// Sends a claim alone to a server that is not known, unless that can only be too late for an
    /// answer in time.
    async fn on_several_nodes(&self, claim: &Claim) -> Answer {
        let latest = claim.deadline - self.attempts.times.timeout / 2;
        // Unconstrained, so that the first poll sends the claim if it need not wait, although its task
        // has used up its budget.
        let in_flight = unconstrained(self.load.enter(claim.weight()));
        let in_flight = timeout_at(latest, in_flight).await;
        let mut in_flight = in_flight.map_err(|late| late.or(Error::Congested))?;
        let busy = self.attempts.times.timeout / BUSY;
        // The round trips to several nodes say nothing of each other.
        let mut answer = pin!(self.alone(claim, None));
        if let Some(_units) = in_flight.units.take()
            && let Ok(answer) = timeout(busy, &mut answer).await
        {
            return answer;
        }
        answer.await
    }

    async fn alone(&self, claim: &Claim, round_trip: Option<&RoundTrip>) -> Answer {
        let answer = self
            .attempts
            .attempt_twice(&[claim], round_trip)
            .await
            .pop();
        answer.unwrap_or(Err(Error::Reply))
    }
}
