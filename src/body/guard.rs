//! The permit of a body.

use super::stall::StallWatch;
use crate::{
    reject::grpc,
    semaphore::{Permit, PermitLost, SyncFuture},
    settings::{OnLost, ReleaseAt, Settings},
};
use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use std::{
    error::Error,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

type LastFrame = Result<Frame<Bytes>, Box<dyn Error + Send + Sync>>;

/// Holds a permit, and watches for its loss if the loss ends the body.
pub(crate) struct PermitGuard {
    loss: Option<LossWatch>,
    stall: Option<StallWatch>,
    _permit: Permit,
}

/// Waits for the loss of the permit.
struct LossWatch {
    lost: SyncFuture<()>,
    /// Whether the body ends in a gRPC status.
    is_grpc: bool,
}

impl PermitGuard {
    /// The guard of the body that belongs to this head. `None` if the body holds no permit.
    ///
    /// # Panics
    ///
    /// With [`Settings::max_stall`] outside of a Tokio runtime.
    pub(crate) fn new(permit: Permit, head: &HeaderMap, settings: &Settings) -> Option<Self> {
        if settings.release_at == ReleaseAt::Head {
            return None;
        }
        let aborts = settings.on_lost == OnLost::Abort && !permit.is_shadow();
        let watch = |max_stall| StallWatch::start(permit.clone(), max_stall);
        Some(Self {
            loss: aborts.then(|| LossWatch::new(&permit, head)),
            stall: settings.max_stall.map(watch),
            _permit: permit,
        })
    }

    /// The last frame of a body whose permit is lost, if the loss ends the body.
    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<LastFrame> {
        match &mut self.loss {
            Some(loss) => Pin::new(&mut loss.lost).poll(cx).map(|()| loss.frame()),
            None => Poll::Pending,
        }
    }

    /// Notes the result of polling the inner body.
    pub(super) fn polled<T>(&self, answer: &Poll<T>) {
        if let Some(stall) = &self.stall {
            stall.polled(answer.is_ready());
        }
    }
}

impl LossWatch {
    fn new(permit: &Permit, head: &HeaderMap) -> Self {
        let permit = permit.clone();
        Self {
            lost: SyncFuture::new(async move { permit.lost().await }),
            is_grpc: grpc::has_trailers(head),
        }
    }

    /// gRPC clients get a status. Others can only tell by an error that the body is incomplete.
    fn frame(&self) -> LastFrame {
        match self.is_grpc {
            true => Ok(Frame::trailers(grpc::lost())),
            false => Err(PermitLost.into()),
        }
    }
}
