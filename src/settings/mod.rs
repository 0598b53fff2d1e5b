//! Settings of a limit.

mod cooldown;
mod methods;

pub(crate) use cooldown::Cooldown;
pub(crate) use methods::{claim_methods, inner_service_methods, settings_methods};

use crate::{
    fields::Fields,
    key::KeyError,
    nesting::Nesting,
    observe::events,
    reject::{Drain, Reason, Reject, Rejection, RequestLimits, default_rejection},
    retry::Retry,
    semaphore::{
        Acquire, Claim, Claims, DEFAULT_MAX_WAITING, Permit, Policy, Semaphore, SyncFuture,
    },
    shadow::Shadow,
};
use http::{Extensions, Request};
use http_body::Body;
use parking_lot::Mutex;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The settings of a layer, shared by its services.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) limit: u32,
    pub(crate) policy: Policy,
    pub(crate) fields: Arc<Fields>,
    pub(crate) wait: Duration,
    pub(crate) max_waiting: u32,
    pub(crate) has_fair_queues: bool,
    pub(crate) semaphore: Arc<dyn Semaphore>,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_stall: Option<Duration>,
    pub(crate) on_lost: OnLost,
    pub(crate) release_at: ReleaseAt,
    pub(crate) reject: Arc<Reject>,
    pub(crate) drain: Drain,
    pub(crate) cooldown: Option<Cooldown>,
    /// Shared by the copies of a layer.
    pub(crate) retry: Arc<Retry>,
    pub(crate) shadow: Option<Arc<Shadow>>,
    /// Shared by the copies of a layer, so that each mistake is logged once.
    pub(crate) mistakes: Arc<Mistakes>,
}

impl Settings {
    pub(crate) fn new(limit: u32, semaphore: impl Semaphore) -> Self {
        Self {
            limit,
            policy: Policy::DEFAULT,
            fields: Arc::new(Fields::new(Policy::DEFAULT, limit)),
            wait: Duration::ZERO,
            max_waiting: DEFAULT_MAX_WAITING,
            has_fair_queues: false,
            semaphore: Arc::new(semaphore),
            max_hold: None,
            max_stall: None,
            on_lost: OnLost::default(),
            release_at: ReleaseAt::default(),
            reject: Arc::new(default_rejection),
            drain: Drain::default(),
            cooldown: None,
            retry: Arc::default(),
            shadow: None,
            mistakes: Arc::default(),
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.fields = Arc::new(self.fields.with_policy(policy.clone()));
        self.policy = policy;
    }

    /// Acquires a permit for a request of any type.
    pub(crate) fn acquire(&self, claims: Claims) -> Acquire {
        self.acquire_under(None, claims)
    }

    /// Decides what a request demands, by the result of its extractor. Logs a wrong key.
    pub(crate) fn demand(&self, extracted: Result<Option<Claims>, KeyError>) -> Demand {
        let is_keyless = |claim: &Claim| claim.key().is_empty();
        let error = match extracted {
            Ok(None) => return Demand::Exempt,
            Ok(Some(claims)) if claims.as_slice().is_empty() => return Demand::Exempt,
            Ok(Some(claims)) if claims.as_slice().iter().any(is_keyless) => KeyError::Empty,
            Ok(Some(claims)) => return Demand::Claims(self.complete_all(claims)),
            Err(error) => error,
        };
        self.mistakes.without_key(&self.policy, &error);
        match self.shadow {
            Some(_) => Demand::Shadow(Shadow::admit_invalid(self.policy.clone(), self.limit)),
            None => Demand::Refused(error),
        }
    }

    /// Starts the countdown of a permit's longest hold. If a loss ends the request, returns a future that is ready at
    /// the loss. A permit in shadow is bounded in the store, and its loss ends nothing.
    pub(crate) fn bound(&self, permit: &Permit) -> Option<SyncFuture<()>> {
        if permit.is_shadow() {
            return None;
        }
        if let Some(max_hold) = self.max_hold {
            permit.end_after(max_hold);
        }
        let watch = || {
            let permit = permit.clone();
            SyncFuture::new(async move { permit.lost().await })
        };
        (self.on_lost == OnLost::Abort).then(watch)
    }

    /// Acquires a permit for a request, which may be under other limits already. In shadow the permit is ready at once.
    /// Refuses invalid claims without a call to the store.
    #[inline]
    pub(crate) fn acquire_under(&self, nesting: Option<Nesting>, claims: Claims) -> Acquire {
        if let Some(shadow) = &self.shadow {
            let permit = shadow.admit(claims, &*self.semaphore, self.max_hold, nesting);
            return Acquire::ready(Ok(permit));
        }
        match (claims.check_with_budgets(), nesting) {
            (Err(error), _) => Acquire::ready(Err(error)),
            (Ok(()), None) => self.semaphore.acquire_all(claims),
            (Ok(()), Some(nesting)) => self.acquire_within(nesting, claims),
        }
    }

    /// Returns the limits that a request is under already. Removes the permit of an earlier attempt from the
    /// extensions: its layer is done with the request, which must neither wait for that permit nor keep it.
    #[inline]
    pub(crate) fn nesting(&self, request: &mut Extensions) -> Option<Nesting> {
        let outer = request.remove::<Permit>()?.in_layers()?;
        let nesting = Nesting::new(&outer, &self.mistakes.has_logged_nested);
        request.insert(outer);
        Some(nesting)
    }

    #[cold]
    fn acquire_within(&self, nesting: Nesting, claims: Claims) -> Acquire {
        match self.semaphore.acquire_all(nesting.mark(claims)).answer() {
            Ok(answer) => Acquire::ready(nesting.judge(answer)),
            Err(acquire) => Acquire::pending(async move { nesting.judge(acquire.await) }),
        }
    }

    /// The claims of a request, with these settings for each value that a claim does not set. If queues are fair, the
    /// key of the first claim is the flow of all later ones.
    fn complete_all(&self, claims: Claims) -> Claims {
        let has_flows = self.has_fair_queues && claims.as_slice().len() > 1;
        let mut narrowest = None;
        claims.map(|claim| {
            let claim = self.complete(claim);
            if let Some(flow) = &narrowest {
                return claim.with_default_flow(flow);
            }
            narrowest = has_flows.then(|| claim.key().clone());
            claim
        })
    }

    /// Refuses a request. Reads the rest of its body if that helps the client.
    pub(crate) fn refuse<B>(
        &self,
        reason: Reason,
        limits: RequestLimits,
        request: Request<B>,
    ) -> Rejection
    where
        B: Body + Send + 'static,
    {
        let (parts, body) = request.into_parts();
        let rejection = Rejection::new(reason, limits, parts, &self.retry, &self.fields);
        rejection.drain(body, self.drain)
    }

    /// The claim, with these settings for each value that the claim does not set.
    #[inline]
    pub(crate) fn complete(&self, claim: Claim) -> Claim {
        claim.with_defaults(&self.policy, self.limit, self.wait, self.max_waiting)
    }
}

/// The demand of a request on its limit.
pub(crate) enum Demand {
    Exempt,
    Claims(Claims),
    /// The key is wrong, and a limit in shadow admits the request with this permit.
    Shadow(Permit),
    /// The key is wrong.
    Refused(KeyError),
}

/// The shortest time between two logs of a missing extension.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Mistakes of the service that its requests reveal. Each is logged, but not at every request.
#[derive(Default)]
pub(crate) struct Mistakes {
    /// The time of the last log of a missing extension.
    last_logged: Mutex<Option<Instant>>,
    /// True once a nested limit of the same semaphore was logged.
    has_logged_nested: Arc<AtomicBool>,
    /// True once a tunnel without a holder of its permit was logged.
    has_logged_tunnel: AtomicBool,
}

impl Mistakes {
    /// Logs that a request has no key, because of its client or of the service.
    pub(crate) fn without_key(&self, policy: &Policy, error: &KeyError) {
        match error {
            KeyError::MissingExtension { extension } => {
                if self.start_log_interval() {
                    events::missing_extension(policy.as_str(), extension);
                }
            }
            error => events::without_key(policy.as_str(), error),
        }
    }

