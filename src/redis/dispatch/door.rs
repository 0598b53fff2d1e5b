//! Decides whether a claim is sent alone or in a batch.

use super::{
    attempt::Attempts,
    batch::{Queue, Queued},
    claim::{Acquiring, Answer, Claim},
    load::{BUSY, Load},
};
use crate::redis::{
    clock::{ServerClock, Times},
    error::Error,
    protocol::{Acquired, AllAcquired, Protocol},
};
use std::{io, pin::pin, sync::Arc};
use tokio::{
    sync::{mpsc, oneshot},
    task::unconstrained,
    time::{timeout, timeout_at},
};

/// See the [module docs](super).
pub(in crate::redis) struct Dispatch {
    attempts: Arc<Attempts>,
    load: Load,
    queue: mpsc::UnboundedSender<Queued>,
}

impl Dispatch {
    /// The dispatch, and a future that has to run beside it: the future sends batches.
    pub(in crate::redis) fn new(
        protocol: Protocol,
        times: Times,
        clock: Arc<ServerClock>,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (sender, queue): (_, Queue) = mpsc::unbounded_channel();
        let attempts = Arc::new(Attempts::new(protocol, times, clock));
        let batches = Arc::clone(&attempts).send_batches(queue);
        let dispatch = Self {
            attempts,
            load: Load::default(),
            queue: sender,
        };
        (dispatch, batches)
    }

    /// Sends claims without a decision: for the keeper, and to read the server's clock.
    pub(in crate::redis) fn attempts(&self) -> &Arc<Attempts> {
        &self.attempts
    }

    /// Acquires for a claim of one level, and applies the answer to its lease. Returns by the
    /// claim's deadline, whatever happens.
    pub(in crate::redis) async fn acquire(&self, claim: Claim) -> Result<Acquired, Error> {
        match self.answer(claim).await? {
            Acquiring::One(acquired) => Ok(acquired),
            Acquiring::All(_) => Err(Error::Reply),
        }
    }

    /// Acquires for a claim of any number of levels, as [`acquire`](Self::acquire) does for one.
    pub(in crate::redis) async fn acquire_all(&self, claim: Claim) -> Result<AllAcquired, Error> {
        match self.answer(claim).await? {
            Acquiring::All(acquired) => Ok(acquired),
            Acquiring::One(acquired) => Ok(acquired.into()),
        }
    }

    async fn answer(&self, claim: Claim) -> Answer {
        let deadline = claim.deadline;
        let answer = timeout_at(deadline.into(), self.alone_or_batched(claim)).await;
        answer.unwrap_or(Err(Error::Timeout(self.attempts.times.budget())))
    }

    async fn alone_or_batched(&self, claim: Claim) -> Answer {
        self.attempts.learn_clock(claim.deadline).await?;
        if !self.attempts.protocol.is_one_server() {
            return self.on_several_nodes(&claim).await;
        }
        match self.load.alone(claim.weight()) {
            Some(_in_flight) => self.alone(&claim).await,
            None => self.batched(claim).await,
        }
    }

    /// Sends a claim alone, unless that can only be too late for an answer in time.
    async fn on_several_nodes(&self, claim: &Claim) -> Answer {
        let latest = claim.deadline - self.attempts.times.timeout / 2;
        // Unconstrained, so that the first poll sends the claim if it need not wait, although its task
        // has used up its budget.
        let in_flight = unconstrained(self.load.on_several_nodes(claim.weight()));
        let in_flight = timeout_at(latest.into(), in_flight).await;
        let mut in_flight = in_flight.map_err(|_| Error::Congested)?;
        let busy = self.attempts.times.timeout / BUSY;
        let mut answer = pin!(self.alone(claim));
        if let Some(_units) = in_flight.units.take()
            && let Ok(answer) = timeout(busy, &mut answer).await
        {
            return answer;
        }
        answer.await
    }

    async fn alone(&self, claim: &Claim) -> Answer {
        let answer = self.attempts.attempt_twice(&[claim]).await.pop();
        answer.unwrap_or(Err(Error::Reply))
    }

    async fn batched(&self, claim: Claim) -> Answer {
        let _in_flight = self.load.together();
        let (answer, answered) = oneshot::channel();
        // The keeper's thread has died. Nothing is sent any more.
        let ended = || Error::Unavailable(io::Error::from(io::ErrorKind::BrokenPipe).into());
        self.queue
            .send(Queued::new(claim, answer))
            .map_err(|_| ended())?;
        answered.await.unwrap_or_else(|_| Err(ended()))
    }
}
