//! Clients that stop reading.
//!
//! Promises: P23.

use super::{
    client::{BOTH, Client},
    server::{BOUND, Server},
};
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;
use testing::wait::eventually;
use tokio::time::{Instant, sleep};

const MAX_STALL: Duration = Duration::from_secs(2);

/// A server under which a client that stops reading for `MAX_STALL` loses its permit.
async fn impatient() -> Server {
    Server::start_with(|layer| layer.with_max_stall(MAX_STALL)).await
}

/// Reads about a mebibyte.
async fn read_some(response: &mut Response<Incoming>) {
    let mut left = 1 << 20;
    while left > 0 {
        let frame = response.body_mut().frame().await.expect("more");
        let data = frame.expect("no error").into_data().expect("data");
        left -= data.len().min(left);
    }
}

#[tokio::test]
async fn a_client_that_stops_reading_loses_its_permit_after_the_longest_stall() {
    for http in BOTH {
        let server = impatient().await;
        let mut stalled = Client::new(http, &server).get("/endless").await;
        read_some(&mut stalled).await;
        assert_eq!(server.held(), 1);
        let is_back = async || server.page().returned == 1;
        eventually("it is returned", BOUND, is_back).await;
        // The response is not cut off: the client can go on reading.
        read_some(&mut stalled).await;
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_keeps_its_permit() {
    for http in BOTH {
        let server = impatient().await;
        let mut slow = Client::new(http, &server).get("/endless").await;
        let end = Instant::now() + 2 * MAX_STALL;
        while Instant::now() < end {
            read_some(&mut slow).await;
            sleep(MAX_STALL / 20).await;
        }
        assert_eq!(server.page().returned, 0);
    }
}

#[tokio::test]
async fn a_stream_whose_handler_is_quiet_keeps_its_permit() {
    for http in BOTH {
        let mut server = impatient().await;
        let mut quiet = Client::new(http, &server).get("/stream").await;
        let feed = server.feed().await;
        let frame = Bytes::from_static(b"frame");
        feed.send(Ok(frame.clone())).await.expect("a client");
        sleep(2 * MAX_STALL).await;
        assert_eq!(server.page().returned, 0);
        feed.send(Ok(frame.clone())).await.expect("a client");
        let read = quiet.body_mut().frame().await.expect("a frame");
        assert_eq!(read.expect("no error").into_data().expect("data"), frame);
    }
}
