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
use testing::{example, wait::within};
use tokio::{process::Child, task::JoinSet};

/// Shorter than a stream of all tokens that a key may have in flight, which takes 25 s.
pub(crate) const BOUND: Duration = Duration::from_secs(20);
/// The number of tokens that a key may have in flight.
pub(crate) const ALL: u32 = 512;

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(what, BOUND, future).await
}

/// A running gateway. Dropping it kills the process.
pub(crate) struct Gateway {
    http: Client<HttpConnector, Full<Bytes>>,
    url: String,
    _child: Child,
}

impl Gateway {
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Self {
        let mut command = example::command("gateway", settings);
        command.env("PORT", "0").stdout(Stdio::piped());
        let mut child = command.spawn().expect("the gateway starts");
        Self {
            http: Client::builder(TokioExecutor::new()).build_http(),
            url: example::address(&mut child).await + "/v1/completions",
            _child: child,
        }
    }

    /// Sends this body. Returns the head of the answer; its stream is still to come.
    pub(crate) fn post(
        &self,
        key: Option<&str>,
        body: String,
    ) -> impl Future<Output = Answer> + use<> {
        let request = Request::post(&self.url);
        let request = match key {
            Some(key) => request.header("authorization", format!("Bearer {key}")),
            None => request,
        };
        let request = request.body(Full::from(body)).expect("a request");
        let response = self.http.request(request);
        async move { Answer(soon("an answer", response).await.expect("it answers")) }
    }

    pub(crate) fn complete(
        &self,
        key: &str,
        wanted: &Value,
    ) -> impl Future<Output = Answer> + use<> {
        let mut body = json!({"model": "small", "prompt": "one two"});
        for (name, value) in wanted.as_object().expect("an object") {
            body[name] = value.clone();
        }
        self.post(Some(key), body.to_string())
    }

    /// Opens a stream of `tokens` tokens, which is not read.
    pub(crate) async fn stream(&self, key: &str, model: &str, tokens: u32) -> Answer {
        let wanted = json!({"model": model, "max_tokens": tokens});
        let answer = self.complete(key, &wanted).await;
        assert_eq!(answer.status(), 200, "{key} {model} {tokens}");
        answer
    }

    /// Opens streams that use all tokens of their keys, and fill these models to their limits.
    pub(crate) async fn crowd(&self, models: usize) -> Vec<Answer> {
        let mut streams = JoinSet::new();
        for (model, key) in (0..models).flat_map(|model| (0..8).map(move |key| (model, key))) {
            let wanted = json!({"model": format!("model-{model}"), "max_tokens": ALL});
            streams.spawn(self.complete(&format!("key-{model}-{key}"), &wanted));
        }
        let streams = streams.join_all().await;
        assert!(streams.iter().all(|stream| stream.status() == 200));
        streams
    }

    /// Asks for all tokens of a new key at each of these models at once. Returns the limits that refused the refused
    /// requests.
    pub(crate) async fn overflow(&self, models: impl Iterator<Item = String>) -> Vec<String> {
        let mut answers = JoinSet::new();
        for (number, model) in models.enumerate() {
            let wanted = json!({"model": model, "max_tokens": ALL});
            answers.spawn(self.complete(&format!("more-{number}"), &wanted));
        }
        let mut refused_by = Vec::new();
        for answer in answers.join_all().await {
            if answer.status() != 200 {
                refused_by.push(answer.error().await["message"].to_string());
            }
        }
        refused_by
    }
}

pub(crate) struct Answer(Response<Incoming>);

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

    pub(crate) async fn text(self) -> String {
        let body = soon("the end of the stream", self.0.into_body().collect()).await;
        let bytes = body.expect("it does not break off").to_bytes();
        String::from_utf8(bytes.into()).expect("it is text")
    }

    /// The error object of a refusal.
    pub(crate) async fn error(self) -> Value {
        assert_eq!(self.header("content-type"), "application/json");
        let mut body: Value = serde_json::from_str(&self.text().await).expect("JSON");
        body["error"].take()
    }
}
