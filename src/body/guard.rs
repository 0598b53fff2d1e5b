//! The permit of a body.

use super::stall::StallWatch;
use crate::{
    semaphore::{Permit, SyncFuture},
    settings::{OnLost, ReleaseAt, Settings},
};
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Holds a permit, and watches for its loss if that ends the body.
pub(crate) struct PermitGuard {
    lost: Option<SyncFuture<()>>,
    stall: Option<StallWatch>,
    _permit: Permit,
}

impl PermitGuard {
    /// `None` if the body holds no permit.
    ///
    /// # Panics
    ///
    /// With [`Settings::max_stall`] outside of a Tokio runtime.
    pub(crate) fn new(permit: Permit, settings: &Settings) -> Option<Self> {
        if settings.release_at == ReleaseAt::Head {
            return None;
        }
        let lost = (settings.on_lost == OnLost::Abort).then(|| {
            let permit = permit.clone();
            SyncFuture::new(async move { permit.lost().await })
        });
        let watch = |max_stall| StallWatch::start(permit.clone(), max_stall);
        Some(Self {
            lost,
            stall: settings.max_stall.map(watch),
            _permit: permit,
        })
    }

    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.lost {
            Some(lost) => Pin::new(lost).poll(cx),
            None => Poll::Pending,
        }
    }

    /// The inner body was polled, and answered so.
    pub(super) fn polled<T>(&self, answer: &Poll<T>) {
        if let Some(stall) = &self.stall {
            stall.polled(answer.is_ready());
        }
    }
}
