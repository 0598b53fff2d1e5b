//! The answer to a completion: the words of an upstream, which are settled as they come.

use crate::{
    App,
    accounts::{Answer, SendError, UPSTREAM_TOKENS},
    error::ApiError,
    estimate::Estimates,
    limits::{MODEL_TOKENS, TOKENS},
    request::ApiRequest,
    with_causes,
};
use axum::{
    extract::{Extension, State},
    http::{StatusCode, request::Parts},
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures_util::{TryStreamExt, future::ready};
use http_body_util::BodyExt;
use serde::{Deserialize, de::IgnoredAny};
use std::{io, sync::Arc};
use tokio::io::AsyncBufReadExt;
use tokio_stream::wrappers::LinesStream;
use tokio_util::io::StreamReader;
use tower_semaphore::{Permit, Rejection};

/// Streams the words of an upstream, also through nginx.
pub(crate) async fn stream(
    State(app): State<App>,
    Extension(request): Extension<ApiRequest>,
    Extension(tenant): Extension<Permit>,
    parts: Parts,
) -> Result<Response, ApiError> {
    // A permit that is never settled would count as used, also if no upstream answers.
    settle(&tenant, 0);
    let answer = app.accounts.send(&request).await;
    let Answer {
        account,
        permit,
        response,
    } = answer.map_err(|error| match error {
        SendError::Acquire(error) => Rejection::of(&error, &parts).into(),
        SendError::Http(error) => ApiError::new(StatusCode::BAD_GATEWAY, with_causes(&error)),
    })?;
    if response.status() != StatusCode::OK {
        let status = format!("{} has answered {}", account.name, response.status());
        return Err(ApiError::new(StatusCode::BAD_GATEWAY, status));
    }
    let mut meter = Meter {
        permit: permit.with_outer(&tenant),
        model: request.completion.model,
        estimates: app.estimates,
        tokens: 0,
    };
    let bytes = response
        .into_body()
        .into_data_stream()
        .map_err(io::Error::other);
    let lines = LinesStream::new(StreamReader::new(bytes).lines());
    let events = lines.try_filter_map(move |line| ready(Ok(meter.forward(&line))));
    let headers = [("x-upstream", &*account.name), ("x-accel-buffering", "no")];
    Ok((headers, Sse::new(events)).into_response())
}

/// Reports the tokens that a request has used so far, to each budget that `permit` is under.
fn settle(permit: &Permit, tokens: u32) {
    for policy in [TOKENS, MODEL_TOKENS, UPSTREAM_TOKENS] {
        permit.settle(policy, tokens);
    }
}

/// Counts the tokens of an answer. If the client hangs up, the meter is dropped, and the tokens that were settled so far
/// stay spent.
struct Meter {
    /// Of all limits, those of the account too.
    permit: Permit,
    model: String,
    estimates: Arc<Estimates>,
    tokens: u32,
}

/// An event of an upstream.
#[derive(Default, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<IgnoredAny>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u32,
}

impl Meter {
    /// Returns the event in a line of the upstream's answer, if it is for the client. Each word counts as one token. The
    /// upstream's own count, at the end, takes precedence.
    fn forward(&mut self, line: &str) -> Option<Event> {
        let data = line.strip_prefix("data:")?.trim_start();
        let chunk: Chunk = serde_json::from_str(data).unwrap_or_default();
        if let Some(usage) = &chunk.usage {
            self.tokens = usage.completion_tokens;
        } else if !chunk.choices.is_empty() {
            self.tokens += 1;
        }
        settle(&self.permit, self.tokens);
        let is_only_usage = chunk.usage.is_some() && chunk.choices.is_empty();
        (!is_only_usage).then(|| Event::default().data(data))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.estimates.record(&self.model, self.tokens);
    }
}
