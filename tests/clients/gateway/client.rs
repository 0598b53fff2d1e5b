//! A running gateway, and its answers.

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Value, json};
use std::{future::Future, process::Stdio, time::Duration};
use testing::{
    example,
    wait::{eventually, within},
};
use tokio::process::Child;

/// The bound for each step on a busy machine.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Settings under which a request that finds no room is refused at once, and reserves its `max_tokens`.
pub(crate) const REFUSING: [(&str, &str); 2] = [("WAIT_MS", "0"), ("ESTIMATE", "max")];

/// A setting under which streams send no word while a test runs.
pub(crate) const SILENT_UPSTREAM: (&str, &str) = ("WORD_MS", "3600000");

/// Settings under which the budgets of tenants are never full.
pub(crate) const AMPLE_BUDGETS: [(&str, &str); 2] =
    [("KEY_TPM", "4000000000"), ("MODEL_TPM", "4000000000")];

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(what, BOUND, future).await
}

/// A running gateway. Dropping it kills the process.
pub(crate) struct Gateway {
    http: Client<HttpConnector, Full<Bytes>>,
    pub(crate) url: String,
    _child: Child,
}

impl Gateway {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut command = example::command("gateway", settings);
        command.env("PORT", "0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the gateway starts");
        Self {
            // Each request has a separate connection, so that a dropped answer is a client that hangs up.
            http: Client::builder(TokioExecutor::new())
                .pool_max_idle_per_host(0)
                .build_http(),
            url: example::address(&mut child).await,
            _child: child,
        }
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        body: String,
    ) -> impl Future<Output = Answer> + use<> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.url.clone() + path)
            .header("content-type", "application/json");
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let request = request.body(Full::from(body)).expect("a request");
        let response = self.http.request(request);
        async move { Answer(soon("an answer", response).await.expect("it answers")) }
    }

    /// Posts this body. Returns the head of the answer; its stream is still to come.
    pub(crate) fn post(
        &self,
        path: &str,
        key: Option<&str>,
        body: String,
    ) -> impl Future<Output = Answer> + use<> {
        self.send("POST", path, key, body)
    }

    /// Requests `tokens` words, and reserves the same number under [`REFUSING`].
    pub(crate) fn complete(&self, key: &str, tokens: u32) -> impl Future<Output = Answer> + use<> {
        let prompt = format!("{tokens} words");
        let body = json!({"model": "small", "prompt": prompt, "max_tokens": tokens});
        self.post("/v1/completions", Some(key), body.to_string())
    }

    /// Opens a stream, which is not read. Dropping it hangs up.
    pub(crate) async fn stream(&self, key: &str, tokens: u32) -> Answer {
        let answer = self.complete(key, tokens).await;
        assert_eq!(answer.status(), 200, "{key} {tokens}: {:?}", answer.0);
        answer
    }

    pub(crate) fn get(
        &self,
        path: &str,
        key: Option<&str>,
    ) -> impl Future<Output = Answer> + use<> {
        self.send("GET", path, key, String::new())
    }

    /// The limits of a key, and their use.
    pub(crate) async fn limits(&self, key: &str) -> Value {
        let limits = self.get("/v1/limits", Some(key)).await.text().await;
        serde_json::from_str(&limits).expect("JSON")
    }

    /// The units of a key that are in use under this policy.
    pub(crate) async fn used(&self, key: &str, policy: &str) -> u64 {
        let limits = self.limits(key).await;
        let limits = limits.as_array().expect("a list");
        let limit = limits.iter().find(|limit| limit["policy"] == policy);
        limit.expect("the policy")["used"]
            .as_u64()
            .expect("a number")
    }

    /// Waits until a key has this number of requests in flight, including those that wait for tokens.
    pub(crate) async fn wait_for_in_flight(&self, key: &str, requests: u64) {
        let what = format!("{key} has {requests} requests in flight");
        eventually(&what, BOUND, async || {
            self.used(key, "requests").await == requests
        })
        .await;
    }

    /// Makes an account of the built-in upstream answer 429 for this time, with a `Retry-After`.
    pub(crate) async fn overload_for_seconds(&self, account: &str, seconds: u32) {
        let path = format!("/fake/{account}/overload?seconds={seconds}");
        let answer = self.post(&path, None, String::new()).await;
        assert_eq!(answer.status(), 200);
    }
}

#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Response<Incoming>);

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    /// The values of all headers with this name.
    pub(crate) fn header(&self, name: &str) -> String {
        let values = self.0.headers().get_all(name).iter();
        let values = values.map(|value| value.to_str().expect("headers are text"));
        values.collect::<Vec<_>>().join(", ")
    }

    /// The upstream account that serves the request, which must be admitted.
    pub(crate) fn account(&self) -> String {
        assert_eq!(self.status(), 200, "{self:?}");
        self.header("x-upstream")
    }

    pub(crate) async fn text(self) -> String {
        let body = soon("the end of the stream", self.0.into_body().collect()).await;
        let bytes = body.expect("it does not break off").to_bytes();
        String::from_utf8(bytes.into()).expect("it is text")
    }

    /// Reads the stream until it has this number of words.
    pub(crate) async fn read_words(&mut self, words: usize) {
        let mut text = String::new();
        soon("the words", async {
            while text.matches(r#""text""#).count() < words {
                let frame = self.0.body_mut().frame().await.expect("more words");
                let data = frame.expect("it does not break off").into_data();
                text += std::str::from_utf8(&data.expect("data")).expect("text");
            }
        })
        .await;
    }

    /// Reads the next part of the stream. Returns its number of words, or `None` at the end. A part may end inside an
    /// event: its beginning stays in `rest` until the next call.
    pub(crate) async fn next_words(&mut self, rest: &mut String) -> Option<i64> {
        let frame = soon("more of the stream", self.0.body_mut().frame()).await?;
        let data = frame.expect("it does not break off").into_data();
        *rest += std::str::from_utf8(&data.expect("data")).expect("text");
        let end = rest.rfind("\n\n").map_or(0, |at| at + 2);
        let events: String = rest.drain(..end).collect();
        Some(events.matches(r#""text""#).count() as i64)
    }

    /// The error object of a response.
    pub(crate) async fn error(self) -> Value {
        assert_eq!(self.header("content-type"), "application/json");
        let mut body: Value = serde_json::from_str(&self.text().await).expect("JSON");
        body["error"].take()
    }

    /// Asserts that this policy has refused the request. Returns the time of its `Retry-After`.
    pub(crate) async fn assert_refused_by(self, policy: &str) -> Duration {
        assert_eq!(self.status(), 429, "{self:?}");
        assert!(
            self.header("ratelimit")
                .starts_with(&format!("\"{policy}\";"))
        );
        let seconds = self.header("retry-after").parse().expect("seconds");
        let error = self.error().await;
        assert_eq!(error["type"], "rate_limit_exceeded");
        let message = error["message"].as_str().expect("text");
        assert!(message.starts_with(&format!("{policy}: ")), "{message}");
        Duration::from_secs(seconds)
    }
}
