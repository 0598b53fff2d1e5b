//! The future of a response: acquire, then ready, then call.

use crate::{
    admission::{Acquiring, Admitted, RequestPermit},
    body::{PermitGuard, ResponseBody},
    observe::{Outcome, OutcomeCounter},
    reject::{Reason, Rejection, RequestLimits, respond},
    semaphore::{Acquire, AcquireError, BoxError, Permit, PermitLost, SyncFuture},
    settings::Settings,
    timer::timeout,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    ops::ControlFlow::{self, Break, Continue},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};
use tower_service::Service;

/// The longest time for which a response's head waits for the answer to its permit's release. A Redis nearby answers
/// within a fraction of a millisecond.
const LONGEST_WAIT: Duration = Duration::from_millis(2);

/// A service of HTTP: `Service<http::Request<B>>` whose responses are `http::Response`s. Every such service implements
/// it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service of `http::Request<{B}>` that returns an `http::Response`",
    label = "not an HTTP service for these limits",
    note = "`reqwest::Client` has request and response types of its own: the guide has a recipe for it in `guide::recipes::calls`",
    note = "for a service of other requests, use `LimitLayer`"
)]
pub trait HttpService<B>:
    Service<Request<B>, Response = Response<<Self as HttpService<B>>::Body>>
{
    /// The body of the responses.
    type Body;
}

#[diagnostic::do_not_recommend]
impl<S, B, R> HttpService<B> for S
where
    S: Service<Request<B>, Response = Response<R>>,
{
    type Body = R;
}

pin_project! {
    /// The future that [`ConcurrencyLimit`](crate::ConcurrencyLimit) and
    /// [`GlobalConcurrencyLimit`](crate::GlobalConcurrencyLimit) return.
    ///
    /// The future resolves to the inner service's response, or to the response of a rejection. If the permit's key is
    /// full in Redis and the body ends in its first frame, the response waits for the answer to the permit's release.
    /// It waits at most 2 ms, which Tokio's timer rounds up to 4 ms at most. A custom store decides this with
    /// [`Grant::awaits_release`](crate::semaphore::Grant::awaits_release). A response that pauses its key waits at most
    /// 100 ms: see [`with_cooldown`](crate::ConcurrencyLimitLayer::with_cooldown). Under
    /// [`OnLost::Abort`](crate::OnLost::Abort) the future drops the inner service's future before it returns a
    /// rejection.
    ///
    /// # Errors
    ///
    /// Those of the inner service. A rejection is a response, not an error.
    ///
    /// # Panics
    ///
    /// If it is polled after it was ready, or if the polled body panics. If it is polled outside of a Tokio runtime
    /// although the store, [`with_max_hold`](crate::ConcurrencyLimitLayer::with_max_hold),
    /// [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall) or
    /// [`with_cooldown`](crate::ConcurrencyLimitLayer::with_cooldown) needs one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves nothing behind: the claim leaves the queue, a permit is released,
    /// and the inner service's future is dropped. A pause that has begun goes on.
    pub struct ResponseFuture<S, B>
    where
        S: HttpService<B>,
    {
        #[pin]
        state: ResponseState<S, B>,
        settings: Arc<Settings>,
    }
}

