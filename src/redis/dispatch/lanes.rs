//! A lane for each server, so that a server that does not answer delays no claim to another.

use super::{
    attempt::Attempts,
    batch::Queued,
    batcher::{Batcher, Queue},
    claim::{Answer, Claim},
    load::{Load, RoundTrip},
};
use crate::redis::error::Error;
use std::{
    io,
    sync::{Arc, OnceLock, atomic::AtomicUsize},
};
use tokio::sync::{mpsc, oneshot};

/// Lanes of a store. The servers of a larger cluster share lanes.
const LANES: usize = 1_024;

/// The lanes that are in use.
pub(super) struct Lanes {
    lanes: Box<[OnceLock<Box<Lane>>]>,
    /// Units of claims that are sent alone.
    alone: Arc<AtomicUsize>,
    opened: mpsc::UnboundedSender<(Queue, Arc<RoundTrip>)>,
    /// Whether each call waits for replicas.
    is_confirmed: bool,
}

/// The way of claims to one server.
pub(super) struct Lane {
    pub(super) load: Load,
    pub(super) round_trip: Arc<RoundTrip>,
    queue: mpsc::UnboundedSender<Queued>,
}

impl Lanes {
    /// The lanes, and a future that has to run beside them: the future sends batches.
    pub(super) fn new(attempts: Arc<Attempts>) -> (Self, impl Future<Output = ()> + Send) {
        let (opened, mut queues) = mpsc::unbounded_channel();
        let is_confirmed = attempts.protocol.is_confirmed();
        let batches = async move {
            while let Some((queue, round_trip)) = queues.recv().await {
                let attempts = Arc::clone(&attempts);
                let batcher = Arc::new(Batcher {
                    attempts,
                    round_trip,
                });
                tokio::spawn(batcher.run(queue));
            }
        };
        let lanes = (0..LANES).map(|_| OnceLock::new()).collect();
        let lanes = Self {
            lanes,
            alone: Arc::default(),
            opened,
            is_confirmed,
        };
        (lanes, batches)
    }

    /// The lane of the only server.
    pub(super) fn first(&self) -> &Lane {
        self.get(0)
    }

    pub(super) fn get(&self, server: usize) -> &Lane {
        self.lanes[server % LANES].get_or_init(|| Box::new(self.open()))
    }

    #[cold]
    fn open(&self) -> Lane {
        let (queue, received) = mpsc::unbounded_channel();
        let round_trip = Arc::<RoundTrip>::default();
        // An error is ignored: the receiver is gone only if the keeper's thread has died, and then
        // nothing is sent any more.
        let _ = self.opened.send((received, Arc::clone(&round_trip)));
        Lane {
            load: Load::new(&self.alone, self.is_confirmed),
            round_trip,
            queue,
        }
    }
}

impl Lane {
    /// Sends a claim in a batch.
    pub(super) async fn batched(&self, claim: Claim) -> Answer {
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