    /// Logs once that a response has opened a tunnel and its permit ends at once.
    pub(crate) fn unheld_tunnel(&self, policy: &Policy) {
        if !self.has_logged_tunnel.swap(true, Relaxed) {
            events::unheld_tunnel(policy.as_str());
        }
    }

    /// Returns true if the last interval is over, and then starts another one.
    fn start_log_interval(&self) -> bool {
        let now = Instant::now();
        let mut last = self.last_logged.lock();
        let is_due = last.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// The fate of a request whose permit is lost. A permit is lost at the end of its lease, by
/// [`with_max_hold`](crate::ConcurrencyLimitLayer::with_max_hold) or
/// [`with_max_stall`](crate::ConcurrencyLimitLayer::with_max_stall), or when an operator
/// [revokes](crate::Operate::revoke) it.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, OnLost, key};
///
/// let layer = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new())
///     .with_on_lost(OnLost::Abort);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum OnLost {
    /// The request goes on, so for a while more requests than the limit may be in flight.
    #[default]
    Finish,
    /// The request ends, whatever its phase.
    ///
    /// - Before the response's head the inner service's future is dropped. Then the client gets status 503, or
    ///   `grpc-status` 14. The reason is [`Reason::Aborted`](crate::Reason::Aborted). The handler stops at an `.await`,
    ///   as it does when its client hangs up. Its effects remain, and tasks that it has spawned continue. A response
    ///   that is not streamed spends all its time in this phase. A client of HTTP/1 that is still sending its request
    ///   may find the connection closed instead of the 503.
    /// - After the head the body ends in a [`PermitLost`](crate::PermitLost) error at its next poll, and a server then
    ///   closes the connection or resets the stream. A gRPC response ends in trailers with `grpc-status` 14. With
    ///   [`ReleaseAt::Head`] the body holds no permit, so nothing happens.
    ///
    /// Each request keeps a copy of its head until the response's head, because the rejection needs it.
    Abort,
}

/// When the permit of a request is released.
///
/// # Examples
///
/// ```
/// use tower_semaphore::{ConcurrencyLimitLayer, MemorySemaphore, ReleaseAt, key};
///
/// let layer = ConcurrencyLimitLayer::new(5, key::header("x-account-id"), MemorySemaphore::new())
///     .with_release(ReleaseAt::Head);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum ReleaseAt {
    /// When the response's body has ended.
    #[default]
    BodyEnd,
    /// When the inner service has returned the response's head, as tower's own limit does.
    Head,
}
