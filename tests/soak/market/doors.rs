//! How traders reach the market: by any process, whatever has become of it.

use super::{client::Client, fixture::Fixture, fleet::PROCESSES};
use http::Method;
use http_body_util::BodyExt;
use serde_json::Value;
use std::{sync::Arc, time::Duration};
use tokio::time::{sleep, timeout};

/// After this a trader gives up, and the outcome of its request is unknown.
const PATIENCE: Duration = Duration::from_secs(10);
/// Traders are not what loads the fleet.
const THOUGHT: Duration = Duration::from_millis(20);
/// After an answer that is none.
const REST: Duration = Duration::from_millis(100);

pub(crate) struct Doors {
    fixture: Arc<Fixture>,
    client: Client,
}

impl Doors {
    pub(crate) fn new(fixture: Arc<Fixture>) -> Self {
        Self {
            fixture,
            client: Client::http1(),
        }
    }

    /// Status and body. `None` if the answer breaks off or does not come.
    pub(crate) async fn send(
        &self,
        door: usize,
        account: &str,
        method: Method,
        path: &str,
        body: &str,
    ) -> Option<(u16, Value)> {
        sleep(THOUGHT).await;
        let request = self.request(door % PROCESSES, account, method, path, body);
        let answer = timeout(PATIENCE, request).await.ok().flatten();
        let status = answer.as_ref().map_or(0, |(status, _)| *status);
        let report = &self.fixture.report;
        report.count(format_args!("answers to traders: {status}"));
        match status {
            0 | 429 | 503 => sleep(REST).await,
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
