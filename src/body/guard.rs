//! Holds the permit of a body, and watches for events that end it early.

use crate::{
    background::{Bounded, Countdown},
    observe::LostBy,
    reject::grpc,
    semaphore::{BoxError, LayerPermit, Permit, PermitLost, Policy, SyncFuture},
    settings::{Mistakes, ReleaseAt, Settings},
    timer,
};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body::Frame;
use parking_lot::Mutex;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

/// The result of polling a body: a frame or `None`, and true if no frame follows.
pub(super) type PolledFrame = (Option<Result<Frame<Bytes>, BoxError>>, bool);

/// The value that a body keeps until it ends.
pub(super) enum Guard {
    Permit(PermitGuard),
    /// Only dropped. The lock makes the body `Sync`, and is never taken.
    Any {
        _guard: Mutex<Box<dyn Send>>,
    },
}

impl Guard {
    pub(super) fn any(guard: impl Send + 'static) -> Self {
        Self::Any {
            _guard: Mutex::new(Box::new(guard)),
        }
    }

    /// See [`PermitGuard::poll_lost`].
    pub(super) fn poll_lost(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Frame<Bytes>, BoxError>> {
        match self {
            Self::Permit(guard) => guard.poll_lost(cx),
            Self::Any { .. } => Poll::Pending,
        }
    }

    /// See [`PermitGuard::polled`].
    pub(super) fn polled(&mut self, answer: &Poll<PolledFrame>) {
        if let Self::Permit(guard) = self {
            guard.polled(answer);
        }
    }
}

/// Holds a body's permit. Watches for its loss if the loss ends the body, and for stalls.
pub(crate) struct PermitGuard {
    loss: Option<LossWatch>,
    stall: Option<StallWatch>,
    tunnel: Option<Box<Tunnel>>,
    permit: LayerPermit,
}

/// Warns if no handler holds the permit of a tunnel. The connection outlives the response's body, so the body alone
/// would release the permit too early.
pub(crate) struct Tunnel {
    policy: Policy,
    mistakes: Arc<Mistakes>,
}

impl Tunnel {
    /// Returns `None` if the response opens no tunnel.
    pub(crate) fn opened_by(
        method: &Method,
        status: StatusCode,
        settings: &Settings,
    ) -> Option<Box<Self>> {
        let is_connect = *method == Method::CONNECT && status.is_success();
        let is_tunnel = is_connect || status == StatusCode::SWITCHING_PROTOCOLS;
        is_tunnel.then(|| {
            Box::new(Self {
                policy: settings.policy.clone(),
                mistakes: Arc::clone(&settings.mistakes),
            })
        })
    }
}

struct LossWatch {
    lost: SyncFuture<()>,
    /// True if the body ends with a gRPC status.
    is_grpc: bool,
}

impl PermitGuard {
    /// The guard of the body that belongs to this head. `None` if the body holds no permit. `lost` resolves when the
    /// permit is lost; it is `None` if a loss does not end the body.
    ///
    /// # Panics
    ///
    /// With [`Settings::max_stall`] outside of a Tokio runtime.
    pub(crate) fn new(
        permit: LayerPermit,
        lost: Option<SyncFuture<()>>,
        tunnel: Option<Box<Tunnel>>,
        head: &HeaderMap,
        settings: &Settings,
    ) -> Option<Self> {
        if settings.release_at == ReleaseAt::Head {
            return None;
        }
        let is_grpc = grpc::has_trailers(head);
        let watch = |max_stall| StallWatch::start(permit.clone(), max_stall);
        Some(Self {
            loss: lost.map(|lost| LossWatch { lost, is_grpc }),
            stall: settings.max_stall.map(watch),
            tunnel,
            permit,
        })
    }

    /// True if the response's head should wait for the permit's release.
    pub(crate) fn awaits_release(&self) -> bool {
        self.permit.awaits_release()
    }

    /// The permit, if nothing else holds it. `None` for a tunnel, because only the drop of its guard warns.
    pub(super) fn last_permit(&self) -> Option<Permit> {
        let is_last = self.tunnel.is_none() && self.is_last_holder();
        is_last.then(|| self.permit.clone())
    }

    /// True if only the guard and its watches hold the permit. Each of them has one clone.
    fn is_last_holder(&self) -> bool {
        let watches = usize::from(self.loss.is_some()) + usize::from(self.stall.is_some());
        self.permit.is_held_by(1 + watches)
    }

    /// The last frame of a body whose permit is lost, if the loss ends the body.
    pub(super) fn poll_lost(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Frame<Bytes>, BoxError>> {
        match &mut self.loss {
            Some(loss) => Pin::new(&mut loss.lost).poll(cx).map(|()| loss.frame()),
            None => Poll::Pending,
        }
    }

    /// Notes the result of polling the inner body.
    pub(super) fn polled(&mut self, answer: &Poll<PolledFrame>) {
        if let Some(stall) = &self.stall {
            stall.polled(answer.is_ready());
        }
        if let Poll::Ready((Some(_), _)) = answer {
            // The body itself carries the tunnel's data, as over HTTP/3.
            self.tunnel = None;
        }
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        if let Some(tunnel) = self.tunnel.take().filter(|_| self.is_last_holder()) {
            tunnel.mistakes.unheld_tunnel(&tunnel.policy);
        }
    }
}

impl LossWatch {
    /// gRPC clients get a status. Other clients can detect an incomplete body only by an error.
    fn frame(&self) -> Result<Frame<Bytes>, BoxError> {
        match self.is_grpc {
            true => Ok(Frame::trailers(grpc::lost())),
            false => Err(PermitLost.into()),
        }
    }
}

/// The value of [`Stall::since`] while the body waits for its handler.
const NEVER: i64 = i64::MAX;

/// Ends the permit of a body that a client does not read.
///
/// A server polls a body when it has room for the next frame. So a body that returned a frame and is not polled again
/// waits for the client. A body that was polled and had no frame waits for its handler, however long that takes.
///
/// Each body has one countdown, so a poll only stores the time.
struct StallWatch {
    stall: Arc<Stall>,
    _countdown: Countdown,
}

struct Stall {
    permit: Permit,
    max_stall: Duration,
    /// The time at which the wait for the client began, in [nanoseconds](timer::nanos), or [`NEVER`].
    since: AtomicI64,
}

impl StallWatch {
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    fn start(permit: Permit, max_stall: Duration) -> Self {
        let stall = Arc::new(Stall {
            permit,
            max_stall,
            since: timer::nanos().into(),
        });
        let held: Arc<dyn Bounded> = Arc::clone(&stall) as _;
        Self {
            _countdown: Countdown::start(Arc::downgrade(&held), max_stall),
            stall,
        }
    }

    fn polled(&self, had_frame: bool) {
        let since = if had_frame { timer::nanos() } else { NEVER };
        self.stall.since.store(since, Relaxed);
    }
}

impl Bounded for Stall {
    fn left(&self) -> Duration {
        match self.since.load(Relaxed) {
            NEVER => self.max_stall,
            since => {
                let stalled = timer::nanos().saturating_sub(since).max(0);
                let stalled = Duration::from_nanos(stalled.unsigned_abs());
                self.max_stall.saturating_sub(stalled)
            }
        }
    }

    fn end(&self) {
        self.permit.end(LostBy::Bound);
    }
}
