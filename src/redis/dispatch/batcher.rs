//! Sends batches to one server.

use super::{
    attempt::Attempts,
    batch::{Batches, MAX_IN_FLIGHT, MIN_IN_FLIGHT, MIN_IN_FLIGHT_TO_EACH, PACE, Queued},
    load::RoundTrip,
};
use futures_util::FutureExt;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::mpsc, task::unconstrained, time::sleep_until};

/// Claims on their way to a batch.
pub(super) type Queue = mpsc::UnboundedReceiver<Queued>;

/// Sends the batches to one server.
pub(super) struct Batcher {
    pub(super) attempts: Arc<Attempts>,
    pub(super) round_trip: Arc<RoundTrip>,
}

impl Batcher {
    /// Sends batches. Runs on the keeper's thread, until the store is dropped and all batches are
    /// completed.
    pub(super) async fn run(self: Arc<Self>, mut queue: Queue) {
        let (report, mut completed) = mpsc::unbounded_channel();
        let mut batches = Batches::new(self.least());
        let mut opens = self.attempts.protocol.breakers.opens();
        let mut arrived = Vec::new();
        let mut is_open = true;
        while is_open || !batches.is_idle() {
            let due = batches.due(self.most_in_flight());
            tokio::select! {
                count = queue.recv_many(&mut arrived, 1_024), if is_open => {
                    is_open = count > 0;
                    batches.queued.extend(arrived.drain(..));
                }
                Some(claims) = completed.recv() => batches.completed(claims),
                Ok(()) = opens.changed() => {}
                () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => {}
            }
            batches.refuse_late(self.usual());
            self.refuse_silent(&mut batches);
            self.send(&mut batches, &report);
        }
    }

    /// Refuses all claims that wait for a batch while the breaker of their server is open: the policy
    /// decides them.
    fn refuse_silent(&self, batches: &mut Batches) {
        let breakers = &self.attempts.protocol.breakers;
        let first = batches.queued.front();
        if let Some(error) = first.and_then(|first| breakers.open_because(&first.claim.name())) {
            batches.refuse_all(&error);
        }
    }

    fn send(self: &Arc<Self>, batches: &mut Batches, report: &mpsc::UnboundedSender<usize>) {
        loop {
            let batch = batches.take(self.most_in_flight(), self.usual());
            if batch.is_empty() {
                return;
            }
            let claims = batch.len();
            let (batcher, report) = (Arc::clone(self), report.clone());
            let mut call = Box::pin(async move {
                batcher.answer(batch).await;
                let _ = report.send(claims);
            });
            // The first poll sends the call, so that claims are sent in the order of their arrival.
            // Unconstrained, because a used-up budget of this task would delay that.
            if unconstrained(call.as_mut()).now_or_never().is_none() {
                tokio::spawn(call);
            }
        }
    }

    /// Acquires for a batch, and answers each claim.
    async fn answer(&self, batch: Vec<Queued>) {
        let claims: Vec<_> = batch.iter().map(|queued| &queued.claim).collect();
        let answers = self
            .attempts
            .attempt_twice(&claims, Some(&self.round_trip))
            .await;
        for (queued, answer) in batch.into_iter().zip(answers) {
            // A dropped receiver is ignored: its caller has released the lease, whatever the
            // answer.
            let _ = queued.answer.send(answer);
        }
    }

    fn usual(&self) -> Duration {
        self.attempts.usual(&self.round_trip)
    }

    fn most_in_flight(&self) -> usize {
        let batches = self.round_trip.shortest().as_millis() / PACE.as_millis();
        (batches as usize).clamp(self.least(), MAX_IN_FLIGHT)
    }

    fn least(&self) -> usize {
        let protocol = &self.attempts.protocol;
        match protocol.is_one_server() && !protocol.is_confirmed() {
            true => MIN_IN_FLIGHT,
            // One that waits for replicas holds up those behind it.
            false => MIN_IN_FLIGHT_TO_EACH,
        }
    }
}

#[cfg(test)]
mod tests;
