//! A client of the market, its answers, and the permits that it takes.

use crate::soon;
use http::{Method, Request, Response, Version, header::CONTENT_TYPE, request::Builder};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// A client. Only its clones share its connections.
#[derive(Clone)]
pub(crate) struct Client {
    http: Http,
    url: String,
    account: Option<String>,
}

impl Client {
    pub(crate) fn http1(url: &str) -> Self {
        Self::new(url, &mut legacy::Client::builder(TokioExecutor::new()))
    }

    pub(crate) fn http2(url: &str) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        Self::new(url, builder.http2_only(true))
    }

    fn new(url: &str, builder: &mut legacy::Builder) -> Self {
        Self {
            http: builder.build_http(),
            url: url.to_owned(),
            account: None,
        }
    }

    pub(crate) fn with_account(mut self, account: &str) -> Self {
        self.account = Some(account.to_owned());
        self
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path), "").await
    }

    /// Offers an item for sale.
    pub(crate) async fn list(&self, item: &str, price: u64) -> Answer {
        let offer = serde_json::json!({"item": item, "price": price});
        let request = self.request(Method::POST, "/market/items");
        let request = request.header(CONTENT_TYPE, "application/json");
        self.send(request, &offer.to_string()).await
    }

    pub(crate) async fn purchase(&self, id: &str) -> Answer {
        let answer = self.try_purchase(id).await;
        answer.expect("the market answers")
    }

    pub(crate) async fn try_purchase(&self, id: &str) -> Option<Answer> {
        let path = format!("/market/items/{id}/purchase");
        self.try_send(self.request(Method::POST, &path), "").await
    }

    /// An account's funds and items, as the market reports them.
    pub(crate) async fn account(&self, account: &str) -> Value {
        let answer = self.get(&format!("/accounts/{account}")).await;
        assert_eq!(answer.status(), 200);
        answer.json().await
    }

    /// A request that names the client's account in its header, if it has one.
    pub(crate) fn request(&self, method: Method, path: &str) -> Builder {
        let request = Request::builder()
            .method(method)
            .uri(self.url.clone() + path);
        match &self.account {
            Some(account) => request.header("x-account-id", account),
            None => request,
        }
    }

    /// Sends a request. Returns once the head of the answer has arrived.
    pub(crate) async fn send(&self, request: Builder, body: &str) -> Answer {
        let answer = self.try_send(request, body).await;
        answer.expect("the market answers")
    }

    /// Sends a request. Returns `None` if the head of the answer does not arrive.
    pub(crate) async fn try_send(&self, request: Builder, body: &str) -> Option<Answer> {
        let body = Full::from(body.to_owned());
        let request = request.body(body).expect("a request");
        let response = soon("an answer", self.http.request(request)).await;
        response.ok().map(Answer::new)
    }
}

/// A response. Dropping it early closes its connection.
pub(crate) struct Answer {
    response: Response<Incoming>,
    /// Text that has arrived and belongs to no returned event yet.
    unread: String,
}

impl Answer {
    fn new(response: Response<Incoming>) -> Self {
        let unread = String::new();
        Self { response, unread }
    }

    pub(crate) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    pub(crate) fn version(&self) -> Version {
        self.response.version()
    }

    /// A header's value, or an empty string if the header is missing.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.response.headers().get(name);
        value.map_or("", |value| value.to_str().expect("headers are text"))
    }

    /// Reads the body to its end.
    pub(crate) async fn text(self) -> String {
        self.try_text().await.expect("the body does not break off")
    }

    /// Reads the body to its end. Returns `None` if the body breaks off.
    pub(crate) async fn try_text(self) -> Option<String> {
        let body = soon("the end of a body", self.response.collect()).await;
        let bytes = body.ok()?.to_bytes();
        Some(String::from_utf8(bytes.into()).expect("the body is text"))
    }

    pub(crate) async fn json(self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).expect("the body is JSON")
    }

    /// The name and data of the next server-sent event.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        let event = soon("an event", self.try_event()).await;
        event.expect("the stream goes on")
    }

    /// As `event`, but `None` if the stream has ended or was cut. Heartbeats are skipped.
    pub(crate) async fn try_event(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let event = parse_event(event);
                self.unread = rest.to_owned();
                if event.is_some() {
                    return event;
                }
            }
            let frame = soon("a frame", self.response.frame()).await?.ok()?;
            self.unread += str::from_utf8(&frame.into_data().expect("data")).expect("text");
        }
    }
}

/// Parses an event. Returns `None` for a heartbeat.
fn parse_event(event: &str) -> Option<(String, Value)> {
    let (name, data) = event.split_once('\n')?;
    let name = name.strip_prefix("event: ").expect("a name");
    let data = data.strip_prefix("data: ").expect("data");
    Some((name.to_owned(), data.parse().expect("JSON")))
}

/// A stream that outlasts the tests.
pub(crate) const ENDLESS: &str = "/market/export?rows=1000000&interval_ms=60000";

/// Opens `count` endless streams, each with a permit. Dropping a stream closes its connection.
pub(crate) async fn streams(client: &Client, count: usize) -> Vec<Answer> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = client.get(ENDLESS).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    streams
}

/// Sends requests until one is not refused with 429. Asserts that the next is admitted.
pub(crate) async fn wait_until_admitted(client: &Client) {
    let retrying = async { while client.get("/market").await.status() == 429 {} };
    soon("a permit", retrying).await;
    assert_eq!(client.get("/market").await.status(), 200);
}
