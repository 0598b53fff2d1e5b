//! A request that waits, and already holds its units of narrower limits.

use super::{
    budget::{Due, next_look},
    entry::Entry,
    grant::{MemoryLevel, acquire_budgets, after_pauses_of, permit},
    holders::Details,
    keys::Keys,
    queue::{Decision, QueuedClaim},
    shard::Shard,
};
use crate::{
    observe::{self, Outcome, Store::Memory as MEMORY, contain},
    semaphore::{AcquireError, Claim, Claims, Loss, Permit, SemaphoreId, timer::timeout},
    sync::oneshot,
};
use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    slice,
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

/// A request that waits. Dropping it leaves the queues and releases the levels it has acquired.
///
/// It acquires the levels without a window one after the other, and then all of its budgets in one step. While it waits
/// for one budget it has no units of another, but it keeps its place in the queues of the budgets before.
pub(super) struct Waiter {
    keys: Arc<Keys>,
    claims: Claims,
    since: Instant,
    /// The acquired levels, from the narrowest limit on.
    levels: Vec<MemoryLevel>,
    loss: Arc<Loss>,
    /// The details of its claims of budgets, which come last in `claims`.
    budgets: Vec<Arc<Details>>,
    /// The places in queues, each at a wider level than the one before. The request waits in the last of these queues.
    places: Vec<QueuePlace>,
    /// Its place among the waiters of the store, while it has places in queues.
    slot: Option<OwnedSemaphorePermit>,
}

/// Where a claim joins a queue.
#[derive(Clone, Copy)]
enum Rank {
    /// In order of arrival, or in the turn of its flow.
    Arrival,
    /// Before all others: it had its units until the key was paused.
    First,
}

/// A place in a queue. Dropping it leaves the queue.
struct QueuePlace {
    /// The number of the level.
    level: usize,
    shard: Arc<Shard>,
    hash: u64,
    /// The id of the entry.
    entry: u64,
    details: Arc<Details>,
    /// The end of the key's pause, as last looked up. The wait does not time out earlier.
    paused_until: Option<Instant>,
    /// When the claim of a budget looks again at the latest.
    look_at: Option<Instant>,
    outcome: oneshot::Receiver<QueueOutcome>,
    has_left: bool,
    counter: observe::WaitCounter,
}

/// Why a claim is not in the queue any more.
enum QueueOutcome {
    Granted(MemoryLevel),
    Refused(AcquireError),
    /// See [`Decision::Lapsed`].
    Lapsed,
}

/// An event that a waiting request handles.
enum WaitEvent {
    Left(QueueOutcome),
    /// The key was paused, or the time at which a budget has room has changed.
    Changed,
}

impl Waiter {
    /// Acquires levels from the narrowest limit on, and joins the queue of the first limit that is full.
    pub(super) fn begin(keys: &Arc<Keys>, claims: Claims) -> Result<Self, AcquireError> {
        let loss = Arc::default();
        let budgets = claims.as_slice().iter().filter(|claim| is_budget(claim));
        let budgets = budgets.map(|claim| keys.details(claim, &loss)).collect();
        let mut waiter = Self {
            keys: Arc::clone(keys),
            claims,
            since: Instant::now(),
            levels: Vec::new(),
            loss,
            budgets,
            places: Vec::new(),
            slot: None,
        };
        waiter.advance()?;
        Ok(waiter)
    }

    /// Acquires the next levels, and joins the queue of the first limit that is full. If the key of an acquired level
    /// has been paused since, the request gives back that level and the wider ones, and waits for it again before all
    /// other waiters.
    fn advance(&mut self) -> Result<(), AcquireError> {
        while let Some(claim) = self.next_claim().filter(|claim| !is_budget(claim)) {
            let level = after_pauses_of(&self.keys, slice::from_ref(claim), || {
                let details = self.keys.details(claim, &self.loss);
                let level = MemoryLevel::acquire(&self.keys, claim, details.listed().cloned());
                level.map_err(|refusal| refusal.error(claim.policy()))
            });
            match level {
                Ok(level) => self.levels.push(level),
                Err(full) => return self.wait_for(self.levels.len(), Rank::Arrival, full),
            }
        }
        self.acquire_budgets()?;
        if self.places.is_empty()
            && let Some((at, full)) = self.first_paused()
        {
            self.wait_for(at, Rank::First, full)?;
            // Released only after joining, so that no other claim is granted in between.
            self.levels.truncate(at);
        }
        Ok(())
    }

