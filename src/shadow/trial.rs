//! The claims of one request in shadow, and the permit with which the request is admitted.

use crate::{
    nesting::Nesting,
    observe::{Outcome, events, shadowed},
    semaphore::{
        Acquire, AcquireError, BoxFuture, Grant, Level, LevelState, Loss, Permit, PermitLost,
        Policy, Resize, Resizing, SemaphoreId, StoreError,
    },
};
use parking_lot::Mutex;
use std::{
    collections::BTreeMap,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    sync::oneshot::{self, Receiver, Sender},
    time::{Instant, sleep_until},
};

/// The claims of one request, and what they hold.
pub(super) struct Trial {
    policy: Policy,
    max_hold: Option<Duration>,
    nesting: Option<Nesting>,
    /// `None` before the grant, after a refusal, and after the end.
    held: Mutex<Option<Permit>>,
    /// The weight that the handler has requested, and sees.
    weight: AtomicU32,
    /// The totals that the handler has settled, by level. A claim that is granted later settles them then.
    settled: Mutex<BTreeMap<usize, u32>>,
}

impl Trial {
    pub(super) fn new(
        policy: Policy,
        weight: u32,
        max_hold: Option<Duration>,
        nesting: Option<Nesting>,
    ) -> Self {
        Self {
            policy,
            max_hold,
            nesting,
            held: Mutex::new(None),
            weight: weight.into(),
            settled: Mutex::default(),
        }
    }

    /// Keeps the permit that the store has granted, or reports the refusal.
    ///
    /// # Panics
    ///
    /// With a longest hold, outside of a Tokio runtime.
    pub(super) fn answered(&self, answer: Result<Permit, AcquireError>) {
        let answer = match &self.nesting {
            Some(nesting) => nesting.judge(answer),
            None => answer,
        };
        match answer {
            Ok(permit) => {
                if let Some(max_hold) = self.max_hold {
                    permit.end_after(max_hold);
                }
                *self.held.lock() = Some(permit);
                // Read after the permit can be found, so that each settlement reaches it from here or from `settle`.
                let settled = self.settled.lock().clone();
                for (level, used) in settled {
                    self.settle_held(level, used);
                }
            }
            Err(error) => refused(&self.policy, &error),
        }
    }

    pub(super) fn held(&self) -> Option<Permit> {
        self.held.lock().clone()
    }

    pub(super) fn end(&self) {
        // Dropped without the lock: a release may wake anything.
        let held = self.held.lock().take();
        drop(held);
    }

    pub(super) fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    fn settle(&self, level: usize, used: u32) {
        let mut settled = self.settled.lock();
        let total = settled.entry(level).or_default();
        *total = used.max(*total);
        drop(settled);
        self.settle_held(level, used);
    }

    fn settle_held(&self, level: usize, used: u32) {
        if let Some(permit) = self.held() {
            permit.level(level).settle(used);
        }
    }

    /// Gives a new grant the weight that the handler has requested while the claim waited. Repeats this if the handler
    /// changes the weight in the meantime.
    async fn catch_up(&self) {
        while let Some(permit) = self.held() {
            let weight = self.weight();
            if permit.weight() == weight || !self.change(&permit, weight).await {
                break;
            }
        }
    }

    /// Changes the weight of the held units for the handler. A growth that would have been refused is reported, and
    /// succeeds for the handler.
    pub(super) async fn resize(&self, weight: u32) {
        self.weight.store(weight, Relaxed);
        if let Some(permit) = self.held() {
            self.change(&permit, weight).await;
        }
    }

    /// Returns true if the weight was changed. If a time bound has ended the permit, the error is not a refusal.
    async fn change(&self, permit: &Permit, weight: u32) -> bool {
        let changed = permit.resize(weight).await;
        if let Err(error) = &changed
            && !permit.is_lost()
        {
            refused(&self.policy, error);
        }
        changed.is_ok()
    }
}

/// A claim that runs beside its request.
pub(super) struct TrialClaim {
    trial: Arc<Trial>,
    arrived: Instant,
    /// When the request ended.
    ended: Receiver<Instant>,
}

