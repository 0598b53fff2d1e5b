//! Clients that send and do not read, on plain sockets: a library would answer pings by itself.

use crate::{BOUND, process::Market, socket_client::address, soon};
use std::time::Duration;
use testing::{bench::proc::resident, wait::eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, sleep},
};

const TEXT: u8 = 1;
const PING: u8 = 9;

const MEBI: u64 = 1_024 * 1_024;

/// A socket of ann's after its handshake.
async fn open(market: &Market) -> TcpStream {
    let mut socket = TcpStream::connect(address(market)).await.expect("a market");
    let handshake = "GET /market/socket?account=ann HTTP/1.1\r\nhost: market\r\n\
        connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
        sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    let sent = socket.write_all(handshake.as_bytes());
    sent.await.expect("it reads");
    let mut status = [0; "HTTP/1.1 101".len()];
    let read = soon("a handshake", socket.read_exact(&mut status));
    read.await.expect("an answer");
    assert_eq!(&status, b"HTTP/1.1 101");
    socket
}

/// The head of a frame of a client whose mask is zero.
fn head(kind: u8, length: u64) -> Vec<u8> {
    let mut head = vec![0x80 | kind];
    match length {
        0..=125 => head.push(0x80 | length as u8),
        _ => {
            head.push(0x80 | 127);
            head.extend(length.to_be_bytes());
        }
    }
    head.extend([0; 4]);
    head
}

async fn held(market: &Market) -> usize {
    let usage = market.nobody().get("/accounts/ann/permits").await;
    let usage = usage.json().await;
    usage["held"].as_array().expect("a list").len()
}

async fn freed(market: &Market) {
    eventually("the permit is free", BOUND, async || {
        held(market).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_talks_and_answers_no_ping_loses_its_permit() {
    let market = Market::start(&[("MAX_STALL_MS", "500")]).await;
    let mut socket = open(&market).await;
    assert_eq!(held(&market).await, 1);
    let word = [head(TEXT, 2), b"hi".to_vec()].concat();
    let start = Instant::now();
    while socket.write_all(&word).await.is_ok() {
        assert!(start.elapsed() < BOUND, "the socket is still open");
        sleep(Duration::from_millis(50)).await;
    }
    freed(&market).await;
}

#[tokio::test]
async fn a_frame_that_is_too_long_ends_the_socket_by_its_head() {
    let market = Market::start(&[]).await;
    let mut socket = open(&market).await;
    let sent = socket.write_all(&head(TEXT, 8 * MEBI)).await;
    sent.expect("it is open");
    freed(&market).await;
}

#[tokio::test]
async fn unread_pongs_take_no_memory_of_the_market() {
    let market = Market::start(&[]).await;
    let mut socket = open(&market).await;
    let ping = [head(PING, 125), vec![0; 125]].concat();
    let pings = ping.repeat(MEBI as usize / ping.len());
    let before = resident(market.pid());
    for _ in 0..64 {
        let sent = socket.write_all(&pings);
        soon("the pings are read", sent).await.expect("it is open");
    }
    let grown = resident(market.pid()).saturating_sub(before);
    assert!(grown < 32 * MEBI, "by {grown} bytes");
    assert_eq!(held(&market).await, 1);
}