    /// Acquires all budgets, or waits for the first that refuses.
    fn acquire_budgets(&mut self) -> Result<(), AcquireError> {
        if self.budgets.is_empty() {
            return Ok(());
        }
        let first = self.levels.len();
        let claims = &self.claims.as_slice()[first..];
        let (at, refusal) = match acquire_budgets(&self.keys, claims, &self.budgets) {
            Ok(levels) => {
                self.levels.extend(levels);
                self.places.drain(..).for_each(|mut place| place.admitted());
                return Ok(());
            }
            Err(refused) => refused,
        };
        let level = first + at;
        // Leaves the queues of later budgets. Otherwise two requests could each be first in the queue in which the
        // other waits.
        self.places.retain(|place| place.level <= level);
        let claim = &claims[at];
        if self.places.last().is_none_or(|place| place.level < level) {
            // If the request has several claims, `wait_for` reports the end of the wait as a full limit.
            let is_only = self.claims.as_slice().len() == 1;
            if is_only && claim.wait().is_some() && self.time_left(claim).is_zero() {
                return Err(self.timed_out(claim, refusal.id));
            }
            self.wait_for(level, Rank::Arrival, refusal.error(claim.policy()))?;
        } else if refusal.outlasts(self.time_left(claim)) {
            let error = refusal.error(claim.policy());
            return Err(self.refuse(error));
        }
        let is_alone = self.places.len() == 1;
        if let Some(place) = self.places.last_mut() {
            let now = Instant::now();
            // With several places, the request may be the head of an earlier queue, where it loses its place unless it
            // looks often.
            let ahead = if is_alone { refusal.ahead } else { 0 };
            let look_at = now + next_look(ahead);
            place.look_at = Some(match refusal.due {
                Due::At(due) => due.min(look_at),
                Due::Now | Due::Unknown => look_at,
            });
            place.paused_until = refusal.pause.map(|rest| now + rest);
        }
        Ok(())
    }

    /// The first level whose key is paused now, and the refusal of its claim.
    fn first_paused(&self) -> Option<(usize, AcquireError)> {
        let levels = self.levels.iter().zip(self.claims.as_slice()).enumerate();
        let mut paused = levels.filter_map(|(at, (level, claim))| {
            let refusal = level.pause(claim.checked_units())?;
            Some((at, refusal.error(claim.policy())))
        });
        paused.next()
    }

    /// Joins the queue of a level, or fails with `full` if the claim may not wait any more.
    fn wait_for(
        &mut self,
        level: usize,
        rank: Rank,
        full: AcquireError,
    ) -> Result<(), AcquireError> {
        let place = self.join(level, rank, full);
        let (place, slot) = place.map_err(|error| self.refusal_of_request(error))?;
        self.places.push(place);
        self.slot = Some(slot);
        Ok(())
    }

    /// The claim of the first level that is not acquired yet.
    fn next_claim(&self) -> Option<&Claim> {
        self.claims.as_slice().get(self.levels.len())
    }

    /// Joins the queue as [`wait_for`](Self::wait_for) does. Returns the place in it, and that among the store's
    /// waiters.
    fn join(
        &mut self,
        level: usize,
        rank: Rank,
        full: AcquireError,
    ) -> Result<(QueuePlace, OwnedSemaphorePermit), AcquireError> {
        let claim = &self.claims.as_slice()[level];
        let wait = claim.wait().filter(|_| !self.time_left(claim).is_zero());
        let wait = wait.ok_or(full)?;
        let slot = self.slot.take().or_else(|| self.keys.slot(wait.is_trial));
        let slot = slot.ok_or(AcquireError::Overloaded)?;
        let (hash, shard) = self.keys.place(claim.key());
        let first_budget = self.claims.as_slice().len() - self.budgets.len();
        let details = match level.checked_sub(first_budget) {
            Some(budget) => Arc::clone(&self.budgets[budget]),
            None => self.keys.details(claim, &self.loss),
        };
        let (level_shard, level_details) = (Arc::clone(shard), Arc::clone(&details));
        let (sender, outcome) = oneshot::channel();
        let queued = QueuedClaim::new(wait, Arc::clone(&details), move |decision| {
            drop(sender.send(match decision {
                Decision::Granted(acquired) => QueueOutcome::Granted(MemoryLevel::from_grant(
                    (hash, &level_shard),
                    acquired,
                    &level_details,
                )),
                Decision::Refused(refusal) => {
                    QueueOutcome::Refused(refusal.error(&level_details.policy))
                }
                Decision::Lapsed => QueueOutcome::Lapsed,
            }));
        });
        let queued = match rank {
            Rank::Arrival => queued,
            Rank::First => queued.before_all(),
        };
        let left = self.time_left(claim);
        let (entry, paused_until) = shard.join(hash, claim, queued, left, wait.max_waiting)?;
        let mut counter = observe::WaitCounter::default();
        let key = || claim.key().as_bytes().escape_ascii().to_string();
        counter.join(MEMORY, claim.policy().as_str(), key);
        let place = QueuePlace {
            level,
            shard: Arc::clone(shard),
            hash,
            entry,
            details,
            paused_until,
            look_at: None,
            outcome,
            has_left: false,
            counter,
        };
        Ok((place, slot))
    }

