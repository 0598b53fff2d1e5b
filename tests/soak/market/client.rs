//! HTTP clients, and the traders' access to the market through any process, whatever its state.

use super::{fixture::Fixture, fleet::PROCESSES, traders::NO_ANSWER};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{self, Error, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// A window so small that the server soon stops sending an unread body.
const NARROW: u32 = 256;

#[derive(Debug, Clone)]
pub(crate) struct Client(legacy::Client<HttpConnector, Full<Bytes>>);

impl Client {
    pub(crate) fn http1() -> Self {
        Self(legacy::Client::builder(TokioExecutor::new()).build_http())
    }

    pub(crate) fn http2() -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        Self(builder.http2_only(true).build_http())
    }

    /// A client over HTTP/2. A body that it does not read stalls, because the server must stop sending.
    pub(crate) fn narrow() -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .http2_only(true)
            .http2_initial_stream_window_size(NARROW);
        Self(builder.build_http())
    }

    /// Sends a request and returns the head of its answer. Dropping the answer closes the stream.
    pub(crate) async fn send(
        &self,
        method: Method,
        url: &str,
        account: &str,
        body: &str,
    ) -> Result<Response<Incoming>, Error> {
        let request = Request::builder()
            .method(method)
            .uri(url)
            .header("x-account-id", account)
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()))
            .expect("a request");
        self.0.request(request).await
    }
}

/// A trader gives up after this time, so the outcome of its request is unknown.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause before each request, because traders should not load the fleet.
const THOUGHT: Duration = Duration::from_millis(20);
/// The pause after a refusal or a missing answer.
const REST: Duration = Duration::from_millis(100);

/// Sends the traders' requests to the fleet's processes.
pub(crate) struct Processes {
    fixture: Arc<Fixture>,
    client: Client,
}

impl Processes {
    pub(crate) fn new(fixture: Arc<Fixture>) -> Self {
        Self {
            fixture,
            client: Client::http1(),
        }
    }

    /// Sends a request to the process with this number, modulo the number of processes. Returns the status and the
    /// body, or `None` if the answer breaks off or does not arrive.
    pub(crate) async fn send(
        &self,
        number: usize,
        account: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        sleep(THOUGHT).await;
        let request = self.request(number % PROCESSES, account, method, path, body);
        let answer = timeout(PATIENCE, request).await.ok().flatten();
        let status = answer.as_ref().map_or(NO_ANSWER, |(status, _)| *status);
        let report = &self.fixture.report;
        report.count(format_args!("answers to traders: {status}"));
        match status {
            NO_ANSWER | 429 | 503 => sleep(REST).await,
            200..500 => {}
            _ => report.wrong("a trader got another answer", status),
        }
        answer
    }

    async fn request(
        &self,
        process: usize,
        account: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        let url = self.fixture.fleet.url(process)? + path;
        let answer = self.client.send(method, &url, account, body).await.ok()?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.ok()?.to_bytes();
        Some((status, serde_json::from_slice(&body).ok()?))
    }
}
