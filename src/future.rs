//! From a claim to a response: acquire, then ready, then call.

use crate::{
    body::{Hold, ResponseBody},
    fields,
    key::KeyError,
    layer::Settings,
    reject::{Reason, Rejection},
    semaphore::{Acquire, Claim, Permit, Policy},
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tower_service::Service;

pin_project! {
    /// The future of a request's response: [`ConcurrencyLimit`](crate::ConcurrencyLimit)'s.
    ///
    /// # Cancel safety
    ///
    /// Dropping it gives the permit back, held or on its way.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
        settings: Arc<Settings>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        Acquire { acquire: Acquire, policy: Policy, limit: u32, next: Option<(S, Request<B>)> },
        Ready { service: S, request: Option<Request<B>>, admitted: Option<Admitted> },
        Call { #[pin] future: S::Future, admitted: Option<Admitted> },
        Rejected { rejection: Option<Rejection> },
        Done,
    }
}

/// A permit, and the policy that it was granted under.
struct Admitted {
    permit: Permit,
    policy: Policy,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(crate) fn limited(
        service: S,
        request: Request<B>,
        claim: Claim,
        settings: Arc<Settings>,
    ) -> Self {
        let state = State::Acquire {
            policy: claim.policy().clone(),
            limit: claim.limit().unwrap_or(settings.limit),
            acquire: settings.semaphore.acquire(claim),
            next: Some((service, request)),
        };
        Self { state, settings }
    }

    pub(crate) fn exempt(service: S, request: Request<B>, settings: Arc<Settings>) -> Self {
        let state = State::Ready {
            service,
            request: Some(request),
            admitted: None,
        };
        Self { state, settings }
    }

    pub(crate) fn rejected(request: Request<B>, error: KeyError, settings: Arc<Settings>) -> Self {
        let policy = settings.policy.clone();
        let rejection = Rejection::new(Reason::Key(error), policy, settings.limit, &request);
        let state = State::Rejected {
            rejection: Some(rejection),
        };
        Self { state, settings }
    }
}

/// What a state says when a future is polled again after it has ended.
const AGAIN: &str = "`ResponseFuture` polled after it was ready";

impl<S, ReqBody, ResBody> Future for ResponseFuture<S, ReqBody>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>>,
    ResBody: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<ResBody>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProj::Acquire {
                    acquire,
                    policy,
                    limit,
                    next,
                } => {
                    let granted = ready!(Pin::new(acquire).poll(cx));
                    let (service, request) = next.take().expect(AGAIN);
                    match granted {
                        Ok(permit) => {
                            let admitted = Admitted {
                                permit,
                                policy: policy.clone(),
                            };
                            admit(service, request, admitted, this.settings)
                        }
                        Err(error) => State::Rejected {
                            rejection: Some(Rejection::new(
                                Reason::Acquire(error),
                                policy.clone(),
                                *limit,
                                &request,
                            )),
                        },
                    }
                }
                StateProj::Ready {
                    service,
                    request,
                    admitted,
                } => {
                    ready!(service.poll_ready(cx))?;
                    let future = service.call(request.take().expect(AGAIN));
                    State::Call {
                        future,
                        admitted: admitted.take(),
                    }
                }
                StateProj::Call { future, admitted } => {
                    let answer = ready!(future.poll(cx));
                    let admitted = admitted.take();
                    this.state.set(State::Done);
                    return Poll::Ready(answer.map(|head| respond(head, admitted, this.settings)));
                }
                StateProj::Rejected { rejection } => {
                    let rejection = rejection.take().expect(AGAIN);
                    let response = (this.settings.reject)(rejection);
                    return Poll::Ready(Ok(response.map(ResponseBody::rejection)));
                }
                StateProj::Done => panic!("{AGAIN}"),
            };
            this.state.set(next);
        }
    }
}

/// Hands the permit on: a clone for the handler, in the request's extensions.
fn admit<S, B>(
    service: S,
    mut request: Request<B>,
    admitted: Admitted,
    settings: &Settings,
) -> State<S, B>
where
    S: Service<Request<B>>,
{
    if let Some(max_hold) = settings.max_hold {
        admitted.permit.end_after(max_hold);
    }
    request.extensions_mut().insert(admitted.permit.clone());
    State::Ready {
        service,
        request: Some(request),
        admitted: Some(admitted),
    }
}

/// Moves the permit into the body, or drops it here if it is to end with the head.
fn respond<B: Body<Data = Bytes>>(
    mut response: Response<B>,
    admitted: Option<Admitted>,
    settings: &Settings,
) -> Response<ResponseBody<B>> {
    let hold = admitted.and_then(|Admitted { permit, policy }| {
        fields::append(
            response.headers_mut(),
            &policy,
            permit.limit(),
            Some(permit.remaining()),
        );
        Hold::new(permit, settings.on_lost, settings.release_at)
    });
    response.map(|body| ResponseBody::new(body, hold))
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
