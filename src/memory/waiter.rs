//! A request that waits in the queue of one key, and already holds its units of narrower limits.

use super::{
    entry::Entry,
    grant::{MemoryLevel, after_pauses_of, permit},
    holders::Details,
    keys::Keys,
    queue::QueuedClaim,
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

/// A request that waits. Dropping it leaves the queue and releases the levels it has acquired.
pub(super) struct Waiter {
    keys: Arc<Keys>,
    claims: Claims,
    since: Instant,
    /// The acquired levels, from the narrowest limit on.
    levels: Vec<MemoryLevel>,
    loss: Arc<Loss>,
    /// The place in the queue in which the request waits.
    place: Option<QueuePlace>,
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
    shard: Arc<Shard>,
    hash: u64,
    /// The id of the entry.
    entry: u64,
    details: Arc<Details>,
    /// The end of the key's pause, as last looked up. The wait does not time out before.
    paused_until: Option<Instant>,
    level: oneshot::Receiver<Result<MemoryLevel, AcquireError>>,
    is_granted: bool,
    waiting: observe::WaitCounter,
    _slot: OwnedSemaphorePermit,
}

impl Waiter {
    /// Acquires levels from the narrowest limit on, and joins the queue of the first limit that is full.
    pub(super) fn begin(keys: &Arc<Keys>, claims: Claims) -> Result<Self, AcquireError> {
        let mut waiter = Self {
            keys: Arc::clone(keys),
            claims,
            since: Instant::now(),
            levels: Vec::new(),
            loss: Arc::default(),
            place: None,
        };
        waiter.advance()?;
        Ok(waiter)
    }

    /// Acquires the next levels, and joins the queue of the first limit that is full. If the key of an acquired level
    /// has been paused since, the request gives back that level and the wider ones, and waits for it again before all
    /// other waiters.
    fn advance(&mut self) -> Result<(), AcquireError> {
        while let (None, Some(claim)) = (&self.place, self.next()) {
            let level = after_pauses_of(&self.keys, slice::from_ref(claim), || {
                let details = self.keys.details(claim, &self.loss);
                let level = MemoryLevel::acquire(&self.keys, claim, details.listed().cloned());
                level.map_err(|refusal| refusal.error(claim.policy()))
            });
            match level {
                Ok(level) => self.levels.push(level),
                Err(full) => self.wait_for(self.levels.len(), Rank::Arrival, full)?,
            }
        }
        if self.place.is_none()
            && let Some((at, full)) = self.paused()
        {
            self.wait_for(at, Rank::First, full)?;
            // Released only after joining, so that no other claim is granted in between.
            self.levels.truncate(at);
        }
        Ok(())
    }

    /// The first level whose key is paused now, and the refusal of its claim.
    fn paused(&self) -> Option<(usize, AcquireError)> {
        let levels = self.levels.iter().zip(self.claims.as_slice()).enumerate();
        let mut paused = levels.filter_map(|(at, (level, claim))| {
            let refusal = level.pause(claim.checked_units())?;
            Some((at, refusal.error(claim.policy())))
        });
        paused.next()
    }

    /// Joins the queue of a level.
    fn wait_for(
        &mut self,
        level: usize,
        rank: Rank,
        full: AcquireError,
    ) -> Result<(), AcquireError> {
        let place = self.join(&self.claims.as_slice()[level], rank, full);
        self.place = Some(place.map_err(|error| self.at_level(error))?);
        Ok(())
    }

    /// The claim of the first level that is not acquired yet.
    fn next(&self) -> Option<&Claim> {
        self.claims.as_slice().get(self.levels.len())
    }

    /// Joins the queue, if the claim may still wait.
    fn join(
        &self,
        claim: &Claim,
        rank: Rank,
        full: AcquireError,
    ) -> Result<QueuePlace, AcquireError> {
        let wait = claim.wait().filter(|_| !self.left(claim).is_zero());
        let wait = wait.ok_or(full)?;
        let slot = self.keys.slot(wait.is_trial);
        let slot = slot.ok_or(AcquireError::Overloaded)?;
        let (hash, shard) = self.keys.place(claim.key());
        let details = self.keys.details(claim, &self.loss);
        let (granting, granted) = (Arc::clone(shard), Arc::clone(&details));
        let (sender, level) = oneshot::channel();
        let waiting = QueuedClaim::new(wait, Arc::clone(&details), move |decided| {
            drop(sender.send(match decided {
                Ok(acquired) => Ok(MemoryLevel::from_grant(
                    (hash, &granting),
                    acquired,
                    &granted,
                )),
                Err(refusal) => Err(refusal.error(&granted.policy)),
            }));
        });
        let waiting = match rank {
            Rank::Arrival => waiting,
            Rank::First => waiting.before_all(),
        };
        let left = self.left(claim);
        let (entry, paused_until) = shard.join(hash, claim, waiting, left, wait.max_waiting)?;
        let mut waiting = observe::WaitCounter::default();
        let key = || claim.key().as_bytes().escape_ascii().to_string();
        waiting.join(MEMORY, claim.policy().as_str(), key);
        Ok(QueuePlace {
            shard: Arc::clone(shard),
            hash,
            entry,
            details,
            paused_until,
            level,
            is_granted: false,
            waiting,
            _slot: slot,
        })
    }

    /// The time for which a claim may still wait.
    fn left(&self, claim: &Claim) -> Duration {
        let wait = claim.wait().map_or(Duration::ZERO, |wait| wait.time);
        wait.saturating_sub(self.since.elapsed())
    }

    /// Converts the refusal by the next limit. If the request has several limits, a timeout or a full queue is reported
    /// as a full key.
    fn at_level(&self, error: AcquireError) -> AcquireError {
        let is_one = self.claims.as_slice().len() == 1;
        match error {
            AcquireError::TimedOut {
                policy,
                limit,
                semaphore: Some(id),
            }
            | AcquireError::QueueFull {
                policy,
                limit,
                semaphore: Some(id),
            } if !is_one => AcquireError::under(&policy, limit, limit, id),
            error => error,
        }
    }

    /// The refusal of a claim whose wait in the queue of this entry is over.
    fn timed_out(&self, claim: &Claim, entry: u64) -> AcquireError {
        let limit = self.keys.limits.find(claim.policy(), claim.key());
        AcquireError::TimedOut {
            policy: claim.policy().clone(),
            limit: limit.or(claim.limit()).unwrap_or_default(),
            semaphore: Some(SemaphoreId::numbered(entry)),
        }
    }

    /// Waits in the queue until the claim is granted or refused, or its wait ends. When a pause ends, all waiters wake, and
    /// the first to take the lock grants to all that fit.
    async fn wait_in_queue(
        &self,
        claim: &Claim,
        place: &mut QueuePlace,
    ) -> Result<MemoryLevel, AcquireError> {
        loop {
            let now = Instant::now();
            let pause = place
                .paused_until
                .map(|end| end.saturating_duration_since(now));
            let time = pause.unwrap_or_else(|| self.left(claim));
            match timeout(time, place.next_event(&self.loss)).await {
                Ok(Some(granted)) => return granted,
                Err(_) if pause.is_none() => return Err(self.timed_out(claim, place.entry)),
                _ => place.paused_until = self.pause_end(claim, place)?,
            }
        }
    }

    /// Returns when the key's pause ends, or `None` if the key is not paused. Removes a pause that is over. Fails if the
    /// claim's wait ends before the pause.
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
            Some((_, refusal)) if refusal.outlasts(self.left(claim)) => {
                Err(refusal.error(claim.policy()))
            }
            pause => Ok(pause.map(|(until, _)| until)),
        }
    }

    pub(super) async fn wait(mut self) -> Result<Permit, AcquireError> {
        while let (Some(mut place), Some(claim)) = (self.place.take(), self.next()) {
            let granted = self.wait_in_queue(claim, &mut place).await;
            place.is_granted = granted.is_ok();
            place.waiting.leave(match &granted {
                Ok(_) => Outcome::Admitted,
                Err(error) => error.outcome(),
            });
            let level = granted.map_err(|error| self.at_level(error))?;
            drop(place);
            self.levels.push(level);
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
}

impl QueuePlace {
    /// Waits for the grant. Fails if an operator revokes the claim, or its units of a narrower limit. Returns `None` after
    /// the notice of a pause: the caller then looks the pause up.
    async fn next_event(&mut self, loss: &Loss) -> Option<Result<MemoryLevel, AcquireError>> {
        let (mut revoked, mut paused) = (pin!(loss.wait()), pin!(self.details.paused.notified()));
        poll_fn(|cx| match Pin::new(&mut self.level).poll(cx) {
            Poll::Ready(Ok(Ok(level))) if level.weight() > 0 => Poll::Ready(Some(Ok(level))),
            Poll::Ready(Ok(Err(error))) => Poll::Ready(Some(Err(error))),
            // Only a revocation drops the sender unused, or takes the units before they are received.
            Poll::Ready(_) => Poll::Ready(Some(Err(AcquireError::Revoked))),
            Poll::Pending if revoked.as_mut().poll(cx).is_ready() => {
                Poll::Ready(Some(Err(AcquireError::Revoked)))
            }
            Poll::Pending => paused.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// Changes the entry, and then grants to the waiters that fit.
    fn change<R>(&self, change: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        let is_it = |entry: &Entry| entry.id == self.entry;
        self.shard
            .change(self.hash, is_it, |entry, _| change(entry))
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if !self.is_granted {
            let left = self.change(|entry| entry.queue.leave(&self.details));
            // The waiter's task is woken without the lock.
            contain(|| drop(left));
        }
    }
}
