//! A socket holds its permit until it is closed, by either side.
//!
//! Promises: P9, P23.

use crate::{
    BOUND,
    holders::{delete, ids, permits},
    process::Market,
    socket_client::Socket,
    soon,
};
use serde_json::json;
use std::time::Duration;
use testing::{bench::proc::resident, wait::eventually};
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, sleep},
};
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;

/// Shorter than the silence that a socket may keep, so that only its end frees a permit in time.
const FREED: Duration = Duration::from_secs(15);

/// Waits until ann may open a socket again.
async fn freed(market: &Market) -> Socket {
    let mut socket = None;
    eventually("a permit is free", FREED, async || {
        socket = Socket::try_open(market, "ann").await.ok();
        socket.is_some()
    })
    .await;
    socket.expect("one is open")
}

async fn is_refused(market: &Market) {
    let refused = Socket::try_open(market, "ann").await;
    let answer = refused.err().expect("refused");
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("retry-after"));
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
}

on_every_store! {
    listings_and_trades_come_over_a_socket,
    a_request_that_is_no_handshake_is_bad_and_holds_no_permit,
    a_market_that_stops_says_so_to_its_sockets,
    a_socket_whose_permit_is_deleted_is_closed_and_leaves_room,
}

async fn a_socket_whose_permit_is_deleted_is_closed_and_leaves_room(market: &Market) {
    let mut sockets = Socket::several(market, "ann", 5).await;
    let nobody = market.nobody();
    let oldest = ids(&permits(&nobody, "ann").await).remove(0);
    assert_eq!(delete(&nobody, "ann", &oldest).await, 204);
    let lost = (1013, "the permit was lost".to_owned());
    assert_eq!(soon("its end", sockets.remove(0).closed()).await, lost);
    freed(market).await.close().await;
}

async fn listings_and_trades_come_over_a_socket(market: &Market) {
    let mut socket = Socket::open(market, "eve").await;
    let listed = market.client("ann").list("ann-1", 300).await.json().await;
    let mut listing = listed.clone();
    listing["event"] = json!("listing");
    assert_eq!(socket.event().await, listing);

    let id = listed["id"].as_str().expect("an id");
    assert_eq!(market.client("bob").purchase(id).await.status(), 200);
    let trade = socket.event().await;
    assert_eq!(
        (&trade["event"], &trade["buyer"]),
        (&json!("trade"), &json!("bob"))
    );
    socket.close().await;
}

async fn a_request_that_is_no_handshake_is_bad_and_holds_no_permit(market: &Market) {
    for _ in 0..6 {
        let answer = market.client("ann").get("/market/socket").await;
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let _five = Socket::several(market, "ann", 5).await;
}

async fn a_market_that_stops_says_so_to_its_sockets(market: &Market) {
    let mut sockets = Vec::new();
    // Enough sockets that a market which does not wait for them would exit before it has closed them all.
    for account in 0..40 {
        sockets.extend(Socket::several(market, &format!("account-{account}"), 5).await);
    }
    // A handshake may be answered before the socket is in use, so wait for an event.
    assert_eq!(market.client("bob").list("bob-1", 10).await.status(), 201);
    for socket in &mut sockets {
        socket.event().await;
    }
    market.terminate();
    for socket in sockets {
        assert_eq!(socket.closed().await, (1001, "the market stops".to_owned()));
    }
}

#[tokio::test]
async fn a_silent_client_that_answers_pings_keeps_its_permit() {
    let market = Market::start(&[("LIMIT", "1"), ("MAX_STALL_MS", "2000")]).await;
    let mut silent = Socket::open(&market, "ann").await;
    let stay = tokio::time::timeout(Duration::from_secs(5), silent.stay());
    assert!(stay.await.is_err());
    is_refused(&market).await;
}

#[tokio::test]
async fn a_market_stops_although_a_client_does_not_answer() {
    let market = Market::start(&[]).await;
    let _asleep = Socket::open(&market, "ann").await;
    market.terminate();
    assert!(soon("the end", market.ended()).await.success());
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_socket_is_closed_when_its_permit_is_lost() {
    let mut server = testing::redis::RedisServer::start();
    let settings = [("REDIS_URL", &*server.url()), ("LEASE_MS", "1000")];
    let market = Market::start(&settings).await;
    let socket = Socket::open(&market, "ann").await;
    server.kill();
    let lost = (1013, "the permit was lost".to_owned());
    assert_eq!(socket.closed().await, lost);
}

/// Frames are written by hand, because a library would answer pings by itself.
const TEXT: u8 = 1;
const PING: u8 = 9;

const MEBI: u64 = 1_024 * 1_024;

/// The header of a client's frame with a mask of zeros.
fn head(kind: u8, length: u64) -> Vec<u8> {
    let opcode = kind.into();
    let mask = Some([0; 4]);
    let (header, mut head) = (
        FrameHeader {
            opcode,
            mask,
            ..FrameHeader::default()
        },
        Vec::new(),
    );
    header.format(length, &mut head).expect("it has room");
    head
}

async fn held(market: &Market) -> usize {
    ids(&permits(&market.nobody(), "ann").await).len()
}

async fn none_is_held(market: &Market) {
    eventually("the permit is free", BOUND, async || {
        held(market).await == 0
    })
    .await;
}

#[tokio::test]
async fn a_client_that_talks_and_answers_no_ping_loses_its_permit() {
    let market = Market::start(&[("MAX_STALL_MS", "500")]).await;
    let mut socket = Socket::open(&market, "ann").await;
    let socket = socket.connection();
    assert_eq!(held(&market).await, 1);
    let word = [head(TEXT, 2), b"hi".to_vec()].concat();
    let start = Instant::now();
    while socket.write_all(&word).await.is_ok() {
        assert!(start.elapsed() < BOUND, "the socket is still open");
        sleep(Duration::from_millis(50)).await;
    }
    none_is_held(&market).await;
}

#[tokio::test]
async fn a_frame_that_is_too_long_ends_the_socket_by_its_head() {
    let market = Market::start(&[]).await;
    let mut socket = Socket::open(&market, "ann").await;
    let socket = socket.connection();
    let sent = socket.write_all(&head(TEXT, 8 * MEBI)).await;
    sent.expect("it is open");
    none_is_held(&market).await;
}

#[tokio::test]
async fn unread_pongs_take_no_memory_of_the_market() {
    // The client reads nothing, so it answers no ping of the market either, for as long as this takes.
    let market = Market::start(&[("MAX_STALL_MS", "600000")]).await;
    let mut socket = Socket::open(&market, "ann").await;
    let socket = socket.connection();
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