pin_project! {
    #[project = ResponseStateProj]
    enum ResponseState<S, B>
    where
        S: HttpService<B>,
    {
        Acquire { acquire: Acquire, acquiring: Option<Acquiring<S, B>> },
        Ready { service: S, admitted: Option<Admitted<B>> },
        Call { #[pin] future: S::Future, granted: Option<RequestPermit> },
        Pause { answer: Option<(Option<RequestPermit>, Response<S::Body>)>, paused: SyncFuture<()> },
        /// The inner service's future is dropped already, and the request with it.
        Start { answer: Option<(Response<S::Body>, PermitGuard)> },
        Release { response: Option<Response<ResponseBody<S::Body>>>, answered: SyncFuture<()> },
        Rejected { rejection: Option<Rejection> },
        Done,
    }
}

/// The next state, or the output of the future.
type Transition<S, B, R, E> =
    ControlFlow<Result<Response<ResponseBody<R>>, E>, ResponseState<S, B>>;

impl<S, B> ResponseFuture<S, B>
where
    S: HttpService<B>,
    B: Body + Send + 'static,
{
    pub(crate) fn limited(
        acquiring: Acquiring<S, B>,
        acquire: Acquire,
        settings: Arc<Settings>,
    ) -> Self {
        let state = match acquire.answer() {
            Ok(answer) => ResponseState::answered(acquiring, answer, &settings),
            Err(acquire) => ResponseState::Acquire {
                acquire,
                acquiring: Some(acquiring),
            },
        };
        Self { state, settings }
    }

    pub(crate) fn exempt(service: S, request: Request<B>, settings: Arc<Settings>) -> Self {
        OutcomeCounter::request(settings.policy.as_str()).ended(Outcome::Exempt);
        let admitted = Some(Admitted::exempt(request));
        let state = ResponseState::Ready { service, admitted };
        Self { state, settings }
    }

    /// The future of an inner call that was already made, with its permit.
    pub(crate) fn called(
        future: S::Future,
        granted: RequestPermit,
        settings: Arc<Settings>,
    ) -> Self {
        OutcomeCounter::request(settings.policy.as_str()).ended(granted.outcome());
        let granted = Some(granted);
        let state = ResponseState::Call { future, granted };
        Self { state, settings }
    }

    /// The future of a request that is refused without a claim, or whose service had no permit for it.
    pub(crate) fn refused(
        request: Request<B>,
        reason: Reason,
        limit: u32,
        settings: Arc<Settings>,
    ) -> Self {
        let limits = RequestLimits::one(settings.policy.clone(), limit, None);
        let rejection = settings.refuse(reason, limits, request);
        let outcome = rejection.reason().outcome();
        OutcomeCounter::request(rejection.policy().as_str()).ended(outcome);
        let state = ResponseState::rejected(rejection);
        Self { state, settings }
    }
}

/// The message of a poll after completion. The content of a state is missing only then, because each step that takes
/// the content also leaves the state.
const AGAIN: &str = "`ResponseFuture` polled after it was ready";

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: Body + Send + 'static,
    ResBody: Body<Data = Bytes>,
    ResBody::Error: Into<BoxError>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match ready!(this.state.as_mut().step(cx, this.settings)) {
                Continue(next) => this.state.set(next),
                Break(output) => {
                    this.state.set(ResponseState::Done);
                    return Poll::Ready(output);
                }
            }
        }
    }
}

