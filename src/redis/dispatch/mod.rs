//! The one door to the server: a claim goes alone, or in a batch with others.
//!
//! Until many claims are in flight the cost of a call does not matter, and none should wait for
//! the answer to another: each goes alone, over its own runtime's connection. Beyond that they go
//! in batches, which the keeper's thread sends.

mod attempt;
mod batch;
mod load;

pub(super) use attempt::Claim;

use super::{
    clock::{ServerClock, Times},
    error::Error,
    protocol::{Acquired, Protocol},
};
use batch::Queued;
use load::{Load, RoundTrip};
use std::{io, sync::Arc, time::Instant};
use tokio::sync::{mpsc, oneshot};

/// See the module docs.
pub(super) struct Dispatch {
    pub(super) protocol: Protocol,
    times: Times,
    clock: Arc<ServerClock>,
    load: Load,
    round_trip: RoundTrip,
    queue: mpsc::UnboundedSender<Queued>,
}

/// Claims on their way to a batch.
pub(super) type Queue = mpsc::UnboundedReceiver<Queued>;

impl Dispatch {
    /// The door, and what has to [`run`](Self::run) behind it.
    pub(super) fn new(protocol: Protocol, times: Times, clock: Arc<ServerClock>) -> (Self, Queue) {
        let (sender, queue) = mpsc::unbounded_channel();
        let dispatch = Self {
            protocol,
            times,
            clock,
            load: Load::default(),
            round_trip: RoundTrip::default(),
            queue: sender,
        };
        (dispatch, queue)
    }

    /// Asks the server for a claim, and moves its lease on by the answer.
    pub(super) async fn acquire(&self, claim: Claim) -> Result<Acquired, Error> {
        self.learn_clock(claim.deadline).await?;
        if let Some(_in_flight) = self.load.alone(claim.lease.permit.weight) {
            let answer = self.attempt_twice(&[&claim]).await.pop();
            return answer.unwrap_or(Err(Error::Reply));
        }
        let _in_flight = self.load.together();
        let (answer, answered) = oneshot::channel();
        let ended = |_| Error::Unavailable(io::Error::from(io::ErrorKind::BrokenPipe).into());
        let queued = Queued::new(claim, answer);
        self.queue.send(queued).map_err(|_| ended(()))?;
        answered.await.unwrap_or_else(|_| Err(ended(())))
    }

    /// An acquire carries its own end by the server's clock, so that clock has to be known.
    async fn learn_clock(&self, deadline: Instant) -> Result<(), Error> {
        match self.clock.is_known() {
            true => Ok(()),
            false => {
                let deadline = deadline.min(Instant::now() + self.times.timeout);
                self.protocol.clock(deadline).await
            }
        }
    }
}
