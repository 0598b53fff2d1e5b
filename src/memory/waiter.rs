//! A request that waits: in the queue of one key, with what it has of narrower limits.

use super::{
    grant::{Level, Wanted, permit},
    holders::Details,
    key_semaphore::Refusal,
    keys::{Keys, WaiterSlot},
    queue::Waiting,
    shard::Entry,
};
use crate::{
    observe::{self, Outcome, Store::Memory as MEMORY},
    semaphore::{AcquireError, Claim, Claims, Loss, Permit, timer::timeout},
    sync::oneshot,
};
use std::{
    future::{Future, pending, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};
use tokio::time::Instant;

/// A request that waits. Dropped, it leaves the queue, and releases what it has.
pub(super) struct Waiter {
    keys: Arc<Keys>,
    claims: Claims,
    since: Instant,
    /// What it has, from the narrowest limit on.
    levels: Vec<Level>,
    loss: Arc<Loss>,
    /// In the queue of the next limit.
    place: Option<Place>,
}

/// A place in a queue, which is left when this is dropped.
struct Place {
    entry: Arc<Entry>,
    details: Arc<Details>,
    level: oneshot::Receiver<Result<Level, AcquireError>>,
    is_granted: bool,
    waiting: observe::Waiting,
    _slot: WaiterSlot,
}

impl Waiter {
    /// Takes what there is room for, from the narrowest limit on, and joins the first queue.
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

    /// Takes what there is room for, and joins the queue of the first limit that is full.
    fn advance(&mut self) -> Result<(), AcquireError> {
        while let (None, Some(claim)) = (&self.place, self.next()) {
            let (entry, units) = (self.keys.entry(claim), claim.checked_units());
            match entry.semaphore.try_acquire(units) {
                Ok(acquired) => {
                    let details = self.keys.listed(claim, (&entry, acquired), &self.loss);
                    let level = Level::new(Wanted { entry, units }, acquired, details);
                    self.levels.push(level);
                }
                Err(Refusal::Retired) => {}
                Err(refusal) => {
                    let place = self.join(&entry, claim, refusal.error(&entry.policy));
                    let place = place.inspect_err(|_| entry.evict_if_idle());
                    self.place = place.map_err(|error| self.at_level(&entry, error))?;
                }
            }
        }
        Ok(())
    }

    /// The claim of the first limit of which it has nothing yet.
    fn next(&self) -> Option<&Claim> {
        self.claims.as_slice().get(self.levels.len())
    }

    /// Joins the queue, if the claim may still wait. `None`: the entry is retired.
    fn join(
        &self,
        entry: &Arc<Entry>,
        claim: &Claim,
        full: AcquireError,
    ) -> Result<Option<Place>, AcquireError> {
        let wait = claim.wait().filter(|_| !self.left(claim).is_zero());
        let wait = wait.ok_or(full)?;
        let slot = self.keys.waiter_slots.take(wait.is_trial);
        let slot = slot.ok_or(AcquireError::Overloaded)?;
        let (details, units) = (self.keys.details(claim, &self.loss), claim.checked_units());
        let (of, listed) = (Arc::clone(entry), Arc::clone(&details));
        let (sender, level) = oneshot::channel();
        let waiting = Waiting::new(claim, wait, Arc::clone(&details), move |decided| {
            let details = Some(listed).filter(|details| details.is_listed);
            drop(sender.send(match decided {
                Ok(acquired) => Ok(Level::new(Wanted { entry: of, units }, acquired, details)),
                Err(full) => Err(full.error(&of.policy)),
            }));
        });
        match entry.semaphore.enqueue(waiting, wait.max_waiting) {
            Ok(()) => {}
            Err(Refusal::Retired) => return Ok(None),
            Err(refusal) => return Err(refusal.error(&entry.policy)),
        }
        let mut waiting = observe::Waiting::default();
        let key = || claim.key().as_bytes().escape_ascii().to_string();
        waiting.join(MEMORY, claim.policy().as_str(), key);
        Ok(Some(Place {
            entry: Arc::clone(entry),
            details,
            level,
            is_granted: false,
            waiting,
            _slot: slot,
        }))
    }

    /// How long a claim may still wait.
    fn left(&self, claim: &Claim) -> Duration {
        let wait = claim.wait().map_or(Duration::ZERO, |wait| wait.time);
        wait.saturating_sub(self.since.elapsed())
    }

    /// The refusal of the next limit. Among several it names that.
    fn at_level(&self, entry: &Entry, error: AcquireError) -> AcquireError {
        match (error, self.next()) {
            (AcquireError::TimedOut | AcquireError::QueueFull, Some(claim))
                if self.claims.as_slice().len() > 1 =>
            {
                let limit = entry.semaphore.limit().or(claim.limit());
                let limit = limit.unwrap_or_default();
                AcquireError::under(claim.policy(), limit, limit)
            }
            (error, _) => error,
        }
    }

    pub(super) async fn wait(mut self) -> Result<Permit, AcquireError> {
        while let (Some(mut place), Some(claim)) = (self.place.take(), self.next()) {
            let is_watched = self.keys.has_holders && !self.levels.is_empty();
            let revoked = is_watched.then_some(&*self.loss);
            let granted = timeout(self.left(claim), place.granted(revoked)).await;
            let granted = granted.unwrap_or(Err(AcquireError::TimedOut));
            place.is_granted = granted.is_ok();
            place.waiting.leave(match &granted {
                Ok(_) => Outcome::Admitted,
                Err(error) => error.outcome(),
            });
            let level = granted.map_err(|error| self.at_level(&place.entry, error))?;
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

impl Place {
    /// Its units, unless an operator ends the wait, or what it has of a narrower limit.
    async fn granted(&mut self, revoked: Option<&Loss>) -> Result<Level, AcquireError> {
        let mut revoked = pin!(async {
            match revoked {
                Some(loss) => loss.wait().await,
                None => pending().await,
            }
        });
        poll_fn(|cx| match Pin::new(&mut self.level).poll(cx) {
            Poll::Ready(Ok(Ok(level))) if level.weight() > 0 => Poll::Ready(Ok(level)),
            Poll::Ready(Ok(Err(error))) => Poll::Ready(Err(error)),
            // Only an operator drops a sender that has sent nothing, or ends what nobody has yet.
            Poll::Ready(_) => Poll::Ready(Err(AcquireError::Revoked)),
            Poll::Pending => revoked
                .as_mut()
                .poll(cx)
                .map(|()| Err(AcquireError::Revoked)),
        })
        .await
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.is_granted {
            self.entry.cancel(self.details.serial);
        }
    }
}
