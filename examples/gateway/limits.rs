//! The limits of an API key and of a model, and `GET /v1/limits`.

use crate::{
    App,
    error::ApiError,
    request::{ApiKey, ApiRequest},
};
use axum::{Json, extract::State, http::request::Parts, response::IntoResponse};
use serde::Serialize;
use std::time::Duration;
use tower_semaphore::{Claim, ConcurrencyLimitLayer, KeyError, KeyExtractor, Policy};

/// Requests in flight of an API key.
const REQUESTS: Policy = Policy::from_static("requests");
/// Tokens per minute of an API key.
pub(crate) const TOKENS: Policy = Policy::from_static("tokens");
/// Tokens per minute of a model.
pub(crate) const MODEL_TOKENS: Policy = Policy::from_static("model-tokens");

/// One layer for all limits of a tenant. Permits come before budgets, and the narrow limit before the wide one. So
/// requests beyond `KEY_LIMIT` wait in the key's own queue. At most `KEY_LIMIT` requests of a key wait for models,
/// where keys take turns.
///
/// [`Accounts`](crate::accounts::Accounts) has the limits of the upstream accounts.
pub(crate) fn layer(app: &App) -> ConcurrencyLimitLayer<impl KeyExtractor + Clone + use<>> {
    let settings = app.settings.clone();
    let claims = move |parts: &Parts| {
        let request = parts.extensions.get::<ApiRequest>();
        let request = request.ok_or_else(KeyError::missing_extension::<ApiRequest>)?;
        let (key, model) = (&*request.key, &*request.completion.model);
        let budget = |key, policy, limit| {
            Claim::new(key)
                .with_policy(policy)
                .with_limit(limit)
                .with_window(settings.minute)
                .with_estimate(request.estimate)
        };
        let claims = [
            Claim::new(key)
                .with_policy(REQUESTS)
                .with_limit(settings.key_limit),
            budget(key, TOKENS, settings.key_tpm),
            budget(model, MODEL_TOKENS, settings.model_tpm).with_flow(key),
        ];
        Ok::<_, KeyError>(claims.map(|claim| claim.with_wait_until(request.deadline)))
    };
    ConcurrencyLimitLayer::new(app.settings.key_limit, claims, app.store.clone())
        .with_rejection(|rejection| ApiError::from(rejection).into_response())
}

/// The use of a limit.
#[derive(Serialize)]
pub(crate) struct LimitUsage {
    policy: String,
    limit: u32,
    used: u32,
    /// `None` for requests in flight.
    window_ms: Option<u128>,
    paused_ms: u128,
}

/// Lists the limits of the client's API key, and their use.
pub(crate) async fn show(
    State(app): State<App>,
    ApiKey(key): ApiKey,
) -> Result<Json<Vec<LimitUsage>>, ApiError> {
    let (key, settings) = (key.into(), &app.settings);
    let limits = [
        (REQUESTS, settings.key_limit, None),
        (TOKENS, settings.key_tpm, Some(settings.minute)),
    ];
    let mut all = Vec::new();
    for (policy, limit, window) in limits {
        let usage = app.store.usage(&policy, &key).await?;
        let pause = usage.pause.as_ref();
        let paused = pause.and_then(|pause| pause.until.duration_since(usage.now).ok());
        all.push(LimitUsage {
            policy: policy.to_string(),
            // An operator may have set another limit.
            limit: usage.limit.unwrap_or(limit),
            used: usage.units,
            window_ms: window.map(|window: Duration| window.as_millis()),
            paused_ms: paused.unwrap_or_default().as_millis(),
        });
    }
    Ok(Json(all))
}
