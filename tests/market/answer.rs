//! What the market answers: a head that is there, and a body that may still be coming.

use crate::soon;
use http::{Response, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::Value;

/// A response. Dropping it early hangs up.
pub(crate) struct Answer(Response<Incoming>);

impl Answer {
    pub(crate) fn new(response: Response<Incoming>) -> Self {
        Self(response)
    }

    pub(crate) fn status(&self) -> u16 {
        self.0.status().as_u16()
    }

    pub(crate) fn version(&self) -> Version {
        self.0.version()
    }

    /// A header's value, empty if it is not there.
    pub(crate) fn header(&self, name: &str) -> &str {
        let value = self.0.headers().get(name);
        value.map_or("", |value| value.to_str().expect("headers are text"))
    }

    /// The body to its end.
    pub(crate) async fn text(self) -> String {
        let text = self.try_text().await;
        text.expect("the body does not break off")
    }

    /// The body to its end, unless it breaks off.
    pub(crate) async fn try_text(self) -> Option<String> {
        let body = soon("the end of a body", self.0.collect()).await;
        let bytes = body.ok()?.to_bytes();
        Some(String::from_utf8(bytes.into()).expect("the body is text"))
    }

    pub(crate) async fn json(self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).expect("the body is JSON")
    }

    /// The next piece of the body, `None` at its end.
    pub(crate) async fn piece(&mut self) -> Option<String> {
        let frame = soon("a frame", self.0.frame()).await?;
        let frame = frame.expect("the body does not break off");
        let bytes = frame.into_data().expect("data");
        Some(String::from_utf8(bytes.into()).expect("the body is text"))
    }

    /// The next server-sent event: its name, and its data.
    pub(crate) async fn event(&mut self) -> (String, Value) {
        self.try_event().await.expect("the stream goes on")
    }

    /// The same; `None` if the stream has ended, or was cut.
    pub(crate) async fn try_event(&mut self) -> Option<(String, Value)> {
        let mut text = String::new();
        while !text.ends_with("\n\n") {
            let frame = soon("a frame", self.0.frame()).await?.ok()?;
            text += str::from_utf8(&frame.into_data().expect("data")).expect("text");
        }
        let (name, data) = text.trim_end().split_once('\n').expect("two lines");
        let name = name.strip_prefix("event: ").expect("a name");
        let data = data.strip_prefix("data: ").expect("data");
        let data = serde_json::from_str(data).expect("JSON");
        Some((name.to_owned(), data))
    }
}
