//! The events of a scenario, and the state that has to follow.

use crate::{
    case::Outcome,
    driver::{Driver, Name},
    fixture::{Fixture, QueuedClaim},
    holder::{Holder, Settled},
    model::Id,
    op::LONG_WAIT,
    scenario::LeaseEvent,
    server::Redis,
    waiter::Waiter,
};
use proptest::prelude::*;
use std::{mem, time::Duration};
use tower_semaphore::Claim;

/// Shorter than a refresh interval.
const SHORT_WAIT: Duration = Duration::from_millis(400);

impl Fixture {
    fn claim(&self, driver: &Redis, weight: u32) -> Claim {
        let claim = driver.claim(self.key).with_limit(self.limit);
        claim.with_weight(weight)
    }

    /// Makes a claim that does not wait. Whether it was granted.
    pub(crate) async fn try_one(
        &mut self,
        driver: &mut Redis,
        process: usize,
        weight: u32,
    ) -> bool {
        let claim = self.claim(driver, weight);
        let Ok(permit) = driver.store(process).acquire(claim).await else {
            return false;
        };
        let name = driver.name(self.key).await;
        self.holders.push(Holder::new(name, weight, permit));
        true
    }

    /// Makes a claim that waits.
    pub(crate) async fn wait(
        &mut self,
        driver: &mut Redis,
        id: Id,
        (weight, is_short): (u32, bool),
    ) {
        let weight = weight.min(self.limit);
        let wait = if is_short { SHORT_WAIT } else { LONG_WAIT };
        let claim = self.claim(driver, weight).with_wait(wait);
        let acquire = driver.store(1).acquire(claim);
        let waiter = Waiter::enqueue(driver, id, self.key, acquire).await;
        self.queue.push(QueuedClaim {
            waiter,
            weight,
            is_short,
        });
    }

    /// Applies the events to the holders' leases.
    pub(crate) async fn apply(&mut self, driver: &mut Redis, events: Vec<(u32, LeaseEvent)>) {
        for (holder, (_, event)) in self.holders.iter_mut().zip(&events) {
            match *event {
                LeaseEvent::Kept => {}
                LeaseEvent::Lost { listed } => {
                    holder.lost = true;
                    driver.end_lease(self.key, &holder.name, listed).await;
                }
                LeaseEvent::LostAndDropped => driver.end_lease(self.key, &holder.name, false).await,
            }
        }
        let mut events = events.into_iter().map(|(_, event)| event);
        self.holders
            .retain(|_| events.next() != Some(LeaseEvent::LostAndDropped));
    }

    /// Whether leases that were not ended are refreshed, waiters are granted as far as there is
    /// room, and then lost permits are held again as far as there is more.
    pub(crate) async fn is_settled(
        &mut self,
        driver: &mut Redis,
    ) -> Result<Settled, TestCaseError> {
        let units = driver.units(self.key).await;
        let (held, queue) = driver.inspect(self.key).await;
        prop_assert!(held <= self.limit, "{held} units of {}", self.limit);
        self.admit(&queue).await?;
        let back = self.holders.iter().find(|holder| holder.is_back(&units));
        prop_assert!(
            queue.is_empty() || back.is_none(),
            "a lost permit was granted again past the queue"
        );

        Ok(self.settled(&units, self.limit - held))
    }

    fn settled(&self, units: &[(Name, f64)], room: u32) -> Settled {
        if self.queue.first().is_some_and(|head| head.weight <= room) {
            return Err("the head of the queue is not granted, with room for it");
        }
        if self.queue.iter().any(|queued| queued.is_short) {
            return Err("a short wait has not timed out");
        }
        let room = if self.queue.is_empty() { room } else { 0 };
        let settled = |holder: &Holder| holder.settled(units, room, self.end);
        self.holders.iter().try_for_each(settled)
    }

    /// Waiters that have left the queue are granted, or their short wait timed out.
    async fn admit(&mut self, queue: &[Name]) -> Outcome {
        for queued in mem::take(&mut self.queue) {
            if queue.contains(&queued.waiter.name) {
                self.queue.push(queued);
                continue;
            }
            let name = queued.waiter.name.clone();
            let answer = queued.waiter.answer().await?;
            let Some(permit) = answer else {
                prop_assert!(queued.is_short, "a long wait timed out");
                continue;
            };
            prop_assert!(self.queue.is_empty(), "granted before an earlier waiter");
            self.holders.push(Holder::new(name, queued.weight, permit));
        }
        let names = self.queue.iter().map(|queued| &queued.waiter.name);
        prop_assert!(names.eq(queue), "the queue is not in the order of arrival");
        Ok(())
    }
}
