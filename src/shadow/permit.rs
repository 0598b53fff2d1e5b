//! The permit of a request that is admitted in any case.

use super::trial::Trial;
use crate::semaphore::{BoxFuture, Grant, Loss, PermitLost, Resizing, StoreError, Units};
use parking_lot::Mutex;
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::{sync::oneshot::Sender, time::Instant};

/// The end of the request's permit, told to what its claim holds.
pub(super) struct ShadowGrant {
    trial: Arc<Trial>,
    /// To a claim that is under way.
    ended: Mutex<Option<Sender<Instant>>>,
    is_released: AtomicBool,
    /// Never set.
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

    /// Whether this is the first end.
    fn end(&self) -> bool {
        let sender = self.ended.lock().take();
        let is_told = sender.is_some_and(|sender| sender.send(Instant::now()).is_ok());
        if !is_told {
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
    fn token(&self, _: usize) -> Option<u64> {
        self.trial.held()?.token()
    }

    fn loss(&self) -> &Loss {
        &self.loss
    }

    fn weight(&self, _: usize) -> Option<u32> {
        match self.is_released.load(Relaxed) {
            true => Some(0),
            false => Some(self.trial.weight()),
        }
    }

    fn resize(&self, levels: Vec<(usize, Units)>) -> Resizing<'_> {
        Box::pin(async move {
            if self.is_released.load(Relaxed) {
                return Err(StoreError::new(PermitLost).into());
            }
            if let Some((_, units)) = levels.first() {
                self.trial.resize(units.weight).await;
            }
            Ok(())
        })
    }

    fn release(&self) -> BoxFuture<bool> {
        Box::pin(ready(self.end()))
    }
}
