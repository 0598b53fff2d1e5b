//! A client of the market.

use crate::{answer::Answer, soon};
use http::{Method, Request, header::CONTENT_TYPE, request::Builder};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;

type Http = legacy::Client<HttpConnector, Full<Bytes>>;

/// A client with connections of its own.
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

    /// Puts an item up for sale.
    pub(crate) async fn list(&self, item: &str, price: u64) -> Answer {
        let offer = serde_json::json!({"item": item, "price": price});
        self.offer(&offer.to_string()).await
    }

    /// Sends `body` where an offer belongs.
    pub(crate) async fn offer(&self, body: &str) -> Answer {
        let request = self.request(Method::POST, "/market/items");
        let request = request.header(CONTENT_TYPE, "application/json");
        self.send(request, body).await
    }

    pub(crate) async fn purchase(&self, id: &str) -> Answer {
        let path = format!("/market/items/{id}/purchase");
        self.send(self.request(Method::POST, &path), "").await
    }

    /// What an account has, as the market reports it.
    pub(crate) async fn account(&self, account: &str) -> Value {
        let answer = self.get(&format!("/accounts/{account}")).await;
        assert_eq!(answer.status(), 200);
        answer.json().await
    }

    /// A request that names the account in its header, if there is one.
    pub(crate) fn request(&self, method: Method, path: &str) -> Builder {
        let request = Request::builder()
            .method(method)
            .uri(self.url.clone() + path);
        match &self.account {
            Some(account) => request.header("x-account-id", account),
            None => request,
        }
    }

    /// The answer's head; its body is still to come.
    pub(crate) async fn send(&self, request: Builder, body: &str) -> Answer {
        let answer = self.try_send(request, body).await;
        answer.expect("the market answers")
    }

    /// The answer's head, if there is one.
    pub(crate) async fn try_send(&self, request: Builder, body: &str) -> Option<Answer> {
        let body = Full::from(body.to_owned());
        let request = request.body(body).expect("a request");
        let response = soon("an answer", self.http.request(request)).await;
        response.ok().map(Answer::new)
    }
}
