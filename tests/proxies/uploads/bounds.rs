//! The service reads a refused upload up to a bound of bytes and time, and then closes the connection.
//!
//! Promises: P21.

use crate::{
    client::{BOUND, Client, FULL, Framing, head},
    service::{Service, layer},
};
use std::time::Duration;
use testing::wait::eventually;
use tokio::runtime::Handle;

/// By default the layer reads 8 MiB of a refused upload.
const MB: usize = 1_000_000;

/// Waits until no more tasks run than `before`.
async fn wait_for_tasks(before: usize) {
    let have_ended = async || Handle::current().metrics().num_alive_tasks() <= before;
    eventually("the tasks of the uploads have ended", BOUND, have_ended).await;
}

#[tokio::test]
async fn a_client_that_reads_while_it_sends_reads_the_refusal_of_an_upload_of_any_length() {
    let service = Service::start().await;
    for framing in [Framing::Length, Framing::Chunked] {
        for _ in 0..5 {
            let mut client = Client::connect(service.address).await;
            let answer = client.upload(framing, 50 * MB).await;
            assert_eq!(answer.expect("a refusal").status, 429);
        }
    }
}

#[tokio::test]
async fn a_refusal_whose_upload_is_too_long_announces_the_end_of_its_connection() {
    let service = Service::start().await;
    let mut client = Client::connect(service.address).await;
    let head = format!(
        "{}content-length: {}\r\n\r\n",
        head("POST", "/", FULL),
        50 * MB
    );
    client.write(&head).await.expect("it is read");
    let answer = client.read().await.expect("a refusal");
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(client.ends_without_data().await);
}

#[tokio::test]
async fn an_upload_without_end_is_read_up_to_the_bound_and_no_further() {
    let layer = layer().with_max_drain(MB as u64, Duration::from_secs(600));
    let service = Service::with(|routes| routes.layer(layer)).await;
    let mut client = Client::connect(service.address).await;
    let sent = client.write_upload(Framing::Chunked, 1_000 * MB).await;
    sent.expect_err("the connection ends");
}

#[tokio::test]
async fn an_upload_that_trickles_is_read_until_its_time_is_over() {
    let layer = layer().with_max_drain(MB as u64, Duration::from_millis(200));
    let service = Service::with(|routes| routes.layer(layer)).await;
    let before = Handle::current().metrics().num_alive_tasks();
    let mut client = Client::connect(service.address).await;
    let started = format!("{}content-length: {MB}\r\n\r\n", head("POST", "/", FULL));
    client.write(&started).await.expect("it is read");
    let answer = client.read().await.expect("a refusal at once");
    assert_eq!(answer.status, 429);
    eventually("the connection ends", BOUND, async || {
        client.write("x").await.is_err()
    })
    .await;
    wait_for_tasks(before).await;
}

#[tokio::test]
async fn uploads_whose_clients_vanish_leave_no_task() {
    let service = Service::start().await;
    let before = Handle::current().metrics().num_alive_tasks();
    let started = format!("{}content-length: {MB}\r\n\r\nx", head("POST", "/", FULL));
    let mut clients = Vec::new();
    for _ in 0..100 {
        let mut client = Client::connect(service.address).await;
        client.write(&started).await.expect("it is read");
        assert_eq!(client.read().await.expect("a refusal").status, 429);
        clients.push(client);
    }
    drop(clients);
    wait_for_tasks(before).await;
}

#[tokio::test]
async fn nothing_is_read_of_an_upload_if_the_bound_is_zero() {
    let layer = layer().with_max_drain(0, Duration::from_secs(60));
    let service = Service::with(|routes| routes.layer(layer)).await;
    let mut client = Client::connect(service.address).await;
    let sent = client.write_upload(Framing::Length, 50 * MB).await;
    sent.expect_err("the connection ends");
}
