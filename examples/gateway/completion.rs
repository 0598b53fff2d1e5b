//! A completion: its request, and its streamed answer.

use crate::{
    limits::{TOKENS_PER_UNIT, units},
    upstream,
};
use axum::{
    body::{Body, to_bytes},
    extract::{Extension, Request},
    http::StatusCode,
    middleware::Next,
    response::{
        IntoResponse, Response,
        sse::{Event, Sse},
    },
};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use tower_semaphore::Permit;

/// The body of a client's request.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Completion {
    pub(crate) model: String,
    pub(crate) prompt: String,
    pub(crate) max_tokens: u32,
    #[serde(default)]
    service_tier: String,
}

impl Completion {
    pub(crate) fn is_batch(&self) -> bool {
        self.service_tier == "batch"
    }
}

/// Reads the request's body once, for the limits and for the handler.
pub(crate) async fn read(request: Request, next: Next) -> Response {
    const MAX_BYTES: usize = 1 << 20;
    let (mut parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BYTES).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    match serde_json::from_slice::<Completion>(&body) {
        Ok(completion) => parts.extensions.insert(completion),
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    next.run(Request::from_parts(parts, Body::empty())).await
}

/// Streams the words of the model, also through nginx. The permit shrinks to the tokens that may still come, so that
/// the next request can use the rest.
pub(crate) async fn stream(
    Extension(completion): Extension<Completion>,
    Extension(permit): Extension<Permit>,
) -> (
    [(&'static str, &'static str); 1],
    Sse<impl Stream<Item = Result<Event, Infallible>>>,
) {
    let most = completion.max_tokens;
    let words = upstream::words(&completion).enumerate();
    let events = words.map(move |(index, word)| {
        let left = most - index as u32 - 1;
        if left.is_multiple_of(TOKENS_PER_UNIT) {
            // The first poll queues the release of the units, so the words need not wait for its answer. If it fails,
            // the units are released later, with the permit.
            let _ = permit.resize(units(left)).now_or_never();
        }
        Event::default().json_data(json!({"choices": [{"text": word}]}))
    });
    let events = events.filter_map(|event| async { event.ok().map(Ok) });
    let events = events.chain(stream::iter([Ok(Event::default().data("[DONE]"))]));
    ([("x-accel-buffering", "no")], Sse::new(events))
}
