//! A fake upstream, whose answers a test chooses.

use axum::{Router, body::Body, routing::post};
use futures_util::{StreamExt, stream};
use std::{convert::Infallible, future::pending};
use tokio::{net::TcpListener, task::JoinHandle};

/// An upstream that answers each request with the same number of words. Dropping it stops it.
pub(crate) struct Upstream {
    /// The value of `UPSTREAMS` that makes this upstream the only account of a gateway.
    pub(crate) account: String,
    serving: JoinHandle<()>,
}

/// The end of an answer.
#[derive(Clone, Copy)]
pub(crate) enum End {
    /// The stream stays open and is silent.
    Never,
    /// The upstream reports this number of used tokens, and ends the stream.
    Usage(u32),
}

impl Upstream {
    pub(crate) async fn start(words: usize, end: End) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let answer = move || async move { answer(words, end) };
        let routes = Router::new().route("/v1/completions", post(answer));
        let serving = async { axum::serve(listener, routes).await.expect("it serves") };
        Self {
            account: format!("stub=http://{address}"),
            serving: tokio::spawn(serving),
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn answer(words: usize, end: End) -> Body {
    let word = "data: {\"choices\":[{\"text\":\"word\"}]}\n\n";
    let text = stream::iter([word.repeat(words)]);
    let body = match end {
        End::Never => text.chain(stream::once(pending())).boxed(),
        End::Usage(tokens) => {
            let usage = format!("{{\"choices\":[],\"usage\":{{\"completion_tokens\":{tokens}}}}}");
            let end = format!("data: {usage}\n\ndata: [DONE]\n\n");
            text.chain(stream::iter([end])).boxed()
        }
    };
    Body::from_stream(body.map(Ok::<_, Infallible>))
}
