//! Taking an account's permits, and waiting for one.

use crate::{answer::Answer, client::Client, soon};

/// A stream that does not end while a test runs.
pub(crate) const ENDLESS: &str = "/market/export?rows=1000000&interval_ms=60000";

/// Takes permits with streams that do not end. Dropping one hangs up.
pub(crate) async fn streams(client: &Client, count: usize) -> Vec<Answer> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let stream = client.get(ENDLESS).await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    streams
}

/// Sends requests until one is admitted. Every answer but 429 and 200 is a fault.
pub(crate) async fn admitted(client: &Client) {
    let retrying = async { while client.get("/market").await.status() == 429 {} };
    soon("a permit", retrying).await;
    assert_eq!(client.get("/market").await.status(), 200);
}
