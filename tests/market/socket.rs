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

/// Less than the 30 s for which pings may stay unanswered, so that only the end of a socket frees a permit in time.
const FREED_WITHIN: Duration = Duration::from_secs(15);

/// The codes of close frames, as RFC 6455 and its registry name them.
const GOING_AWAY: u16 = 1_001;
const TRY_AGAIN_LATER: u16 = 1_013;

/// Waits until a permit of ann is free, and takes it with a socket.
async fn open_when_free(market: &Market) -> Socket {
    let mut socket = None;
    eventually("a permit is free", FREED_WITHIN, async || {
        socket = Socket::try_open(market, "ann").await.ok();
        socket.is_some()
    })
    .await;
    socket.expect("one is open")
}

async fn assert_refused(market: &Market) {
    let refused = Socket::try_open(market, "ann").await;
    let answer = refused.err().expect("refused");
    assert_eq!(answer.status(), 429);
    assert!(answer.headers().contains_key("retry-after"));
    assert_eq!(answer.headers()["content-type"], "application/problem+json");
}

on_every_store! {
    listings_and_trades_come_over_a_socket,
    a_request_that_is_no_handshake_is_bad_and_holds_no_permit,
    a_market_that_stops_closes_its_sockets_with_that_reason,
    a_socket_whose_permit_is_deleted_is_closed_and_leaves_room,
}

async fn a_socket_whose_permit_is_deleted_is_closed_and_leaves_room(market: &Market) {
    let mut sockets = Socket::several(market, "ann", 5).await;
    let anonymous = market.anonymous_client();
    let oldest = ids(&permits(&anonymous, "ann").await).remove(0);
    assert_eq!(delete(&anonymous, "ann", &oldest).await, 204);
    let lost = (TRY_AGAIN_LATER, "the permit was lost".to_owned());
    assert_eq!(
        soon(
            "the end of the socket",
            sockets.remove(0).wait_until_closed()
        )
        .await,
        lost
    );
    open_when_free(market).await.close().await;
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
    // One more than the limit.
    for _ in 0..6 {
        let answer = market.client("ann").get("/market/socket").await;
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
    let _five = Socket::several(market, "ann", 5).await;
}

async fn a_market_that_stops_closes_its_sockets_with_that_reason(market: &Market) {
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
        assert_eq!(
            socket.wait_until_closed().await,
            (GOING_AWAY, "the market stops".to_owned())
        );
    }
}

#[tokio::test]
async fn a_silent_client_that_answers_pings_keeps_its_permit() {
    let market = Market::start(&[("LIMIT", "1"), ("MAX_STALL_MS", "2000")]).await;
    let mut silent = Socket::open(&market, "ann").await;
    // More than twice the time for which pings may stay unanswered.
    let answering = tokio::time::timeout(Duration::from_secs(5), silent.answer_pings());
    assert!(answering.await.is_err());
    assert_refused(&market).await;
}

#[tokio::test]
async fn a_market_stops_although_a_socket_s_client_does_not_answer() {
    let market = Market::start(&[]).await;
    let _asleep = Socket::open(&market, "ann").await;
    market.terminate();
    assert!(soon("the end", market.wait_until_ended()).await.success());
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn a_socket_is_closed_when_its_permit_is_lost() {
    let mut server = testing::redis::RedisServer::start();
    let settings = [("REDIS_URL", &*server.url()), ("LEASE_MS", "1000")];
    let market = Market::start(&settings).await;
    let socket = Socket::open(&market, "ann").await;
    server.kill();
    let lost = (TRY_AGAIN_LATER, "the permit was lost".to_owned());
    assert_eq!(socket.wait_until_closed().await, lost);
}

// Opcodes of frames. Tests write frames by hand, because a library would answer pings by itself.
const TEXT: u8 = 1;
const PING: u8 = 9;

const MEBI: u64 = 1_024 * 1_024;

/// The header of a client's frame, with a mask of zeros: the data is sent as it is.
fn head(kind: u8, length: u64) -> Vec<u8> {
    let opcode = kind.into();
    let mask = Some([0; 4]);
    let header = FrameHeader {
        opcode,
        mask,
        ..FrameHeader::default()
    };
    let mut head = Vec::new();
    header.format(length, &mut head).expect("it has room");
    head
}

/// The number of permits that ann holds.
async fn held(market: &Market) -> usize {
    ids(&permits(&market.anonymous_client(), "ann").await).len()
}

async fn wait_until_none_is_held(market: &Market) {
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
    wait_until_none_is_held(&market).await;
}

#[tokio::test]
async fn a_frame_that_is_too_long_ends_the_socket_before_its_data_arrives() {
    let market = Market::start(&[]).await;
    let mut socket = Socket::open(&market, "ann").await;
    let socket = socket.connection();
    // Only the header. The market takes messages of up to 4 KiB.
    let sent = socket.write_all(&head(TEXT, 8 * MEBI)).await;
    sent.expect("it is open");
    wait_until_none_is_held(&market).await;
}

#[tokio::test]
async fn unread_pongs_take_no_memory_of_the_market() {
    // The client reads nothing, so it answers none of the market's pings. The high bound keeps its socket open.
    let market = Market::start(&[("MAX_STALL_MS", "600000")]).await;
    let mut socket = Socket::open(&market, "ann").await;
    let socket = socket.connection();
    // The longest data of a ping.
    let ping = [head(PING, 125), vec![0; 125]].concat();
    let pings = ping.repeat(MEBI as usize / ping.len());
    let before = resident(market.pid());
    for _ in 0..64 {
        let sent = socket.write_all(&pings);
        soon("the pings are read", sent).await.expect("it is open");
    }
    let grown = resident(market.pid()).saturating_sub(before);
    // The pongs to all pings would take 64 MiB.
    assert!(grown < 32 * MEBI, "by {grown} bytes");
    assert_eq!(held(&market).await, 1);
}
