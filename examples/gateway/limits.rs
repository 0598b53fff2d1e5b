//! The claims of a request, and its refusals.

use crate::completion::Completion;
use axum::{
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, CONTENT_TYPE},
        request::Parts,
    },
    response::Response,
};
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tower_semaphore::{
    AcquireError, Claim, ConcurrencyLimitLayer, KeyError, KeyExtractor, Reason, Rejection,
    Semaphore, semaphore::ClaimError,
};

/// The number of tokens in one unit of the limits.
pub(crate) const TOKENS_PER_UNIT: u32 = 16;

/// The units that may be in flight: per API key, per model, and for all together.
const LIMITS: [(&str, u32); 3] = [("key", 32), ("model", 256), ("fleet", 1_024)];

/// The limit of batch jobs, which leaves a quarter of a model to interactive requests. Batch jobs wait for it in a
/// separate queue. In the model's own queue, a job that does not fit under a lower limit would block the requests
/// behind it.
const BATCH: (&str, u32) = ("batch", 192);

/// The share of interactive requests. API keys take turns at a model. Each key has two flows there, and its interactive
/// requests get four turns for each turn of its batch jobs.
const INTERACTIVE_SHARE: u32 = 4;

/// How long a request may wait. Batch jobs wait longer, and have no head start at the other limits.
const WAIT: Duration = Duration::from_secs(2);
const BATCH_WAIT: Duration = Duration::from_secs(120);
const HEAD_START: Duration = Duration::from_secs(30);

/// All limits at once, from the narrowest to the widest.
pub(crate) fn layer(
    semaphore: Arc<dyn Semaphore>,
) -> ConcurrencyLimitLayer<impl KeyExtractor + Clone> {
    ConcurrencyLimitLayer::new(1, claims, semaphore)
        .with_quota_unit(format!("{TOKENS_PER_UNIT}-tokens"))
        .with_rejection(refuse)
}

/// The number of units that `tokens` tokens take.
pub(crate) fn units(tokens: u32) -> u32 {
    tokens.div_ceil(TOKENS_PER_UNIT).max(1)
}

fn claims(parts: &Parts) -> Result<Vec<Claim>, KeyError> {
    let missing = || KeyError::missing("the completion");
    let completion = parts.extensions.get::<Completion>().ok_or_else(missing)?;
    let keys = [api_key(&parts.headers)?, &completion.model, "all"];
    let claim = |(key, (policy, limit)): (&str, (&'static str, u32))| {
        let claim = Claim::new(key)
            .with_policy(policy)
            .with_limit(limit)
            .with_weight(units(completion.max_tokens));
        match completion.is_batch() {
            true => claim.with_wait(BATCH_WAIT),
            false => claim.with_wait(WAIT).with_head_start(HEAD_START),
        }
    };
    let [key, model, fleet] = [0, 1, 2].map(|level| claim((keys[level], LIMITS[level])));
    let batch = claim((keys[1], BATCH)).with_flow(keys[0]);
    let batch = completion.is_batch().then_some(batch);
    let (class, share) = match completion.is_batch() {
        true => ("batch", 1),
        false => ("interactive", INTERACTIVE_SHARE),
    };
    // Turns replace the head start here.
    let model = model.with_head_start(Duration::ZERO);
    let model = model
        .with_flow(format!("{}/{class}", keys[0]))
        .with_share(share);
    let claims = [Some(key), batch, Some(model), Some(fleet)];
    Ok(claims.into_iter().flatten().collect())
}

fn api_key(headers: &HeaderMap) -> Result<&str, KeyError> {
    let value = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let key = value.and_then(|value| value.strip_prefix("Bearer "));
    let key = key.filter(|key| !key.is_empty());
    key.ok_or_else(|| KeyError::missing("the API key"))
}

/// The error text for an invalid request. The client knows tokens, not units.
fn invalid(error: ClaimError, rejection: &Rejection) -> String {
    let completion = rejection.parts().extensions.get::<Completion>();
    match (error, completion) {
        (ClaimError::TooHeavy { .. } | ClaimError::Weight { .. }, Some(completion)) => {
            let (tokens, policy) = (completion.max_tokens, rejection.policy());
            let most = rejection.limit() * TOKENS_PER_UNIT;
            format!("max_tokens: {tokens} is more than {most}, the limit of this {policy}")
        }
        _ => error.to_string(),
    }
}

/// The error object that clients of such APIs expect, with the headers of the default response.
fn refuse(rejection: Rejection) -> Response<String> {
    let (kind, message) = match rejection.reason() {
        Reason::Key { error, .. } => ("invalid_request_error", error.to_string()),
        Reason::Acquire {
            error: AcquireError::Invalid { source, .. },
            ..
        } => ("invalid_request_error", invalid(*source, &rejection)),
        Reason::Acquire { error, .. } if error.is_refusal() => {
            let policy = rejection.policy();
            (
                "rate_limit_exceeded",
                format!("the limit of this {policy} is reached"),
            )
        }
        _ => ("server_error", "no request can be admitted now".to_owned()),
    };
    let is_unknown = matches!(
        rejection.reason(),
        Reason::Key {
            error: KeyError::Missing { .. },
            ..
        }
    );
    let error = json!({"error": {"type": kind, "code": kind, "message": message}});
    let mut response = rejection.into_response().map(|_| error.to_string());
    if is_unknown {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