impl<S, ReqBody, ResBody> ResponseState<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ReqBody: Body + Send + 'static,
    ResBody: Body<Data = Bytes>,
    ResBody::Error: Into<BoxError>,
{
    fn step(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        settings: &Settings,
    ) -> Poll<Transition<S, ReqBody, ResBody, S::Error>> {
        Poll::Ready(match self.project() {
            ResponseStateProj::Acquire { acquire, acquiring } => {
                let answer = ready!(Pin::new(acquire).poll(cx));
                let acquiring = acquiring.take().expect(AGAIN);
                Continue(ResponseState::answered(acquiring, answer, settings))
            }
            ResponseStateProj::Ready { service, admitted } => {
                let granted = &mut admitted.as_mut().expect(AGAIN).granted;
                match ready!(RequestPermit::poll_inner(granted, cx, |cx| service.poll_ready(cx))) {
                    Ok(Ok(())) => {
                        Continue(ResponseState::call(service, admitted.take().expect(AGAIN)))
                    }
                    Ok(Err(error)) => Break(Err(error)),
                    Err(PermitLost) => Continue(ResponseState::aborted(granted, settings)),
                }
            }
            ResponseStateProj::Call { future, granted } => {
                match ready!(RequestPermit::poll_inner(granted, cx, |cx| future.poll(cx))) {
                    Ok(Ok(response)) => ResponseState::receive(granted.take(), response, settings),
                    Ok(Err(error)) => Break(Err(error)),
                    Err(PermitLost) => Continue(ResponseState::aborted(granted, settings)),
                }
            }
            ResponseStateProj::Pause { answer, paused } => {
                ready!(Pin::new(paused).poll(cx));
                let (granted, response) = answer.take().expect(AGAIN);
                ResponseState::respond(granted, response, settings)
            }
            ResponseStateProj::Start { answer } => {
                let (response, guard) = answer.take().expect(AGAIN);
                ResponseState::start(response, guard, cx)
            }
            ResponseStateProj::Release { response, answered } => {
                ready!(Pin::new(answered).poll(cx));
                Break(Ok(response.take().expect(AGAIN)))
            }
            ResponseStateProj::Rejected { rejection } => {
                let response = respond(&*settings.reject, rejection.take().expect(AGAIN));
                Break(Ok(response.map(ResponseBody::rejection)))
            }
            ResponseStateProj::Done => panic!("{AGAIN}"),
        })
    }

    /// Pauses the permit's key first if the response asks for it, so that no request is admitted after the caller has
    /// the response.
    fn receive(
        granted: Option<RequestPermit>,
        response: Response<ResBody>,
        settings: &Settings,
    ) -> Transition<S, ReqBody, ResBody, S::Error> {
        let pause = granted
            .as_ref()
            .and_then(|granted| granted.cool_down(&response, settings));
        match pause {
            Some(paused) => Continue(Self::Pause {
                answer: Some((granted, response)),
                paused,
            }),
            None => Self::respond(granted, response, settings),
        }
    }

    /// Returns the response. If the head should wait for the permit's release, polls the body first.
    fn respond(
        granted: Option<RequestPermit>,
        mut response: Response<ResBody>,
        settings: &Settings,
    ) -> Transition<S, ReqBody, ResBody, S::Error> {
        let guard = granted.and_then(|granted| granted.guard_body(&mut response, settings));
        match guard {
            Some(guard) if guard.awaits_release() => Continue(Self::Start {
                answer: Some((response, guard)),
            }),
            guard => Break(Ok(response.map(|body| ResponseBody::new(body, guard)))),
        }
    }

    /// Polls the body, and releases the permit if the body has ended. A client that has read the end may send its next
    /// request to another process, so the release should arrive first.
    ///
    /// The head waits for the release, not the body's last frame. If a server finds no frame, it sends the head alone,
    /// and without `TCP_NODELAY` the frame leaves 40 ms later.
    fn start(
        response: Response<ResBody>,
        guard: PermitGuard,
        cx: &mut Context<'_>,
    ) -> Transition<S, ReqBody, ResBody, S::Error> {
        let (head, body) = response.into_parts();
        let (body, permit) = ResponseBody::start(body, guard, cx);
        let response = Response::from_parts(head, body);
        match permit {
            Some(permit) => Continue(Self::Release {
                response: Some(response),
                answered: release(&permit),
            }),
            None => Break(Ok(response)),
        }
    }
}

/// Releases a permit. The future is ready after the answer, or after [`LONGEST_WAIT`].
fn release(permit: &Permit) -> SyncFuture<()> {
    let released = permit.release();
    SyncFuture::new(async move {
        let _ = timeout(LONGEST_WAIT, released).await;
    })
}

impl<S, B> ResponseState<S, B>
where
    S: HttpService<B>,
    B: Body + Send + 'static,
{
    fn answered(
        acquiring: Acquiring<S, B>,
        answer: Result<Permit, AcquireError>,
        settings: &Settings,
    ) -> Self {
        match answer {
            Ok(permit) => Self::ready(acquiring.admit(permit, settings)),
            Err(error) => Self::rejected(acquiring.refuse(error, settings)),
        }
    }

    fn ready((service, admitted): (S, Admitted<B>)) -> Self {
        Self::Ready {
            service,
            admitted: Some(admitted),
        }
    }

    fn call(service: &mut S, admitted: Admitted<B>) -> Self {
        Self::Call {
            future: service.call(admitted.request),
            granted: admitted.granted,
        }
    }

    /// The state after a loss. Entering it drops the inner service and then the permit.
    fn aborted(granted: &mut Option<RequestPermit>, settings: &Settings) -> Self {
        let granted = granted.as_mut().expect(AGAIN);
        Self::rejected(granted.abort(settings).expect(AGAIN))
    }

    fn rejected(rejection: Rejection) -> Self {
        Self::Rejected {
            rejection: Some(rejection),
        }
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: HttpService<B>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