    /// The time for which a claim may still wait.
    fn time_left(&self, claim: &Claim) -> Duration {
        let wait = claim.wait().map_or(Duration::ZERO, |wait| wait.time);
        wait.saturating_sub(self.since.elapsed())
    }

    /// Converts the refusal of one claim to that of its request. If the request has several claims, a timeout or a full
    /// queue is reported as a full key.
    fn refusal_of_request(&self, error: AcquireError) -> AcquireError {
        let is_only = self.claims.as_slice().len() == 1;
        match error {
            AcquireError::TimedOut {
                policy,
                limit,
                window,
                semaphore: Some(id),
            }
            | AcquireError::QueueFull {
                policy,
                limit,
                window,
                semaphore: Some(id),
            } if !is_only => {
                let held = limit;
                AcquireError::under(&policy, limit, held, id).of_window(window)
            }
            error => error,
        }
    }

    /// The refusal of a claim whose wait in the queue of this entry is over.
    fn timed_out(&self, claim: &Claim, entry: u64) -> AcquireError {
        let limit = self.keys.limits.find(claim.policy(), claim.key());
        AcquireError::TimedOut {
            policy: claim.policy().clone(),
            limit: limit.or(claim.limit()).unwrap_or_default(),
            window: claim.window(),
            semaphore: Some(SemaphoreId::numbered(entry)),
        }
    }

    /// Waits until the claim leaves the queue, or its wait ends. When a pause ends, all waiters wake, and the first to
    /// take the lock grants to all that fit.
    async fn wait_in_queue(
        &self,
        claim: &Claim,
        place: &mut QueuePlace,
    ) -> Result<QueueOutcome, AcquireError> {
        loop {
            let now = Instant::now();
            let pause = place
                .paused_until
                .map(|end| end.saturating_duration_since(now));
            let time = pause.unwrap_or_else(|| self.time_left(claim));
            match timeout(time, place.next_event(&self.loss)).await {
                Ok(WaitEvent::Changed) => place.paused_until = self.pause_end(claim, place)?,
                Ok(WaitEvent::Left(outcome)) => return Ok(outcome),
                Err(_) if pause.is_none() => return Err(self.timed_out(claim, place.entry)),
                Err(_) => place.paused_until = self.pause_end(claim, place)?,
            }
        }
    }

    /// Waits in the queues of budgets until the request should try to acquire them again.
    async fn wait_for_turn(&mut self) -> Result<(), AcquireError> {
        let Some(last) = self.places.last() else {
            return Ok(());
        };
        let claim = &self.claims.as_slice()[last.level];
        let (left, now) = (self.time_left(claim), Instant::now());
        if left.is_zero() && last.paused_until.is_none() {
            let error = self.timed_out(claim, last.entry);
            return Err(self.refuse(error));
        }
        let look = last.look_at.map(|at| at.saturating_duration_since(now));
        let time = match last.paused_until {
            Some(end) => end.saturating_duration_since(now),
            None => left,
        };
        let time = look.map_or(time, |look| look.min(time));
        let (places, loss) = (&mut self.places, &self.loss);
        let event = timeout(time, first_event(places, loss)).await;
        match event {
            Ok((_, WaitEvent::Left(QueueOutcome::Refused(error)))) => Err(self.refuse(error)),
            Ok((at, WaitEvent::Left(QueueOutcome::Lapsed | QueueOutcome::Granted(_)))) => {
                self.places.remove(at).has_left = true;
                Ok(())
            }
            Ok((_, WaitEvent::Changed)) | Err(_) => Ok(()),
        }
    }

    /// Ends the wait in all queues. Returns the refusal of the request.
    fn refuse(&mut self, error: AcquireError) -> AcquireError {
        for place in &mut self.places {
            place.counter.leave(error.outcome());
        }
        self.refusal_of_request(error)
    }

