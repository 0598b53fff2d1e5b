//! A heartbeat that comes late, in a real server.

use crate::eval;
use std::time::Duration;
use testing::{redis::RedisServer, resp::Raw};
use tower_semaphore_model::scripts::Verb;

/// Two claims travel in one call: a try, and the heartbeat of a waiter that comes too late.
#[tokio::test]
async fn a_late_heartbeat_keeps_its_position_before_an_earlier_claim_of_the_same_call() {
    const KEYS: [&str; 4] = ["s{0}:held", "s{0}:queue", "s{0}:alive", "s{0}:token"];
    const END: &str = "9999999999999";
    let server = RedisServer::start();
    let mut raw = Raw::connect(server.port()).await;
    let held = [
        "60000",
        END,
        "0",
        "60000",
        "1",
        "1",
        "a.1.1.1.60000",
        "1",
        "",
    ];
    eval(&mut raw, Verb::Acquire, &KEYS, &held).await;
    let waits = [
        "60000",
        END,
        "0",
        "60000",
        "1",
        "1",
        "b.1.1.1.60000",
        "1",
        "1 9 0 0",
    ];
    eval(&mut raw, Verb::Acquire, &KEYS, &waits).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    raw.cmd(&["ZREM", KEYS[0], "a.1.1.1.60000"]).await;

    let (tries, heartbeat) = (["1", "c.1.1.1.60000", "1", ""], &waits[5..]);
    let both = [&waits[..5], &tries, heartbeat].concat();
    eval(&mut raw, Verb::Acquire, &KEYS, &both).await;
    let held: Vec<_> = raw
        .zmembers(KEYS[0])
        .await
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert_eq!(held, [b"b.1.1.1.60000"]);
}
