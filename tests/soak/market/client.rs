//! An HTTP client that may read a body slowly, or not at all.

use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{self, Error, connect::HttpConnector},
    rt::TokioExecutor,
};

/// So few bytes that a body which nobody reads is soon not sent.
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

    /// Speaks HTTP/2, and stalls a body that it does not read.
    pub(crate) fn narrow() -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .http2_only(true)
            .http2_initial_stream_window_size(NARROW);
        Self(builder.build_http())
    }

    /// The head of the answer. Dropped, it hangs up.
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
