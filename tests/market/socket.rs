//! A socket holds its permit until it is closed, whoever closes it.

use crate::{
    holders::{delete, ids, permits},
    process::Market,
    socket_client::{Socket, asleep},
    soon,
};
use serde_json::json;
use std::time::Duration;
use testing::wait::eventually;

/// Shorter than what silence a socket may keep, so that nothing but its end frees a permit in time.
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
    the_sixth_socket_is_refused_at_its_handshake,
    a_socket_that_its_client_closes_frees_its_permit,
    a_client_that_hangs_up_without_a_word_frees_its_permit,
    a_client_that_is_killed_frees_its_permit,
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

async fn the_sixth_socket_is_refused_at_its_handshake(market: &Market) {
    let mut sockets = Socket::several(market, "ann", 5).await;
    is_refused(market).await;
    assert_eq!(market.client("ann").get("/market").await.status(), 429);
    let _other = Socket::open(market, "bob").await;

    // Silence does not free a permit, nor does an event.
    assert_eq!(market.client("bob").list("bob-1", 10).await.status(), 201);
    for socket in &mut sockets {
        assert_eq!(socket.event().await["item"], "bob-1");
    }
    is_refused(market).await;
}

async fn a_socket_that_its_client_closes_frees_its_permit(market: &Market) {
    let mut sockets = Socket::several(market, "ann", 5).await;
    let last = sockets.pop().expect("five");
    last.close().await;
    let _again = freed(market).await;
    is_refused(market).await;
}

async fn a_client_that_hangs_up_without_a_word_frees_its_permit(market: &Market) {
    let mut sockets = Socket::several(market, "ann", 5).await;
    sockets.pop();
    let _again = freed(market).await;
    is_refused(market).await;
}

async fn a_client_that_is_killed_frees_its_permit(market: &Market) {
    let mut client = asleep(market, "ann").await;
    let _others = Socket::several(market, "ann", 4).await;
    is_refused(market).await;
    client.kill().await.expect("it runs");
    let _again = freed(market).await;
    is_refused(market).await;
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
    // So many that a market which does not wait for them ends before it has told them all.
    for account in 0..40 {
        sockets.extend(Socket::several(market, &format!("account-{account}"), 5).await);
    }
    // A handshake that is answered may not be over yet.
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
async fn a_client_that_answers_no_ping_loses_its_permit() {
    let market = Market::start(&[("LIMIT", "1"), ("MAX_STALL_MS", "500")]).await;
    let _asleep = asleep(&market, "ann").await;
    is_refused(&market).await;
    let _again = freed(&market).await;
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
    let _asleep = asleep(&market, "ann").await;
    market.terminate();
    assert!(soon("the end", market.ended()).await.success());
}

#[cfg(feature = "redis")]
mod over_redis {
    use super::*;
    use testing::{redis::RedisServer, resp::Raw};

    #[tokio::test]
    async fn a_socket_is_closed_when_its_permit_is_lost() {
        let mut server = RedisServer::start();
        let settings = [("REDIS_URL", &*server.url()), ("LEASE_MS", "1000")];
        let market = Market::start(&settings).await;
        let socket = Socket::open(&market, "ann").await;
        server.kill();
        let lost = (1013, "the permit was lost".to_owned());
        assert_eq!(socket.closed().await, lost);
    }

    #[tokio::test]
    async fn a_market_that_stops_releases_the_permits_of_its_sockets() {
        let server = RedisServer::start();
        let settings = [("REDIS_URL", &*server.url()), ("LEASE_MS", "3600000")];
        let market = Market::start(&settings).await;
        let _sockets = Socket::several(&market, "ann", 5).await;
        let _asleep = asleep(&market, "bob").await;
        let mut raw = Raw::connect(server.port()).await;
        assert_eq!(raw.keys("semaphore:*:held").await.len(), 3);
        market.terminate();
        assert!(market.ended().await.success());
        assert!(raw.keys("semaphore:*:held").await.is_empty());
    }
}
