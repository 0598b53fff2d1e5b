//! Reads the rest of a refused request's body.
//!
//! If an HTTP/1 server has not read a request to its end, it closes the connection, and the system resets it. Clients
//! that send first and read later then never see the response. nginx answers 502 and counts the server as failed. So a
//! task reads the rest. The response does not wait for the task: once curl has read the head of a refusal, it stops
//! sending and waits for the end of the response.

use bytes::Buf;
use http::{
    Version,
    header::{EXPECT, HOST},
    request::Parts,
};
use http_body::Body;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    task::coop::consume_budget,
    time::{sleep, timeout},
};

/// The time for which a connection stays open if its request is too long to be read. A client that reads while it sends
/// finds the response in this time.
const LINGER: Duration = Duration::from_secs(2);

/// The bounds on reading a refused request's body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    max_bytes: u64,
    max_time: Duration,
}

/// The `Connection` header of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionHeader {
    /// The server decides whether it closes the connection.
    KeepAlive,
    /// The request is too long to be read to its end.
    Close,
}

/// The bounds that the docs of `with_max_drain` name.
impl Default for Drain {
    fn default() -> Self {
        Self::new(8 << 20, Duration::from_secs(30))
    }
}

impl Drain {
    pub(crate) fn new(max_bytes: u64, max_time: Duration) -> Self {
        Self {
            max_bytes,
            max_time,
        }
    }

    /// Reads the rest of a refused request's body in a task, if that helps the client. Reads nothing outside of a Tokio
    /// runtime.
    pub(super) fn take<B>(self, parts: &Parts, body: B) -> ConnectionHeader
    where
        B: Body + Send + 'static,
    {
        if body.is_end_stream() || self.max_bytes == 0 || !is_sent_over_http1(parts) {
            return ConnectionHeader::KeepAlive;
        }
        let Ok(runtime) = Handle::try_current() else {
            return ConnectionHeader::KeepAlive;
        };
        let connection = match body.size_hint().lower() > self.max_bytes {
            true => ConnectionHeader::Close,
            false => ConnectionHeader::KeepAlive,
        };
        runtime.spawn(async move { timeout(self.max_time, drain(body, self.max_bytes)).await });
        connection
    }
}

/// True if a client sends the body to this server over HTTP/1. False if the client first waits for `100 Continue`.
/// False for a request that this process sends, because then its URI names the host and no header does.
fn is_sent_over_http1(parts: &Parts) -> bool {
    let headers = &parts.headers;
    parts.version <= Version::HTTP_11
        && !headers.contains_key(EXPECT)
        && (parts.uri.authority().is_none() || headers.contains_key(HOST))
}

async fn drain<B: Body>(body: B, max_bytes: u64) {
    let mut body = pin!(body);
    if !read(body.as_mut(), max_bytes).await {
        sleep(LINGER).await;
    }
}

/// Reads a body to its end or failure. Returns false if it is longer than `max_bytes`.
async fn read<B: Body>(mut body: Pin<&mut B>, max_bytes: u64) -> bool {
    let mut left = max_bytes;
    while body.size_hint().lower() <= left {
        // Lets the timeout fire even if frames are always ready.
        consume_budget().await;
        let Some(Ok(frame)) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await else {
            return true;
        };
        // An empty frame counts as one byte, so that every body is bounded.
        let bytes = frame.data_ref().map_or(0, Buf::remaining).max(1);
        match left.checked_sub(bytes as u64) {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    false
}
