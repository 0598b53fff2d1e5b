//! The future of a response: acquire, then ready, then call.

use super::{Hold, hold::Holding};
use crate::{
    admission::poll_unless_lost,
    observe::{Outcome, OutcomeCounter},
    semaphore::{Acquire, AcquireError, BoxError, Permit, Policy},
    settings::Settings,
};
use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    marker::PhantomData,
    ops::ControlFlow::{self, Break, Continue},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tower_service::Service;

pin_project! {
    /// The future that [`Limit`](super::Limit) returns.
    ///
    /// # Errors
    ///
    /// The errors of the inner service, boxed, and the errors that [`LimitLayer`](super::LimitLayer) lists.
    ///
    /// # Panics
    ///
    /// If it is polled after it was ready. If it is polled outside of a Tokio runtime although the store or
    /// [`with_max_hold`](super::LimitLayer::with_max_hold) needs one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: the claim leaves the queue, a permit is released, and the inner
    /// service's future is dropped.
    pub struct ResponseFuture<S, R, H>
    where
        S: Service<R>,
    {
        #[pin]
        state: LimitState<S, R>,
        settings: Arc<Settings>,
        hold: PhantomData<fn() -> H>,
    }
}

pin_project! {
    #[project = LimitStateProj]
    enum LimitState<S, R>
    where
        S: Service<R>,
    {
        // `acquiring` is the service, its request, and the counter of the request's outcome.
        Acquire { acquire: Acquire, acquiring: Option<(S, R, OutcomeCounter)> },
        Ready { service: S, request: Option<R>, holding: Option<Holding> },
        Call { #[pin] future: S::Future, holding: Option<Holding> },
        Refused { error: Option<BoxError> },
        Done,
    }
}

const AGAIN: &str = "`ResponseFuture` polled after it was ready";

impl<S: Service<R>, R, H> ResponseFuture<S, R, H> {
    fn new(state: LimitState<S, R>, settings: Arc<Settings>) -> Self {
        Self {
            state,
            settings,
            hold: PhantomData,
        }
    }

    pub(super) fn limited(
        service: S,
        request: R,
        acquire: Acquire,
        settings: Arc<Settings>,
    ) -> Self {
        let acquiring = (
            service,
            request,
            OutcomeCounter::request(settings.policy.as_str()),
        );
        let acquiring = Some(acquiring);
        Self::new(LimitState::Acquire { acquire, acquiring }, settings)
    }

    pub(super) fn exempt(service: S, request: R, settings: Arc<Settings>) -> Self {
        OutcomeCounter::request(settings.policy.as_str()).ended(Outcome::Exempt);
        let (request, holding) = (Some(request), None);
        let state = LimitState::Ready {
            service,
            request,
            holding,
        };
        Self::new(state, settings)
    }

    pub(super) fn refused(error: impl Into<BoxError>, settings: Arc<Settings>) -> Self {
        OutcomeCounter::request(settings.policy.as_str()).ended(Outcome::Invalid);
        let error = Some(error.into());
        Self::new(LimitState::Refused { error }, settings)
    }
}

impl<S, R, H> Future for ResponseFuture<S, R, H>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
    H: Hold<S::Response>,
{
    type Output = Result<H::Response, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match ready!(this.state.as_mut().step(cx, this.settings)) {
                Continue(next) => this.state.set(next),
                Break(output) => {
                    this.state.set(LimitState::Done);
                    let hold = |(response, holding)| H::hold(response, holding);
                    return Poll::Ready(output.map(hold));
                }
            }
        }
    }
}

/// A response, and the permit that it keeps.
type ResponseResult<T> = Result<(T, Option<Holding>), BoxError>;

impl<S, R> LimitState<S, R>
where
    S: Service<R>,
    S::Error: Into<BoxError>,
{
    /// The next state, or the output.
    fn step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        settings: &Arc<Settings>,
    ) -> Poll<ControlFlow<ResponseResult<S::Response>, Self>> {
        Poll::Ready(match self.project() {
            LimitStateProj::Acquire { acquire, acquiring } => {
                let answer = ready!(Pin::new(acquire).poll(cx));
                let (service, request, counter) = acquiring.take().expect(AGAIN);
                match Holding::granted(answer, counter, settings) {
                    Ok(holding) => Continue(Self::Ready {
                        service,
                        request: Some(request),
                        holding: Some(holding),
                    }),
                    Err(error) => Break(Err(error.into())),
                }
            }
            LimitStateProj::Ready {
                service,
                request,
                holding,
            } => match ready!(poll_inner(holding, cx, |cx| service.poll_ready(cx))) {
                Ok(()) => Continue(Self::Call {
                    future: service.call(request.take().expect(AGAIN)),
                    holding: holding.take(),
                }),
                Err(error) => Break(Err(error)),
            },
            LimitStateProj::Call { future, holding } => {
                let answer = ready!(poll_inner(holding, cx, |cx| future.poll(cx)));
                Break(answer.map(|response| (response, holding.take())))
            }
            LimitStateProj::Refused { error } => Break(Err(error.take().expect(AGAIN))),
            LimitStateProj::Done => panic!("{AGAIN}"),
        })
    }
}

/// Polls the inner service. Fails if the permit is lost and the loss ends the request.
fn poll_inner<T, E: Into<BoxError>>(
    holding: &mut Option<Holding>,
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<Result<T, E>>,
) -> Poll<Result<T, BoxError>> {
    let lost = holding.as_mut().and_then(|holding| holding.lost.as_mut());
    poll_unless_lost(lost, cx, poll).map(|answer| answer?.map_err(Into::into))
}

impl Holding {
    fn granted(
        answer: Result<Permit, AcquireError>,
        mut counter: OutcomeCounter,
        settings: &Arc<Settings>,
    ) -> Result<Self, AcquireError> {
        match answer {
            Ok(permit) => {
                counter.ended(permit.outcome());
                Ok(Self {
                    lost: settings.bound(&permit),
                    settings: Arc::clone(settings),
                    permit,
                })
            }
            Err(error) => {
                counter.refused(error.policy().map(Policy::as_str), error.outcome());
                Err(error)
            }
        }
    }
}

impl<S: Service<R>, R, H> fmt::Debug for ResponseFuture<S, R, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
