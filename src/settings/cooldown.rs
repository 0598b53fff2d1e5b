//! Pauses that a response asks for with `Retry-After`.

use crate::{
    observe::events,
    reject::is_rejection,
    semaphore::{Permit, Policy, SyncFuture},
    timer::timeout,
};
use http::{
    HeaderMap, HeaderName, Response, StatusCode,
    header::{DATE, RETRY_AFTER},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, SystemTime},
};

/// The longest time for which a response waits for the store's answer to its pause. It is longer than the wait for a
/// release, because such a response is rare and its caller has to wait anyway.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// The policy whose keys the responses of the inner service may pause.
#[derive(Clone)]
pub(crate) struct Cooldown {
    policy: Policy,
    max: Duration,
    /// True once a request without a permit under `policy` was logged. Shared by the clones of a layer.
    has_logged_missing: Arc<AtomicBool>,
}

impl Cooldown {
    pub(crate) fn new(policy: Policy, max: Duration) -> Self {
        let has_logged_missing = Arc::default();
        Self {
            policy,
            max,
            has_logged_missing,
        }
    }

    /// Pauses the key of a request's permit if the response asks for it. The future is ready after the store's answer,
    /// or after [`LONGEST_WAIT`]. A task sends the pause, so dropping the future does not stop it. The task holds the
    /// permit until the answer, so that no waiter is granted before the pause.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, if the response pauses a key.
    pub(crate) fn start<B>(
        &self,
        response: &Response<B>,
        permit: &Permit,
    ) -> Option<SyncFuture<()>> {
        let time = retry_delay(response)?.min(self.max);
        if time.is_zero() {
            return None;
        }
        if !permit.levels().any(|level| *level.policy() == self.policy) {
            // In shadow the permit of a request with a wrong key has only the layer's own policy: no mistake to log.
            if !permit.is_shadow() && !self.has_logged_missing.swap(true, Relaxed) {
                events::cooldown_without_permit(self.policy.as_str());
            }
            return None;
        }
        let (permit, policy, note) = (permit.clone(), self.policy.clone(), note(response));
        let pausing = tokio::spawn(async move {
            if let Err(error) = permit.pause(policy.clone(), time, &note).await {
                events::not_paused(policy.as_str(), &error);
            }
        });
        let policy = self.policy.clone();
        Some(SyncFuture::new(async move {
            if timeout(LONGEST_WAIT, pausing).await.is_err() {
                events::pause_is_late(policy.as_str());
            }
        }))
    }
}

/// The time for which a response asks its client to wait. `None` without a valid `Retry-After`, for a status other than
/// 429 and 503, and for rejections of this crate.
fn retry_delay<B>(response: &Response<B>) -> Option<Duration> {
    let is_asking = matches!(
        response.status(),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    );
    if !is_asking || is_rejection(response.extensions()) {
        return None;
    }
    let headers = response.headers();
    let value = text(headers, RETRY_AFTER)?;
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number beyond 64 bits is longer than any bound.
        let seconds = value.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let date = text(headers, DATE).and_then(|date| httpdate::parse_http_date(date).ok());
    let now = date.unwrap_or_else(SystemTime::now);
    until.duration_since(now).ok()
}

/// The note of the pause, for operators.
fn note<B>(response: &Response<B>) -> String {
    let (status, headers) = (response.status().as_u16(), response.headers());
    let value = text(headers, RETRY_AFTER).unwrap_or_default();
    format!("{status} with Retry-After: {value}")
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}