impl TrialClaim {
    /// Also returns the sender for the time at which the request ends.
    pub(super) fn begin(trial: Arc<Trial>) -> (Self, Sender<Instant>) {
        let (sender, ended) = oneshot::channel();
        let claim = Self {
            trial,
            arrived: Instant::now(),
            ended,
        };
        (claim, sender)
    }

    pub(super) async fn run(self, acquire: Acquire) {
        let answer = acquire.await;
        let is_granted = answer.is_ok();
        let waited = self.arrived.elapsed();
        self.trial.answered(answer);
        if is_granted {
            self.trial.catch_up().await;
            let ended = self.ended.await.unwrap_or_else(|_| Instant::now());
            // The units are held for as long as the request was, but began later by the wait.
            sleep_until(ended + waited).await;
            self.trial.end();
        }
    }
}

/// Reports that an admitted request would have been refused.
fn refused(policy: &Policy, error: &AcquireError) {
    report(error.policy().unwrap_or(policy), error.outcome());
}

/// Counts and logs a refusal in shadow.
pub(super) fn report(policy: &Policy, outcome: Outcome) {
    shadowed(policy.as_str(), outcome);
    events::shadowed(policy.as_str(), outcome);
}

/// The grant of the request's permit. Its end also ends the claim in shadow.
pub(super) struct ShadowGrant {
    trial: Arc<Trial>,
    /// Notifies a claim that is still running.
    ended: Mutex<Option<Sender<Instant>>>,
    is_released: AtomicBool,
    /// Never set, because a permit in shadow is never lost.
    loss: Loss,
}

impl ShadowGrant {
    pub(super) fn new(trial: Arc<Trial>, ended: Option<Sender<Instant>>) -> Self {
        Self {
            trial,
            ended: Mutex::new(ended),
            is_released: AtomicBool::new(false),
            loss: Loss::default(),
        }
    }

    /// Ends the claim in shadow. Returns true if this is the first end.
    fn end(&self) -> bool {
        let sender = self.ended.lock().take();
        let is_notified = sender.is_some_and(|sender| sender.send(Instant::now()).is_ok());
        if !is_notified {
            self.trial.end();
        }
        !self.is_released.swap(true, Relaxed)
    }
}

impl Drop for ShadowGrant {
    fn drop(&mut self) {
        if !self.is_released.load(Relaxed) {
            self.end();
        }
    }
}

impl Grant for ShadowGrant {
    fn level(&self, level: usize) -> LevelState {
        let held = self.trial.held();
        let held = held.as_ref().map(|permit| permit.level(level));
        // At the narrowest level the handler sees the weight that it has requested, at the others that of the trial.
        let mut state = LevelState::new(match (self.is_released.load(Relaxed), level) {
            (true, _) => 0,
            (false, 0) => self.trial.weight(),
            (false, _) => held.map_or(1, Level::weight),
        });
        state.token = held.and_then(Level::token);
        state
    }

    fn semaphore(&self, level: usize) -> Option<SemaphoreId> {
        self.trial.held()?.level(level).semaphore()
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn resize(&self, levels: Vec<Resize>) -> Resizing<'_> {
        Box::pin(async move {
            if self.is_released.load(Relaxed) {
                return Err(StoreError::new(PermitLost).into());
            }
            if let Some(level) = levels.first() {
                self.trial.resize(level.weight).await;
            }
            Ok(())
        })
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(self.end()))
    }

    /// Pauses the key of the trial.
    fn pause(&self, level: usize, time: Duration, note: &str) -> BoxFuture<Result<(), StoreError>> {
        match self.trial.held() {
            Some(permit) => permit.level(level).pause(time, note),
            None => Box::pin(ready(Ok(()))),
        }
    }

    fn settle(&self, level: usize, used: u32) {
        if !self.is_released.load(Relaxed) {
            self.trial.settle(level, used);
        }
    }

    fn awaits_release(&self) -> bool {
        false
    }
}