    /// Returns when the key's pause ends, or `None` if the key is not paused. Removes a pause that is over. Fails if
    /// the claim's wait ends before the pause.
    fn pause_end(
        &self,
        claim: &Claim,
        place: &QueuePlace,
    ) -> Result<Option<Instant>, AcquireError> {
        let units = claim.checked_units();
        let pause = place.change(|entry| {
            let until = entry.pause_in_force()?.until;
            Some((until, entry.refusal(units)))
        });
        match pause.flatten() {
            Some((_, refusal)) if refusal.outlasts(self.time_left(claim)) => {
                Err(refusal.error(claim.policy()))
            }
            pause => Ok(pause.map(|(until, _)| until)),
        }
    }

    pub(super) async fn wait(mut self) -> Result<Permit, AcquireError> {
        while let Some(place) = self.places.last() {
            match is_budget(&self.claims.as_slice()[place.level]) {
                false => self.wait_for_grant().await?,
                true => self.wait_for_turn().await?,
            }
            self.advance()?;
        }
        match self.levels.iter().all(|level| level.weight() > 0) {
            true => Ok(permit(
                self.claims.as_slice(),
                self.levels.into_iter().collect(),
            )),
            false => Err(AcquireError::Revoked),
        }
    }

    /// Waits in the queue of a limit without a window until the claim is granted.
    async fn wait_for_grant(&mut self) -> Result<(), AcquireError> {
        let Some(mut place) = self.places.pop() else {
            return Ok(());
        };
        let claim = &self.claims.as_slice()[place.level];
        match self.wait_in_queue(claim, &mut place).await {
            Ok(QueueOutcome::Granted(level)) => {
                place.admitted();
                drop(place);
                self.levels.push(level);
                Ok(())
            }
            Ok(QueueOutcome::Lapsed) => Ok(()),
            Ok(QueueOutcome::Refused(error)) | Err(error) => {
                place.counter.leave(error.outcome());
                Err(self.refusal_of_request(error))
            }
        }
    }
}

fn is_budget(claim: &Claim) -> bool {
    claim.window().is_some()
}

/// Waits for the first event of any place. Returns the number of that place, and the event.
async fn first_event(places: &mut [QueuePlace], loss: &Loss) -> (usize, WaitEvent) {
    let events = places.iter_mut().enumerate();
    let events =
        events.map(|(at, place)| Box::pin(async move { (at, place.next_event(loss).await) }));
    let mut events: Vec<_> = events.collect();
    poll_fn(|cx| {
        let mut polled = events.iter_mut().map(|event| event.as_mut().poll(cx));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

impl QueuePlace {
    /// Waits until the claim has left the queue, or should look again. If an operator revokes the claim, or units of a
    /// narrower limit that the request holds, the event is a refusal.
    async fn next_event(&mut self, loss: &Loss) -> WaitEvent {
        let revoked = || WaitEvent::Left(QueueOutcome::Refused(AcquireError::Revoked));
        let (mut lost, mut changed) = (pin!(loss.wait()), pin!(self.details.changed.notified()));
        poll_fn(|cx| match Pin::new(&mut self.outcome).poll(cx) {
            // Only a revocation drops the sender unused, or takes the units before they are received.
            Poll::Ready(Err(_)) => Poll::Ready(revoked()),
            Poll::Ready(Ok(QueueOutcome::Granted(level))) if level.weight() == 0 => {
                Poll::Ready(revoked())
            }
            Poll::Ready(Ok(outcome)) => Poll::Ready(WaitEvent::Left(outcome)),
            Poll::Pending if lost.as_mut().poll(cx).is_ready() => Poll::Ready(revoked()),
            Poll::Pending => changed.as_mut().poll(cx).map(|()| WaitEvent::Changed),
        })
        .await
    }

    /// Changes the entry, and then grants to the waiters that fit.
    fn change<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let is_it = |entry: &Entry| entry.id == self.entry;
        self.shard
            .change(self.hash, is_it, |entry, _| change(entry))
    }

    /// Notes that the claim was granted, so that it is not in the queue any more.
    fn admitted(&mut self) {
        self.has_left = true;
        self.counter.leave(Outcome::Admitted);
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if !self.has_left {
            let unused = self.change(|entry| entry.queue.leave(&self.details));
            // Dropping the callback wakes the waiter's task, so it is dropped without the lock.
            contain(|| drop(unused));
        }
    }
}
