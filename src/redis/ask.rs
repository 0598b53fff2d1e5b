//! The way from a claim to the server's answer.

use super::{
    Store, answer::Answer, error::Error, inbox::Ask, keeper::Order, lease::Lease, script::Place,
};
use crate::semaphore::{AcquireError, StoreError};
use std::{sync::Arc, time::Instant};
use tokio::{sync::oneshot, time::timeout};

impl Store {
    /// Asks once; there is no line for a claim that does not wait. Returns how much is held.
    pub(super) async fn ask(
        &self,
        lease: &Arc<Lease>,
        place: Option<Place>,
    ) -> Result<Answer, AcquireError> {
        let deadline = self.core.times.deadline(Instant::now());
        lease.asked();
        let answer = self.send(lease, place).await;
        match &answer {
            Ok(Answer::Granted { token, .. }) => lease.granted(*token, deadline),
            Ok(Answer::Full { .. } | Answer::LineFull) => lease.refused(),
            Ok(Answer::Waiting { .. }) => lease.waits(),
            Err(error) if error.may_have_run() => {}
            Err(_) => lease.refused(),
        }
        answer.map_err(|error| StoreError::new(error).into())
    }

    /// Sends it, and is over within the budget.
    async fn send(&self, lease: &Arc<Lease>, place: Option<Place>) -> Result<Answer, Error> {
        let budget = self.core.scripts.budget();
        let answer = timeout(budget, self.travel(lease, place)).await;
        answer.unwrap_or(Err(Error::Timeout(budget)))
    }

    /// Alone, or together with others if many are on their way.
    async fn travel(&self, lease: &Arc<Lease>, place: Option<Place>) -> Result<Answer, Error> {
        if let Some(_underway) = self.core.traffic.alone() {
            return self.core.scripts.acquire_one(lease, place).await;
        }
        let _underway = self.core.traffic.together();
        let (answer, answered) = oneshot::channel();
        self.order(Order::Ask(Ask {
            lease: Arc::clone(lease),
            place,
            answer,
        }));
        // The keeper ends together with its runtime, and nobody knows then what it has sent.
        let unknown = |_| Err(Error::Timeout(self.core.scripts.budget()));
        answered.await.unwrap_or_else(unknown)
    }

    /// Asks, and does not wait for others. Where there is no room, but this process was about to
    /// give some back, it asks once more: what a client has just finished should not be in the
    /// way of its next request.
    pub(super) async fn try_now(&self, lease: &Arc<Lease>) -> Result<Answer, AcquireError> {
        let name = lease.name();
        let landings = self.core.landings.count(&name);
        let full = match self.ask(lease, None).await? {
            full @ Answer::Full { .. } => full,
            answer => return Ok(answer),
        };
        let (answer, landed) = oneshot::channel();
        self.order(Order::Settle(Arc::clone(&name), answer));
        let landed = landed.await.unwrap_or(false);
        if landed || self.core.landings.count(&name) != landings {
            return self.ask(lease, None).await;
        }
        Ok(full)
    }
}
