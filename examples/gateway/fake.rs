//! The built-in upstream. It answers with words, and its accounts have quotas.

use crate::{App, accounts::QUOTA, error::ApiError, request::Completion, settings::Settings};
use axum::{
    Json, Router,
    extract::{Query, State},
    http::request::Parts,
    response::{Sse, sse::Event},
    routing::post,
};
use futures_util::{Stream, StreamExt, stream};
use serde::Deserialize;
use serde_json::json;
use std::{convert::Infallible, iter, time::Duration};
use tokio::time::sleep;
use tower_semaphore::{Claim, MemorySemaphore, Operate, Policy, Rejection, Semaphore};

/// Tokens per minute of an account, by the upstream's own count.
const QUOTA_TOKENS: Policy = Policy::from_static("quota");

#[derive(Clone)]
struct FakeAccount {
    name: String,
    quotas: MemorySemaphore,
    minute: Duration,
    word_time: Duration,
}

/// The routes of the accounts without a URL.
pub(crate) fn routes(settings: &Settings) -> Router<App> {
    let quotas = MemorySemaphore::new();
    let names = settings.upstreams.iter().filter(|(_, url)| url.is_none());
    names.fold(Router::new(), |all, (name, _)| {
        let account = FakeAccount {
            name: name.clone(),
            quotas: quotas.clone(),
            minute: settings.minute,
            word_time: settings.word_time,
        };
        let routes = Router::new()
            .route("/v1/completions", post(complete))
            .route("/overload", post(overload));
        all.nest(&format!("/fake/{name}"), routes.with_state(account))
    })
}

/// Streams words. Answers 429 if the account's quota has no room for `max_tokens`, or while it is overloaded.
async fn complete(
    State(account): State<FakeAccount>,
    parts: Parts,
    Json(completion): Json<Completion>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    let quota = Claim::new(account.name)
        .with_policy(QUOTA_TOKENS)
        .with_limit(QUOTA)
        .with_window(account.minute)
        .with_estimate(completion.max_tokens.get().min(QUOTA));
    let permit = account.quotas.acquire(quota).await;
    let permit = permit.map_err(|error| Rejection::of(&error, &parts))?;
    permit.settle(QUOTA_TOKENS, 0);
    let words = words(&completion);
    let usage = json!({"choices": [], "usage": {"completion_tokens": words.len()}});
    let chunks = stream::iter((1..).zip(words)).then(move |(count, word)| {
        let permit = permit.clone();
        async move {
            if !account.word_time.is_zero() {
                sleep(account.word_time).await;
            }
            permit.settle(QUOTA_TOKENS, count);
            json!({"choices": [{"text": word}]}).to_string()
        }
    });
    let end = [usage.to_string(), "[DONE]".to_owned()];
    let events = chunks.chain(stream::iter(end));
    Ok(Sse::new(events.map(|data| Ok(Event::default().data(data)))))
}

/// Returns 40 words for the prompt `40 words`, and the prompt's own words for any other prompt. Returns at most
/// `max_tokens` words.
fn words(completion: &Completion) -> impl ExactSizeIterator<Item = String> + Send + use<> {
    let prompt = &completion.prompt;
    let number = prompt
        .strip_suffix(" words")
        .and_then(|number| number.parse().ok());
    let words: Box<dyn ExactSizeIterator<Item = String> + Send> = match number {
        Some(number) => Box::new(iter::repeat_n("word".to_owned(), number)),
        None => {
            let words: Vec<_> = prompt.split_whitespace().map(str::to_owned).collect();
            Box::new(words.into_iter())
        }
    };
    words.take(completion.max_tokens.get() as usize)
}

#[derive(Deserialize)]
struct Overload {
    seconds: u64,
}

/// Makes an account answer 429 for a time. A further call cannot shorten this time.
async fn overload(
    State(account): State<FakeAccount>,
    Query(Overload { seconds }): Query<Overload>,
) -> Result<String, ApiError> {
    let answer = format!("{} answers 429 for {seconds} s\n", account.name);
    let pause = Duration::from_secs(seconds);
    let (quotas, name) = (account.quotas, account.name.into());
    quotas
        .pause(&QUOTA_TOKENS, &name, pause, "overload")
        .await?;
    Ok(answer)
}
