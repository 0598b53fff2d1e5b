//! The answer to a completion: the events of an upstream, whose tokens are settled as the events are forwarded.

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
use serde::Deserialize;
use std::{io, sync::Arc};
use tokio::io::AsyncBufReadExt;
use tokio_stream::wrappers::LinesStream;
use tokio_util::io::StreamReader;
use tower_semaphore::{Permit, Rejection};

/// Sends the request to an upstream, and forwards the events of its answer.
pub(crate) async fn stream(
    State(app): State<App>,
    Extension(request): Extension<ApiRequest>,
    Extension(tenant): Extension<Permit>,
    parts: Parts,
) -> Result<Response, ApiError> {
    // Without a settlement the whole estimate would count as used, even if no upstream answers.
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
    // `x-accel-buffering` keeps nginx from buffering the stream.
    let headers = [("x-upstream", &*account.name), ("x-accel-buffering", "no")];
    Ok((headers, Sse::new(events)).into_response())
}

/// Reports the total of tokens that a request has used so far to all budgets of `permit`.
fn settle(permit: &Permit, tokens: u32) {
    for policy in [TOKENS, MODEL_TOKENS, UPSTREAM_TOKENS] {
        permit.settle(policy, tokens);
    }
}

/// Counts and settles the tokens of an answer. If the client hangs up, the meter is dropped: settled tokens stay spent,
/// and the rest of the estimate is freed.
struct Meter {
    /// The permit of the account, which also keeps the tenant's.
    permit: Permit,
    model: String,
    estimates: Arc<Estimates>,
    tokens: u32,
}

/// An event of an upstream.
#[derive(Default, Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Usage {
    completion_tokens: u32,
}

impl Meter {
    /// Counts the tokens in a line of the upstream's answer. Returns the event of the line, if it is for the client.
    ///
    /// An event with text counts as one token, unless it also has `usage`. The `usage` of an upstream replaces the count.
    /// Budgets ignore a smaller count than they have settled already. The mean of the model gets only answers that have
    /// ended, because a client that hangs up shows nothing about their length.
    fn forward(&mut self, line: &str) -> Option<Event> {
        let data = line.strip_prefix("data:")?.trim_start();
        if data == "[DONE]" {
            self.estimates.record(&self.model, self.tokens);
        }
        let chunk: Chunk = serde_json::from_str(data).unwrap_or_default();
        if let Some(usage) = &chunk.usage {
            self.tokens = usage.completion_tokens;
        } else if chunk.choices.iter().any(|choice| !choice.text.is_empty()) {
            self.tokens += 1;
        }
        settle(&self.permit, self.tokens);
        let is_only_usage = chunk.usage.is_some() && chunk.choices.is_empty();
        (!is_only_usage).then(|| Event::default().data(data))
    }
}
